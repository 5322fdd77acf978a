// How much may wait for the event loop: calls and their bytes, of one
// certificate, of one rank for one run, of all islands, of all readers, and of
// all together. So callers that flood take only their part of the queue:
// readers keep out no island of their run, and islands no operator.
//
// Pure. Thread-compatible.

#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <iterator>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"

namespace atl::coordinator {

// Calls of a lower rank are decided first. In plaintext, where callers name
// themselves, all calls have the operators' rank.
enum class CallRank { kServer = 0, kIsland = 1, kOperator = 2, kReader = 3 };
inline constexpr CallRank kCallRanks[] = {
    CallRank::kServer, CallRank::kIsland, CallRank::kOperator,
    CallRank::kReader};
inline constexpr size_t kCallRankCount = std::size(kCallRanks);

// Where a call comes from.
struct CallOrigin {
  // "island:attic", one certificate; empty in plaintext and for our own events:
  // no bound of one caller.
  std::string caller;
  // The run that it names, or the run_uid that it was enrolled for; empty: none.
  std::string run_id;
  size_t bytes = 0;    // The size of its request.
  // True once its caller no longer waits for the answer. Empty: never. Called
  // on any thread, before the call is answered.
  std::function<bool()> is_gone;
  bool gone() const { return is_gone && is_gone(); }
  CallRank rank = CallRank::kOperator;  // Also of our own events.
};

class WaitingCalls {
 public:
  struct Bound {
    size_t call_count = 0;
    size_t bytes = 0;
  };
  struct Bounds {
    Bound all = {8192, size_t{256} << 20};
    // Servers and operators still get in.
    Bound islands = {4608, size_t{144} << 20};
    Bound readers = {1536, size_t{48} << 20};
    // One rank has this: after a stall each island may have two.
    Bound a_run = {4096, size_t{64} << 20};
    Bound a_run_readers = {1024, size_t{32} << 20};
    Bound a_caller = {64, size_t{16} << 20};
    // A caller that is a reader: those that wait share one view.
    Bound a_reader = {8, size_t{4} << 20};
  };

  explicit WaitingCalls(const Bounds& bounds) : bounds_(bounds) {}

  // Counts the call until its Release. A call that is larger than a bound is
  // admitted while nothing else counts towards that bound.
  //
  // RESOURCE_EXHAUSTED, QUEUE_FULL: a bound is reached; nothing is counted.
  absl::Status Admit(const CallOrigin& origin);
  // An admitted call was answered.
  void Release(const CallOrigin& origin);

 private:
  template <typename Key>
  using Uses = absl::flat_hash_map<Key, Bound>;
  using RunRank = std::pair<std::string, CallRank>;

  const Bounds bounds_;
  Bound all_;
  std::array<Bound, kCallRankCount> ranks_;
  Uses<RunRank> runs_;         // None is empty.
  Uses<std::string> callers_;  // None is empty.
};

}  // namespace atl::coordinator
