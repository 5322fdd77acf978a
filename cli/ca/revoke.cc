#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/flags/flags.h"
#include "base/status/status_macros.h"
#include "cli/ca/authority_directory.h"
#include "cli/ca/ca_commands.h"
#include "cli/ca/issued_list.h"
#include "cli/output/output.h"
#include "cli/output/table.h"

namespace atl::cli {
namespace {

struct RevokeOptions {
  std::string directory;  // The CA's.
  std::vector<std::string> which;
};

absl::Status Revoke(Context& context, const RevokeOptions& options) {
  const absl::Time now = absl::Now();
  ASSIGN_OR_RETURN(const Ca ca, ReadCa(options.directory, now));
  ASSIGN_OR_RETURN(const std::vector<IssuedCertificate> revoked,
                   RevokeCertificates(ca, options.which, now));
  Table table({"NAME", "REVOKED", "SERIAL"});
  Json items = Json::array();
  bool is_gate = false;
  for (const IssuedCertificate& each : revoked) {
    const std::string time = FormatTimestamp(each.revoked.value_or(now));
    table.AddRow({each.common_name, time, each.serial});
    items.push_back({{"common_name", each.common_name},
                     {"revoke_time", time},
                     {"serial", each.serial}});
    is_gate |= absl::StartsWith(each.common_name, "atoll:gate:");
  }
  context.output().PrintList("certificates", items, table.ToString());
  context.output().Message(absl::StrCat(
      "Copy ", options.directory,
      "/crl.pem into the --tls-dir of the coordinator and of every server; "
      "they read it within a second."));
  if (is_gate) {
    context.output().Message(
        "A gate also has the island CA's key, which stays good: if it was "
        "stolen, make another CA.");
  }
  return absl::OkStatus();
}

}  // namespace

void AddCaRevoke(flags::Command& app, Context& context) {
  flags::Command& command =
      app.AddCommand("revoke", "Revoke certificates of the CA, for good");
  command.Footer(
      "WHICH is ROLE:ID, for all of this name that have not expired, a serial\n"
      "number of `atoll ca list`, a certificate's file, or its directory.\n"
      "The list of revoked certificates is crl.pem in the CA's directory. It\n"
      "works in a program's --tls-dir, next to ca.crt: copy it to the\n"
      "coordinator and to every server. They read it within a second, then\n"
      "end open calls of these certificates and refuse new ones. `atoll ca\n"
      "issue` and `atoll ca renew` copy it to their directories. Islands that a\n"
      "gate enrolled are revoked with `atoll island revoke`.\n"
      "Examples:\n"
      "  atoll ca revoke --dir ca operator:anna\n"
      "  install -m 640 ca/crl.pem /etc/atoll/coordinator/");
  auto options = std::make_shared<RevokeOptions>();
  command.Add("--dir", options->directory, "Directory of the CA").Required();
  command.Add("WHICH", options->which, "What to revoke").Required();
  SetAction(command, context, Revoke, options);
}

}  // namespace atl::cli
