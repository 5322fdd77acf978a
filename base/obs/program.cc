#include "base/obs/program.h"

#include <sys/resource.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/obs/flags.h"
#include "base/obs/log.h"
#include "base/obs/version.h"
#include "base/status/exit_code.h"

namespace atl {
namespace {

constexpr int kGoesOn = -1;
// Lower limits of open files are logged.
constexpr uint64_t kFewFiles = 4096;

// CLI11 reports by exceptions, which its macro catches.
int Parse(CLI::App& app, int argc, char** argv) {
  CLI11_PARSE(app, argc, argv);
  return kGoesOn;
}

}  // namespace

std::string HelpFormatter::make_help(const CLI::App* app, std::string name,
                                     CLI::AppFormatMode mode) const {
  const std::string help =
      CLI::Formatter::make_help(app, std::move(name), mode);
  // Subcommands are within the text that is wrapped.
  if (mode == CLI::AppFormatMode::Sub) return help;
  return WrapHelp(help, get_column_width());
}

std::optional<int> ParseCommandLine(CLI::App& app, int argc, char** argv) {
  app.set_version_flag("--version",
                       absl::StrCat(app.get_name(), " ", kProgramVersion));
  const auto formatter = std::make_shared<HelpFormatter>();
  app.formatter(formatter);
  for (CLI::App* command : app.get_subcommands({})) {
    command->formatter(formatter);
  }
  SpellFlagsWithDashes(argc, argv);
  const int code = Parse(app, argc, argv);
  if (code == kGoesOn) return std::nullopt;
  return code == 0 ? 0 : static_cast<int>(ExitCode::kUsage);
}

uint64_t RaiseOpenFileLimit() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);  // Fails only for wrong arguments.
  const rlim_t before = std::exchange(limit.rlim_cur, limit.rlim_max);
  // The system may have a lower limit than the hard limit.
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = before;
  if (limit.rlim_cur < kFewFiles) {
    LOG(WARNING) << "may have " << limit.rlim_cur
                 << " open files at once, including connections; raise the "
                    "hard limit (`ulimit -Hn`) to allow more";
  }
  return limit.rlim_cur;
}

int EndProgram(const CLI::App& app, const absl::Status& status) {
  if (!status.ok()) {
    std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(),
                 std::string(status.message()).c_str());
  }
  return static_cast<int>(CodeToExitCode(status.code()));
}

}  // namespace atl
