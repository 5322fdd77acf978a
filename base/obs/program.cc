#include "base/obs/program.h"

#include <sys/resource.h>

#include <cstdint>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/obs/log.h"
#include "base/status/exit_code.h"

namespace atl {
namespace {

// Lower limits of open files are logged.
constexpr uint64_t kFewFiles = 4096;

}  // namespace

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

int EndProgram(absl::string_view name, const absl::Status& status) {
  if (!status.ok()) {
    std::fputs(absl::StrCat(name, ": ", status.message(), "\n").c_str(),
               stderr);
  }
  return static_cast<int>(CodeToExitCode(status.code()));
}

}  // namespace atl
