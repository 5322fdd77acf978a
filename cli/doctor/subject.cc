#include "cli/doctor/subject.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/status/status_macros.h"
#include "cli/enrol/enrolment.h"
#include "cli/enrol/join_enrolment.h"
#include "cli/output/error.h"

namespace atl::cli {
namespace {

absl::StatusOr<GateSubject> ToSubject(const Enrolment& enrolment,
                                      const RunGetter& get_run) {
  const EnrolmentRecord& record = enrolment.record();
  const rpc::TlsFiles tls = enrolment.tls_files();
  GateSubject subject;
  subject.address = record.gate_address;
  subject.pin = record.pin;
  subject.run_id = record.run_id;
  subject.certificate_end = enrolment.EndTime();
  subject.coordinator_address = record.coordinator_address;
  subject.server_addresses = record.server_addresses;
  ASSIGN_OR_RETURN(subject.cert_pem, ReadFile(PosixFileSystem(), tls.cert));
  ASSIGN_OR_RETURN(subject.key_pem, ReadFile(PosixFileSystem(), tls.key));
  subject.data_token = [enrolment] { return enrolment.ReadDataToken(); };
  subject.get_run = [=] {
    return get_run(record.coordinator_address, tls, record.run_id);
  };
  return subject;
}

GateSubject ToSubject(const JoinString& join) {
  GateSubject subject;
  subject.address = join.gate_address;
  subject.pin = join.pin;
  subject.run_id = join.run_id;
  subject.token_id = join.token_id;
  subject.token_secret = join.token_secret;
  return subject;
}

// The runs in which this machine is enrolled: directories are RUN.TOKEN.
std::set<std::string> ListRuns(const std::string& parent) {
  std::set<std::string> runs;
  const auto names = PosixFileSystem().List(parent);
  if (!names.ok()) return runs;
  for (const std::string& name : *names) {
    const size_t dot = name.rfind('.');
    if (dot == std::string::npos) continue;
    const std::string run_id = name.substr(0, dot);
    if (!absl::IsNotFound(Enrolment::Open(parent, run_id).status())) {
      runs.insert(run_id);
    }
  }
  return runs;
}

}  // namespace

absl::StatusOr<std::optional<GateSubject>> FindSubject(
    const SubjectFlags& flags, const std::string& parent,
    const JoinInput& input, std::ostream& messages, const RunGetter& get_run) {
  if (!flags.address.empty()) {
    if (!IsJoinString(flags.address)) {
      return UsageError(
          absl::StrCat("\"", flags.address, "\" is not a join string"),
          "Give atoll://..., `-` to read it, or --run RUN.");
    }
    ASSIGN_OR_RETURN(
        const JoinString join,
        ReadJoinString(flags.address, flags.run_id, input, messages));
    const auto enrolled = Enrolment::Open(parent, join.run_id);
    if (enrolled.ok() && enrolled->record().token_id == join.token_id) {
      messages << absl::StrCat("this machine has enrolled with this string as ",
                               enrolled->record().name, "\n");
      return ToSubject(*enrolled, get_run);
    }
    return ToSubject(join);
  }
  std::string run_id = flags.run_id;
  if (run_id.empty()) {
    const std::set<std::string> runs = ListRuns(parent);
    if (runs.empty()) return std::optional<GateSubject>();
    if (runs.size() > 1) {
      return UsageError(
          absl::StrCat("this machine is enrolled in several runs: ",
                       absl::StrJoin(runs, ", ")),
          "Choose one with --run.");
    }
    run_id = *runs.begin();
  }
  ASSIGN_OR_RETURN(const Enrolment enrolment, Enrolment::Open(parent, run_id));
  return ToSubject(enrolment, get_run);
}

}  // namespace atl::cli
