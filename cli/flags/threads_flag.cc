#include "cli/flags/threads_flag.h"

#include "base/flags/flags.h"
#include "base/machine/limits.h"

namespace atl::cli {

void AddThreadsFlag(flags::Command& command, int& threads) {
  command.Add("--threads", threads, "Threads to compute with; 0: all")
      .Check(flags::Range(0, 256))
      .ShowDefault();
}

int ChooseThreadCount(int threads) {
  return threads > 0 ? threads : ProcessorCount();
}

}  // namespace atl::cli
