#include "cli/enrol/join_enrolment.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "cli/output/error.h"

namespace atl::cli {
bool IsJoinString(const std::string& address) {
  return address == "-" || BeginsJoinString(address);
}

absl::StatusOr<JoinString> ReadJoinString(const std::string& address,
                                          const std::string& run_id,
                                          const JoinInput& input,
                                          std::ostream& messages) {
  std::string text = address;
  if (text == "-") {
    ASSIGN_OR_RETURN(text, ReadJoinText(input, messages));
  } else {
    messages << "the shell's history keeps the join string: better give -, "
                "and paste it\n";
  }
  absl::StatusOr<JoinString> join = ParseJoinString(text);
  if (!join.ok()) return UsageError(join.status().message());
  if (!run_id.empty() && run_id != join->run_id) {
    return UsageError(absl::StrCat("the join string is for run ", join->run_id,
                                   ", not for ", run_id),
                      "Leave out --run.");
  }
  return join;
}

absl::StatusOr<std::optional<Enrolment>> FindEnrolment(
    const JoinRequestFlags& flags, const std::string& parent,
    const JoinInput& input, std::ostream& messages, const GateCall& call,
    absl::Time now) {
  if (!IsJoinString(flags.address)) {
    if (!flags.address.empty() || flags.run_id.empty() || flags.has_tls_files) {
      return std::optional<Enrolment>();
    }
    absl::StatusOr<Enrolment> found = Enrolment::Open(parent, flags.run_id);
    if (absl::IsNotFound(found.status())) return std::optional<Enrolment>();
    RETURN_IF_ERROR(found.status());
    return std::optional<Enrolment>(*std::move(found));
  }
  if (flags.has_tls_files) {
    return UsageError("a join string brings its own certificate",
                      "Leave out --tls-cert, --tls-key and --tls-ca; `atoll "
                      "settings` shows where they come from.");
  }
  ASSIGN_OR_RETURN(
      const JoinString join,
      ReadJoinString(flags.address, flags.run_id, input, messages));
  ASSIGN_OR_RETURN(Enrolment enrolment,
                   Enrolment::Enrol(parent, join, v1::ENROLLED_ROLE_ISLAND,
                                    flags.island_id, call, now));
  messages << absl::StrCat("enrolled in run ", join.run_id, " as ",
                           enrolment.record().name, "\n");
  return std::optional<Enrolment>(std::move(enrolment));
}

}  // namespace atl::cli
