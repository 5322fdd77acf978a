// The exchange's end of atoll/v1/trainer.proto: listens for a trainer, shares
// the parameters with it, asks, and gets answers.
//
// A trainer may go and another one come at any time. Its loss is UNAVAILABLE
// with the reason ISLAND_PROCESS_LOST: the island's attempt ends, and the next
// one connects anew. Memory of the parameters outlives both.
//
// Thread-compatible; Interrupt(), Notify(), silence() and lost() are
// thread-safe.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "atoll/v1/run.pb.h"
#include "atoll/v1/trainer.pb.h"
#include "base/layout/layout.h"
#include "base/net/packet_socket.h"
#include "base/sync/mutex.h"

namespace atl::worker {

inline constexpr int32_t kTrainerProtocolVersion = 1;

// f32 memory that another process can map.
class SharedRegion {
 public:
  // RESOURCE_EXHAUSTED: not enough memory.
  static absl::StatusOr<SharedRegion> Create(int64_t element_count);
  SharedRegion(SharedRegion&& other) noexcept;
  SharedRegion& operator=(SharedRegion&& other) = delete;
  ~SharedRegion();

  int fd() const { return fd_.get(); }
  absl::Span<float> values() const { return values_; }

 private:
  SharedRegion(UniqueFd fd, absl::Span<float> values)
      : fd_(std::move(fd)), values_(values) {}

  UniqueFd fd_;
  absl::Span<float> values_;
};

class TrainerHost {
 public:
  // Listens at `path`. Errors as net::PacketListener::Listen.
  static absl::StatusOr<std::unique_ptr<TrainerHost>> Start(
      const std::string& path);

  // Returns once a trainer is connected that knows the run: the one that is, or
  // the next. A trainer of another version, or one that breaks the protocol, is
  // told why and let go. CANCELLED: `stop` was requested. DEADLINE_EXCEEDED: no
  // trainer came before `give_up`. UNAVAILABLE: the trainer is gone that `join`
  // was for. Others: that trainer is refused, or refuses the run.
  //
  // `join` fills in the place of a trainer that says `join` before its hello.
  // Requires: `layout` is of `tensors`.
  using Join = std::function<absl::Status(v1::TrainerJoin& place)>;
  absl::Status Connect(const v1::TrainerHello& hello, const v1::Layout& tensors,
                       const RunLayout& layout, const Join& join,
                       std::stop_token stop,
                       absl::Time give_up = absl::InfiniteFuture());

  // The run of the regions; empty: none.
  const std::string& run_uid() const { return run_uid_; }
  // The region of `fragment`: the fragment's flat order. Requires: Connect().
  absl::Span<float> region(int32_t fragment) const {
    return regions_[fragment].values();
  }

  // The fingerprint in the trainer's hello. Requires: Connect().
  const std::string& data_fingerprint() const {
    return said_.data_fingerprint();
  }
  // The unit that the trainer counts; UNSPECIFIED: any. Requires: Connect().
  v1::WeightUnit weight_unit() const { return weight_unit_; }

  // Sends `notice` with the next `train` or `end`. Keeps the newest sixteen.
  // Thread-safe.
  void Notify(const std::string& notice);
  // The digest of what is frozen in the trainer's hello.
  const std::string& frozen_digest() const { return said_.frozen_digest(); }

  // The trainer's hello. After the first call it tells of no state that the
  // trainer has kept. Requires: Connect().
  v1::TrainerHello TakeStandings();

  // Sends `request` and returns the answer, which is of the same kind.
  //
  // UNAVAILABLE: the trainer is gone, says so, or breaks the protocol; it is
  // disconnected then. CANCELLED: Interrupt(at_once). Others: the trainer's
  // error.
  absl::StatusOr<v1::TrainerMessage> Ask(v1::TrainerMessage request);

  // Ends a running Ask() of a `train` early, or the next one.
  void Interrupt(bool at_once);

  // Tells the trainer that the island has ended, and disconnects it. `version`:
  // as in TrainerEnd.
  void End(const absl::Status& status, int64_t version = 0);

  // Time that Ask() has waited without a word of the trainer; 0 outside of it.
  absl::Duration silence() const;

  // Not OK between the loss of a trainer and the next Connect().
  absl::Status lost() const;

 private:
  TrainerHost(std::unique_ptr<net::PacketListener> listener, UniqueFd waker)
      : listener_(std::move(listener)), waker_(std::move(waker)) {}

  absl::Status MakeRegions(const v1::TrainerHello& hello,
                           const RunLayout& layout);
  absl::Status Accept(std::stop_token stop, absl::Time give_up);
  // The handshake with a new trainer. `has_place`: set once `join` is answered.
  absl::Status Greet(const v1::TrainerHello& hello, const v1::Layout& tensors,
                     const RunLayout& layout, const Join& join,
                     std::stop_token stop, bool& has_place);
  // Answers `join`, and returns the hello that follows it, however late.
  absl::StatusOr<v1::TrainerMessage> GivePlace(
      const v1::TrainerHello& hello, const v1::TrainerMessage& asked,
      const Join& join, std::stop_token stop, bool& has_place);
  absl::Status SendLayout(int32_t fragment, const v1::Layout& tensors,
                          const RunLayout& layout);
  absl::Status Send(const v1::TrainerMessage& message, int fd = -1);
  std::deque<std::string> TakeNotices();
  // The next message. `is_train`: Interrupt() matters.
  absl::StatusOr<v1::TrainerMessage> Receive(absl::Duration timeout,
                                             bool is_train);
  absl::Status Lose(const absl::Status& why);

  const std::unique_ptr<net::PacketListener> listener_;
  const UniqueFd waker_;
  net::PacketSocket socket_;
  std::string run_uid_;
  std::vector<SharedRegion> regions_;
  uint64_t seq_ = 0;
  v1::WeightUnit weight_unit_ = v1::WEIGHT_UNIT_TOKENS;
  v1::TrainerHello said_;  // The trainer's hello.

  mutable Mutex mutex_;
  std::deque<std::string> notices_ ABSL_GUARDED_BY(mutex_);
  absl::Status lost_ ABSL_GUARDED_BY(mutex_);
  bool interrupt_ ABSL_GUARDED_BY(mutex_) = false;
  bool at_once_ ABSL_GUARDED_BY(mutex_) = false;
  bool asking_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time heard_ ABSL_GUARDED_BY(mutex_);  // While `asking_`.
};

}  // namespace atl::worker
