#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "cli/commands/commands.h"
#include "cli/output/error.h"
#include "cli/output/table.h"
#include "cli/volunteer/data_consent.h"
#include "worker/api/run_data.h"

namespace atl::cli {
namespace {

struct AllowOptions {
  std::string folder;
  bool remove = false;
};

absl::Status AllowFolder(Context& context, const AllowOptions& options) {
  const std::string config = ConfigDirectory(context.environment);
  if (options.folder.empty()) {
    if (options.remove) {
      return UsageError("--remove needs a folder",
                        "`atoll data allow` lists those that are allowed.");
    }
    ASSIGN_OR_RETURN(const std::vector<std::string> folders,
                     ReadAllowedData(config));
    Table table({"FOLDER"});
    for (const std::string& folder : folders) table.AddRow({folder});
    context.output().PrintList(
        "folders", Json(folders),
        table.empty() ? "no folder is allowed\n" : table.ToString());
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::string folder,
                   options.remove ? DisallowData(config, options.folder)
                                  : AllowData(config, options.folder));
  context.output().Print(
      Json{{"folder", folder}, {"allowed", !options.remove}},
      options.remove
          ? absl::StrCat("runs may not open ", folder,
                         ";\na running island keeps its open files\n")
          : absl::StrCat("runs may open ", folder, " and all below it\n"));
  const auto home = context.environment.find("HOME");
  if (!options.remove && home != context.environment.end()) {
    const absl::StatusOr<std::string> resolved =
        worker::ResolveLinks(home->second);
    if (resolved.ok() && worker::IsBelow(*resolved, folder)) {
      context.output().Message(
          "this folder holds your home, with its keys: any run may now read "
          "them.\n`atoll data allow --remove DIR` takes it back");
    }
  }
  return absl::OkStatus();
}

}  // namespace

void AddDataAllow(flags::Command& app, Context& context) {
  flags::Command& command =
      app.AddCommand("allow", "Allow runs to read a folder of this machine");
  command.Footer(
      "A run names a path of its data, but an island opens it only below a\n"
      "folder that is allowed here, once for all runs. A run's operator can\n"
      "learn the data that the run reads. `atoll join --data PATH` needs no\n"
      "such folder, and neither does data by URL. Without DIR: lists the\n"
      "folders. --remove holds from an island's next start.\n"
      "Examples:\n"
      "  atoll data allow /srv/tokens\n"
      "  atoll data allow\n"
      "  atoll data allow --remove /srv/tokens");
  auto options = std::make_shared<AllowOptions>();
  command.Add("dir", options->folder, "The folder");
  command.AddFlag("--remove", options->remove, "No longer allow it");
  SetAction(command, context, AllowFolder, options);
}

}  // namespace atl::cli
