#include <memory>
#include <string>
#include <vector>

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

absl::Status List(Context& context, const std::string& directory) {
  const absl::Time now = absl::Now();
  ASSIGN_OR_RETURN(const Ca ca, ReadCa(directory, now));
  ASSIGN_OR_RETURN(const std::vector<IssuedCertificate> issued,
                   ListIssued(ca));
  Table table({"NAME", "STATE", "VALID UNTIL", "SERIAL"});
  Json items = Json::array();
  for (const IssuedCertificate& each : issued) {
    const char* const state = each.revoked.has_value() ? "REVOKED"
                              : each.end <= now        ? "EXPIRED"
                                                       : "VALID";
    table.AddRow(
        {each.common_name, state, FormatTimestamp(each.end), each.serial});
    Json item = {{"common_name", each.common_name},
                 {"state", state},
                 {"end_time", FormatTimestamp(each.end)},
                 {"serial", each.serial}};
    if (each.revoked.has_value()) {
      item["revoke_time"] = FormatTimestamp(*each.revoked);
    }
    items.push_back(std::move(item));
  }
  context.output().PrintList("certificates", items, table.ToString());
  return absl::OkStatus();
}

}  // namespace

void AddCaList(flags::Command& app, Context& context) {
  flags::Command& command =
      app.AddCommand("list", "List the certificates that the CA has issued");
  command.Footer(
      "Certificates of `atoll ca issue` and `atoll ca renew`, the oldest first.\n"
      "Those of earlier versions are not recorded. `atoll audit` lists what\n"
      "gates have made.\n"
      "Example:\n"
      "  atoll ca list --dir ca");
  auto directory = std::make_shared<std::string>();
  command.Add("--dir", *directory, "Directory of the CA").Required();
  SetAction(command, context, List, directory);
}

}  // namespace atl::cli
