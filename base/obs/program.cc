#include "base/obs/program.h"

#include <cstdio>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/obs/version.h"
#include "base/status/exit_code.h"

namespace atl {
namespace {

constexpr int kGoesOn = -1;

// CLI11 reports by exceptions; they end in its macro.
int Parse(CLI::App& app, int argc, char** argv) {
  CLI11_PARSE(app, argc, argv);
  return kGoesOn;
}

}  // namespace

std::optional<int> ParseCommandLine(CLI::App& app, int argc, char** argv) {
  app.set_version_flag("--version",
                       absl::StrCat(app.get_name(), " ", kProgramVersion));
  const int code = Parse(app, argc, argv);
  if (code == kGoesOn) return std::nullopt;
  return code == 0 ? 0 : static_cast<int>(ExitCode::kUsage);
}

int EndProgram(const CLI::App& app, const absl::Status& status) {
  if (!status.ok()) {
    std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(),
                 std::string(status.message()).c_str());
  }
  return static_cast<int>(ExitCodeOfCode(status.code()));
}

}  // namespace atl
