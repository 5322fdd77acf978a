#include "cli/flags/threads_flag.h"

#include <algorithm>
#include <thread>

#include "CLI/CLI.hpp"

namespace atl::cli {

void AddThreadsFlag(CLI::App& command, int& threads) {
  command.add_option("--threads", threads, "Threads to compute with; 0: all")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
}

int ChooseThreadCount(int threads) {
  if (threads > 0) return threads;
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace atl::cli
