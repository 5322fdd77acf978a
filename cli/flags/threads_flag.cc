#include "cli/flags/threads_flag.h"

#include "CLI/CLI.hpp"
#include "base/machine/limits.h"

namespace atl::cli {

void AddThreadsFlag(CLI::App& command, int& threads) {
  command.add_option("--threads", threads, "Threads to compute with; 0: all")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
}

int ChooseThreadCount(int threads) {
  return threads > 0 ? threads : ProcessorCount();
}

}  // namespace atl::cli
