// Measures the phases of an island's synchronizations
// (proto/atoll/v1/island_service.proto, SyncPhases). Pure. Thread-compatible.
//
//   train    from the first inner step after the fragment's previous
//            contribution to the end of the last one
//   encode   from the contribution's action to its durable local checkpoint
//   push     from the first push to the end of the last one
//   wait     from then until the outcome of every fragment is known
//   apply    from the first pull of a newer version to the last one; in a
//            streaming run to the last apply
//
// Each phase is one interval. In a run in rounds they follow each other. In a
// streaming run they overlap with those of other synchronizations, and apply
// includes the steps before an answer is due. A phase that did not happen, or
// that another process began, is absent.

#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "atoll/v1/island_service.pb.h"
#include "worker/core/action.h"

namespace atl::worker {

class PhaseMeter {
 public:
  // Synchronizations that are measured at once; the oldest is dropped.
  static constexpr size_t kOpenCountMax = 64;

  // In a streaming run an apply is an action of its own; otherwise a pull
  // applies.
  void set_streaming(bool streaming) { streaming_ = streaming; }

  // Local parameters = anchors: ends what came before.
  void Began();
  void Stepped(absl::Time begin, absl::Time end);

  // A retry counts from the first attempt.
  void EncodeBegan(int64_t seq,
                   const std::vector<AnchoredFragment>& contributions,
                   absl::Time now);
  void EncodeEnded(int64_t seq, absl::Time now);

  // A push of `at`; PushEnded() only if the shards have all of it.
  void PushBegan(int64_t seq, const AnchoredFragment& at, absl::Time now);
  void PushEnded(int64_t seq, int32_t fragment, absl::Time now);

  // Call after any news. A push that an outcome overtakes ends with it.
  using IsDecided =
      absl::FunctionRef<bool(const AnchoredFragment& at, int64_t seq)>;
  void Settle(IsDecided is_decided, absl::Time now);

  void Pulled(int32_t fragment, int64_t version, absl::Time begin,
              absl::Time end);
  void Applied(int32_t fragment, int64_t version, absl::Time end);

  // The island ends: nothing more of any synchronization is measured.
  void EndAll();

  // Takes the synchronizations that ended since the last call, each once, with
  // phases in the order of their begin.
  std::vector<v1::SyncPhases> TakeEnded();

 private:
  struct Interval {
    absl::Time begin = absl::InfiniteFuture();
    absl::Time end = absl::InfinitePast();
    bool has_begun() const { return begin != absl::InfiniteFuture(); }
    bool has_ended() const { return end != absl::InfinitePast(); }
  };
  struct Part {
    AnchoredFragment at;
    bool pushed = false;
    bool applied = false;
  };
  struct Sync {
    std::vector<Part> parts;
    std::array<Interval, v1::Phase_ARRAYSIZE> phases;
    bool decided = false;
  };
  using Syncs = std::map<int64_t, Sync>;  // By seq.

  Sync& Open(int64_t seq);
  void End(Syncs::iterator sync);
  // Ends those that are decided and applied.
  void EndApplied();

  bool streaming_ = false;
  absl::Time last_step_end_ = absl::InfinitePast();
  // Begin of the first step since Began(), and since each fragment's previous
  // contribution. Infinite future: no step yet.
  absl::Time first_step_begin_ = absl::InfiniteFuture();
  std::map<int32_t, absl::Time> train_begin_;
  Syncs open_;
  std::vector<v1::SyncPhases> ended_;
};

}  // namespace atl::worker
