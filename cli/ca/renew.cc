#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/flags/flags.h"
#include "base/status/status_macros.h"
#include "cli/ca/authority_directory.h"
#include "cli/ca/ca_commands.h"
#include "cli/ca/certificate_directory.h"
#include "cli/output/error.h"
#include "cli/output/output.h"
#include "cli/output/table.h"

namespace atl::cli {
namespace {

constexpr int kDays = 90;
constexpr int kAuthorityDays = 3650;

struct RenewOptions {
  std::string directory;  // The CA's.
  std::vector<std::string> outs;
  bool authorities = false;
  int days = 0;  // 0: the default.
};

absl::Status RenewTheAuthorities(Context& context,
                                 const RenewOptions& options) {
  const int days = options.days == 0 ? kAuthorityDays : options.days;
  const absl::Duration lifetime = days * absl::Hours(24);
  const absl::Time now = absl::Now();
  ASSIGN_OR_RETURN(const std::vector<std::string> files,
                   RenewAuthorities(options.directory, now, lifetime));
  Json data;
  data["dir"] = options.directory;
  data["files"] = files;
  data["end_time"] = FormatTimestamp(now + lifetime);
  context.output().Print(
      data, absl::StrCat(options.directory, "/{", absl::StrJoin(files, ","),
                         "} until ", FormatTimestamp(now + lifetime), "\n"));
  Output& output = context.output();
  output.Message("Before the old ones end:");
  if (files.size() == 1) {
    output.Message("  copy ca.crt to every directory of `atoll ca issue`");
    return absl::OkStatus();
  }
  output.Message(
      "  copy service-ca.crt over ca.crt of every directory of `ca issue`");
  output.Message("  copy island-ca.crt to those of them that have one");
  output.Message("  `atoll ca renew` those directories");
  return absl::OkStatus();
}

absl::Status Renew(Context& context, const RenewOptions& options) {
  if (options.authorities == !options.outs.empty()) {
    return UsageError(
        options.authorities
            ? "--authorities renews the CAs alone; give no OUT"
            : "OUT is missing: the directory of `atoll ca issue` to renew",
        absl::StrCat("`atoll ca renew --dir ", options.directory,
                     " kitchen attic`"));
  }
  if (options.authorities) return RenewTheAuthorities(context, options);
  const int days = options.days == 0 ? kDays : options.days;
  const absl::Time now = absl::Now();
  ASSIGN_OR_RETURN(const Ca ca, ReadCa(options.directory, now));
  ASSIGN_OR_RETURN(const std::vector<IssuedFiles> renewed,
                   RenewFiles(ca, options.outs, now, days * absl::Hours(24)));
  Table table({"NAME", "VALID UNTIL", "FILE"});
  Json items = Json::array();
  for (const IssuedFiles& each : renewed) {
    const std::string end = FormatTimestamp(each.end);
    const std::string file = each.directory + "/" + each.files.front();
    table.AddRow({each.common_name, end, file});
    items.push_back({{"common_name", each.common_name},
                     {"out", each.directory},
                     {"end_time", end}});
  }
  context.output().PrintList("certificates", items, table.ToString());
  for (const std::string& line : DescribeExpiry(ca, options.directory, now)) {
    context.output().Message(line);
  }
  return absl::OkStatus();
}

}  // namespace

void AddCaRenew(flags::Command& app, Context& context) {
  flags::Command& command =
      app.AddCommand("renew", "Make certificates of the CA valid for longer");
  command.Footer(
      "Replaces tls.crt in each OUT, even if it has expired: key, name, hosts\n"
      "and runs stay. Copy that file to its owner's machine; a running "
      "program\n"
      "reads it again. --authorities renews the CAs themselves, needs root.key,\n"
      "and says what to copy.\n"
      "Examples:\n"
      "  atoll ca renew --dir ca kitchen attic\n"
      "  atoll ca renew --dir ca --authorities");
  auto options = std::make_shared<RenewOptions>();
  command.Add("--dir", options->directory, "Directory of the CA").Required();
  command.Add("OUT", options->outs, "Directories of `atoll ca issue`");
  command.AddFlag("--authorities", options->authorities,
                  "Renew the CAs of --dir instead");
  command
      .Add("--days", options->days,
           absl::StrCat("Days for which they are valid; default: ", kDays,
                        ", for CAs ", kAuthorityDays))
      .Check(flags::Range(1, 36500));
  SetAction(command, context, Renew, options);
}

}  // namespace atl::cli
