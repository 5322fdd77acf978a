// Finds the run that `atoll doctor` checks.

#pragma once

#include <functional>
#include <optional>
#include <ostream>
#include <string>

#include "absl/status/statusor.h"
#include "base/rpc/certificates/tls.h"
#include "cli/doctor/volunteer_doctor.h"
#include "cli/enrol/join_input.h"

namespace atl::cli {

// Gets a run from the coordinator at `address`, with a certificate.
using RunGetter = std::function<absl::StatusOr<v1::Run>(
    const std::string& address, const rpc::TlsFiles& tls,
    const std::string& run_id)>;

struct SubjectFlags {
  std::string address;  // A join string, "-" or empty.
  std::string run_id;
};

// The gate of the join string, or of this machine's enrolment below `parent`,
// which holds all enrolments. A join string with which this machine has
// enrolled stands for its enrolment. nullopt: nothing is named, and this
// machine is enrolled nowhere.
// INVALID_ARGUMENT (a usage error): the address is no join string, or several
// enrolments fit. NOT_FOUND: this machine is not enrolled in the run.
absl::StatusOr<std::optional<GateSubject>> FindSubject(
    const SubjectFlags& flags, const std::string& parent, const JoinInput& input,
    std::ostream& messages, const RunGetter& get_run);

}  // namespace atl::cli
