#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/flags/flags.h"
#include "base/status/status_macros.h"
#include "cli/ca/authority_directory.h"
#include "cli/ca/ca_commands.h"
#include "cli/output/output.h"

namespace atl::cli {
namespace {

struct InitOptions {
  std::string directory;
  std::string existing;
  int days = 3650;
};

std::string OriginName(CaOrigin origin) {
  switch (origin) {
    case CaOrigin::kMade:
      return "made";
    case CaOrigin::kCopied:
      return "copied";
    case CaOrigin::kKept:
      return "kept";
  }
  return "";
}

absl::Status Init(Context& context, const InitOptions& options) {
  ASSIGN_OR_RETURN(const CaOrigin origin,
                   InitCa(options.directory, options.existing, absl::Now(),
                          options.days * absl::Hours(24)));
  Json data;
  data["dir"] = options.directory;
  data["ca"] = OriginName(origin);
  context.output().Print(
      data, absl::StrCat(OriginName(origin), " the CA in ", options.directory,
                         "; a holder of its keys can act as anyone\n"));
  return absl::OkStatus();
}

}  // namespace

void AddCaInit(flags::Command& app, Context& context) {
  flags::Command& command =
      app.AddCommand("init", "Make a certificate authority");
  command.Footer(
      "Writes a root (root.crt, root.key) and two CAs that it signs: service-ca\n"
      "signs what `atoll ca issue` makes, island-ca what a gate makes. Only\n"
      "`atoll ca renew --authorities` needs root.key again: keep it elsewhere. A\n"
      "directory that holds a CA is left as it is.\n"
      "Example:\n"
      "  atoll ca init --dir ca");
  auto options = std::make_shared<InitOptions>();
  command.Add("--dir", options->directory, "Directory of the CA").Required();
  command.Add("--days", options->days, "Days for which the CA is valid")
      .ShowDefault()
      .Check(flags::Range(1, 36500));
  command.Add("--existing", options->existing,
              "Directory whose CA is copied, if it holds one");
  SetAction(command, context, Init, options);
}

}  // namespace atl::cli
