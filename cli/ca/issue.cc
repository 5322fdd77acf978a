#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status/status_macros.h"
#include "cli/ca/authority_directory.h"
#include "cli/ca/ca_commands.h"
#include "cli/output/output.h"

namespace atl::cli {
namespace {

struct IssueFlags {
  IssueOptions options;
  std::string role;
  int days = 90;
};

absl::Status Issue(Context& context, const IssueFlags& flags) {
  IssueOptions options = flags.options;
  for (int i = 0; i < rpc::kRoleCount; ++i) {
    const rpc::Role role = static_cast<rpc::Role>(i);
    if (rpc::RoleName(role) == flags.role) options.role = role;
  }
  options.lifetime = flags.days * absl::Hours(24);
  ASSIGN_OR_RETURN(const std::string name, IssueFiles(options, absl::Now()));
  Json data;
  data["common_name"] = name;
  data["hosts"] = options.hosts;
  data["out"] = options.out;
  data["days"] = flags.days;
  context.output().Print(
      data, absl::StrCat(name, " for ", flags.days, " days: ", options.out,
                         "/{tls.crt,tls.key,ca.crt}\n"));
  return absl::OkStatus();
}

}  // namespace

void AddCaIssue(CLI::App& app, Context& context) {
  CLI::App* command =
      app.add_subcommand("issue", "Issue a certificate of the CA");
  command->footer(
      "Writes tls.crt, tls.key and ca.crt, for --tls-cert, --tls-key and\n"
      "--tls-ca. Running programs read replaced files again.\n"
      "Example:\n"
      "  atoll ca issue --dir ca --role coordinator --id c --out c \\\n"
      "    --host c.example.org,192.0.2.7\n"
      "  atoll ca issue --dir ca --role island --id kitchen --out kitchen");
  auto flags = std::make_shared<IssueFlags>();
  IssueOptions& options = flags->options;
  command->add_option("--dir", options.directory, "Directory of the CA")
      ->required();
  command->add_option("--role", flags->role, "Role of the certificate's owner")
      ->required()
      ->check(CLI::IsMember(
          {"coordinator", "server", "operator", "island", "reader"}));
  command->add_option("--id", options.id, "Id of the certificate's owner")
      ->required();
  command
      ->add_option("--host", options.hosts,
                   "DNS names and IP addresses that others dial, for a "
                   "coordinator or a server: H[,H]")
      ->delimiter(',');
  command->add_option("--out", options.out, "Directory to write the files to")
      ->required();
  command
      ->add_option("--days", flags->days,
                   "Days for which the certificate is valid")
      ->capture_default_str()
      ->check(CLI::Range(1, 36500));
  SetAction(*command, context, Issue, flags);
}

}  // namespace atl::cli
