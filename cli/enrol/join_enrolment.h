// How `atoll join` becomes an island by a join string.

#pragma once

#include <optional>
#include <ostream>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/identity/join_string.h"
#include "cli/enrol/enrolment.h"
#include "cli/enrol/join_input.h"

namespace atl::cli {

// The flags that concern enrolment.
struct JoinRequestFlags {
  // "-": the join string is read from `input`. "atoll://...": it is this one.
  // Otherwise a coordinator's address, or empty.
  std::string address;
  std::string run_id;
  std::string island_id;
  bool has_tls_files = false;
};

// True if `address` is a join string, or says that one is to be read.
bool IsJoinString(const std::string& address);

// The join string that `address` is or asks to read from `input`. Requires:
// IsJoinString(address).
// INVALID_ARGUMENT (a usage error): it is malformed, or not for `run_id`, if
// that is not empty. Also ReadJoinText's.
absl::StatusOr<JoinString> ReadJoinString(const std::string& address,
                                          const std::string& run_id,
                                          const JoinInput& input,
                                          std::ostream& messages);

// Enrols with the join string, or finds the enrolment of an earlier one if the
// flags name only a run. Enrolments are kept in `parent`. nullopt: the flags ask
// for no enrolment.
// INVALID_ARGUMENT (a usage error): the join string is malformed, or a flag
// contradicts it. Also the gate's errors.
absl::StatusOr<std::optional<Enrolment>> FindEnrolment(
    const JoinRequestFlags& flags, const std::string& parent,
    const JoinInput& input, std::ostream& messages, const GateCall& call,
    absl::Time now);

}  // namespace atl::cli
