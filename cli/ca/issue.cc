#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/flags/flags.h"
#include "base/status/status_macros.h"
#include "cli/ca/authority_directory.h"
#include "cli/ca/ca_commands.h"
#include "cli/ca/certificate_directory.h"
#include "cli/output/output.h"
#include "cli/output/table.h"

namespace atl::cli {
namespace {

struct IssueFlags {
  std::string directory;  // The CA's.
  IssueOptions options;
  std::string role;
  int days = 90;
};

absl::Status Issue(Context& context, const IssueFlags& flags) {
  IssueOptions options = flags.options;
  for (int i = 0; i < kRoleCount; ++i) {
    const Role role = static_cast<Role>(i);
    if (RoleName(role) == flags.role) options.role = role;
  }
  options.lifetime = flags.days * absl::Hours(24);
  const absl::Time now = absl::Now();
  ASSIGN_OR_RETURN(const Ca ca, ReadCa(flags.directory, now));
  ASSIGN_OR_RETURN(const IssuedFiles issued, IssueFiles(ca, options, now));
  for (const std::string& line : DescribeExpiry(ca, flags.directory, now)) {
    context.output().Message(line);
  }
  Json data;
  data["common_name"] = issued.common_name;
  data["hosts"] = options.hosts;
  data["out"] = options.out;
  data["days"] = flags.days;
  data["runs"] = options.runs;
  data["end_time"] = FormatTimestamp(issued.end);
  data["files"] = issued.files;
  context.output().Print(
      data, absl::StrCat(issued.common_name, " until ",
                         FormatTimestamp(issued.end), ": ", options.out, "/{",
                         absl::StrJoin(issued.files, ","), "}\n"));
  return absl::OkStatus();
}

}  // namespace

void AddCaIssue(flags::Command& app, Context& context) {
  flags::Command& command =
      app.AddCommand("issue", "Issue a certificate of the CA");
  command.Footer(
      "Makes OUT, the directory for --tls-dir: tls.crt, tls.key and ca.crt;\n"
      "for a coordinator and a server also island-ca.crt; for a gate also\n"
      "island-ca.crt and island-ca.key. The role data is for `atoll data\n"
      "serve`. `atoll ca list` lists what was issued, `atoll ca revoke` revokes\n"
      "it.\n"
      "`atoll ca renew` makes it valid for longer.\n"
      "Examples:\n"
      "  atoll ca issue --dir ca --role coordinator --id c --out c \\\n"
      "    --host c.example.org,192.0.2.7\n"
      "  atoll ca issue --dir ca --role island --id kitchen --out kitchen\n"
      "  atoll ca issue --dir ca --role reader --id web --run spring,fall \\\n"
      "    --out web");
  auto flags = std::make_shared<IssueFlags>();
  IssueOptions& options = flags->options;
  command.Add("--dir", flags->directory, "Directory of the CA").Required();
  command.Add("--role", flags->role, "Role of the certificate's owner")
      .Required()
      .Check(flags::IsMember({"coordinator", "server", "operator", "island",
                              "reader", "gate", "data"}));
  command.Add("--id", options.id, "Id of the certificate's owner").Required();
  command
      .Add("--host", options.hosts,
           "DNS names and IP addresses that others dial, for a "
           "coordinator, a server, a gate or data: H[,H]")
      .Split(',');
  command
      .Add("--run", options.runs,
           "Runs that an island or a reader may touch: ID[,ID], or "
           "any (the default)")
      .Split(',');
  command.Add("--out", options.out, "Directory to write the files to")
      .Required();
  command.Add("--days", flags->days, "Days for which the certificate is valid")
      .ShowDefault()
      .Check(flags::Range(1, 36500));
  SetAction(command, context, Issue, flags);
}

}  // namespace atl::cli
