// The calls that wait for the event loop, by rank; of each rank one of each run
// in turn. The calls of one rank and run stay in their order.
//
// Pure. Thread-compatible.

#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "coordinator/service/waiting_calls.h"

namespace atl::coordinator {

// `Call` has an `origin`.
template <typename Call>
class CallQueue {
 public:
  void Push(Call call) {
    Rank& rank = ranks_[static_cast<size_t>(call.origin.rank)];
    std::deque<Call>& calls = rank.runs[call.origin.run_id];
    if (calls.empty()) rank.turns.push_back(call.origin.run_id);
    calls.push_back(std::move(call));
    ++size_;
  }

  // Requires: the rank has calls.
  Call Pop(CallRank of) {
    Rank& rank = ranks_[static_cast<size_t>(of)];
    const auto run = rank.runs.find(rank.turns.front());
    Call call = std::move(run->second.front());
    run->second.pop_front();
    if (run->second.empty()) {
      rank.runs.erase(run);
    } else {
      rank.turns.push_back(rank.turns.front());
    }
    rank.turns.pop_front();
    --size_;
    return call;
  }

  bool empty() const { return size_ == 0; }
  bool empty(CallRank of) const {
    return ranks_[static_cast<size_t>(of)].turns.empty();
  }

 private:
  struct Rank {
    absl::flat_hash_map<std::string, std::deque<Call>> runs;  // None is empty.
    std::deque<std::string> turns;  // Each run of `runs`; the next is first.
  };

  std::array<Rank, kCallRankCount> ranks_;
  size_t size_ = 0;
};

}  // namespace atl::coordinator
