#include <string>

#include "cli/commands/commands.h"
#include "cli/output/table.h"

namespace atl::cli {
namespace {

absl::Status ShowSettings(Context& context) {
  Table table({"SETTING", "VALUE", "FROM", "WHERE"});
  Json settings = Json::array();
  for (const Setting& setting : context.settings.all()) {
    const std::string source(SettingSourceName(setting.source));
    table.AddRow({setting.name, setting.value, source, setting.origin});
    Json item;
    item["name"] = setting.name;
    item["value"] = setting.value;
    item["source"] = source;
    item["origin"] = setting.origin;
    settings.push_back(item);
  }
  context.output().PrintList("settings", settings, table.ToString());
  return absl::OkStatus();
}

}  // namespace

void AddSettings(flags::Command& app, Context& context) {
  flags::Command& command = app.AddCommand(
      "settings", "Show each setting and where its value comes from");
  command.Footer(
      "Order of precedence: a flag, the environment (ATOLL_COORDINATOR), the\n"
      "profile (~/.config/atoll/profile.toml, or ATOLL_PROFILE), the default.\n"
      "Example:\n  ATOLL_COORDINATOR=10.0.0.7:7400 atoll settings");
  command.Action([&context] { context.action = ShowSettings; });
}

}  // namespace atl::cli
