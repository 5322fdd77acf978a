// Runs a function on every rank of a world, one thread for each.

#pragma once

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "worker/collective/collective.h"

namespace atl::collective {

// Calls f(rank, ranks[rank]) for each rank, on a thread of its own, and waits
// for all. A Collective outlives the call, unless f resets its pointer.
template <typename F>
void RunRanks(std::vector<std::unique_ptr<Collective>>& ranks, const F& f) {
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    threads.emplace_back(
        [&f, &ranks, rank] { f(static_cast<int>(rank), ranks[rank]); });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace atl::collective
