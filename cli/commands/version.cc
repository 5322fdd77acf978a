#include "absl/strings/str_cat.h"
#include "base/obs/version.h"
#include "cli/commands/commands.h"

namespace atl::cli {

void AddVersion(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("version", "Show the version");
  command->footer("Example:\n  atoll version -o json");
  command->callback([&context] {
    context.action = [](Context& context) {
      Json data;
      data["version"] = kProgramVersion;
      data["protocol"] = "atoll.v1";
      context.output().Print(
          data, absl::StrCat("atoll ", kProgramVersion, " (atoll.v1)\n"));
      return absl::OkStatus();
    };
  });
}

}  // namespace atl::cli
