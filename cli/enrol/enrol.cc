// atoll enrol.
#include <memory>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "base/io/files.h"
#include "base/status/status_macros.h"
#include "cli/enrol/call_gate.h"
#include "cli/enrol/enrol_commands.h"
#include "cli/enrol/enrolment.h"
#include "cli/enrol/join_enrolment.h"
#include "cli/enrol/join_input.h"
#include "cli/output/error.h"
#include "cli/output/output.h"
#include "cli/output/table.h"

namespace atl::cli {
namespace {

constexpr size_t kColumns = 80;

struct EnrolOptions {
  std::string join_string;
};

// `word` as a shell reads it.
std::string Quote(const std::string& word) {
  bool is_plain = true;
  for (const char c : word) {
    is_plain = is_plain && (absl::ascii_isalnum(c) || c == '/' || c == '.' ||
                            c == '_' || c == '-');
  }
  return is_plain ? word
                  : absl::StrCat(
                        "'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

std::string ToText(const EnrolmentRecord& record, const std::string& profile,
                   absl::Time end) {
  Fields fields;
  fields.Add("run", record.run_id);
  fields.Add("reader", record.name);
  fields.Add("coordinator", record.coordinator_address);
  fields.Add("certificate", absl::StrCat("until ", FormatTimestamp(end),
                                         "; commands renew it"));
  const std::string quoted = Quote(profile);
  std::string set = "export ATOLL_PROFILE=";
  if (set.size() + quoted.size() > kColumns) absl::StrAppend(&set, "\\\n");
  return absl::StrCat(fields.ToString(), "\nNext:\n", set, quoted,
                      "\natoll run show ", record.run_id, "\natoll run watch ",
                      record.run_id, "\n");
}

absl::Status Enrol(Context& context, const EnrolOptions& options) {
  if (!IsJoinString(options.join_string)) {
    return UsageError(
        absl::StrCat("\"", options.join_string, "\" is not a join string"),
        "Give atoll://..., or `-` to read it.");
  }
  ASSIGN_OR_RETURN(
      const JoinString join,
      ReadJoinString(options.join_string, /*run_id=*/"", StandardJoinInput(),
                     context.messages()));
  const std::string parent =
      AbsolutePath(absl::StrCat(context.state_directory, "/enrolments"));
  ASSIGN_OR_RETURN(
      const Enrolment enrolment,
      Enrolment::Enrol(parent, join, v1::ENROLLED_ROLE_READER, /*name=*/"",
                       MakeGateCall(context.settings.proxy()), absl::Now()));
  const EnrolmentRecord& record = enrolment.record();
  const std::string profile = enrolment.profile_path();
  Json data;
  data["run_id"] = record.run_id;
  data["role"] = "reader";
  data["name"] = record.name;
  data["coordinator"] = record.coordinator_address;
  data["profile"] = profile;
  data["end_time"] = FormatTimestamp(enrolment.EndTime());
  context.output().Print(data, ToText(record, profile, enrolment.EndTime()));
  return absl::OkStatus();
}

}  // namespace

void AddEnrol(flags::Command& app, Context& context) {
  flags::Command& command = app.AddCommand(
      "enrol", "Become a reader of a run: query it from this machine");
  command.Footer(
      "For a string of `atoll token create --role reader`. It makes a key and\n"
      "gets a certificate, which the later commands renew, and prints the\n"
      "profile for them. The same string again costs no second use.\n"
      "Example:\n"
      "  atoll enrol -\n"
      "  export ATOLL_PROFILE=PATH     # as printed\n"
      "  atoll run watch spring");
  auto options = std::make_shared<EnrolOptions>();
  command
      .Add("string", options->join_string,
           "A reader's join string; -: read it from the input")
      .Required();
  SetAction(command, context, Enrol, options);
}

}  // namespace atl::cli
