#include "absl/strings/str_cat.h"
#include "base/obs/version.h"
#include "cli/commands/commands.h"

namespace atl::cli {

void AddVersion(flags::Command& app, Context& context) {
  flags::Command& command = app.AddCommand("version", "Show the version");
  command.Footer("Example:\n  atoll version -o json");
  command.Action([&context] {
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
