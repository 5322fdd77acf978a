// One stream's part in a live merge: it asks for the blocks of its contribution
// when the round merges them, reads only while it has memory budget, and hands
// each chunk to the round's LiveMerger (server/live_merge/DESIGN.md, A round).
//
// Thread-safe: the stream makes its calls one at a time; the On... events come
// from any thread.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/rpc/chunk_codec.h"
#include "base/sync/mutex.h"
#include "server/live_merge/live_merger.h"
#include "server/live_merge/receive_budget.h"
#include "server/store/contribution.h"
#include "server/waiters/push_waiters.h"
#include "server/waiters/stream_progress.h"

namespace atl::server {

// The contribution and live merger that take the blocks of a stream.
struct LivePlace {
  std::shared_ptr<Contribution> contribution;
  std::shared_ptr<LiveMerger> live_merger;  // Null: the set is not known yet.
  int index = 0;                            // In the live merger's set.
};

// The shard, as an upload needs it. Thread-safe; outlives all uploads.
class LiveMergeHost {
 public:
  virtual ~LiveMergeHost() = default;
  // PushWaiter::OnLiveMerge follows once the set is known.
  //
  // ABORTED: the contribution or its round is decided.
  virtual absl::StatusOr<LivePlace> FindLiveMerge(
      const v1::ContributionInfo& info) const = 0;
  // True if a COMMIT or the plan has decided it: its streams are settled.
  virtual bool IsDecided(const ContributionKey& key) const = 0;
  // Finishes a contribution on another thread, then settles its streams.
  // Requires: all its blocks are present, and the caller must finish it.
  virtual void FinishLater(std::shared_ptr<Contribution> contribution) = 0;
};

// The stream of an upload. Thread-safe; outlives its upload.
class UploadSender {
 public:
  virtual ~UploadSender() = default;
  virtual void AskFor(const std::vector<IndexRange>& missing) = 0;
  // Stops reading messages until ReadOn.
  virtual void StopReading() = 0;
  virtual void ReadOn() = 0;
  virtual void EndWith(const absl::Status& status) = 0;
  virtual bool is_ending() const = 0;
};

class LiveUpload {
 public:
  // `bound`: the contribution that the stream's header was bound to. `gate`:
  // the gate of the stream, which forwards its PushWaiter events to this
  // upload.
  LiveUpload(LiveMergeHost& host, UploadSender& sender,
             std::shared_ptr<Contribution> bound,
             std::shared_ptr<ReceiveBudget> budget,
             std::shared_ptr<WaiterGate> gate, StreamProgress& progress)
      : host_(host),
        sender_(sender),
        bound_(std::move(bound)),
        budget_(std::move(budget)),
        gate_(std::move(gate)),
        progress_(progress) {}

  // If the set is known: asks for the missing blocks, once, as soon as there is
  // budget for the first chunk. Call it after the stream is added to
  // PushWaiters, and at each PushWaiter::OnLiveMerge.
  void Begin();
  // The PushWaiter events of these names.
  void OnRestart();
  void OnTaken();
  void OnBudget();
  // Takes checked blocks in; keeps the chunk's memory while they wait.
  //
  // INVALID_ARGUMENT: no blocks were asked for, or too many cells are
  // incomplete. RESOURCE_EXHAUSTED: the budget is exhausted; the blocks can be
  // sent again.
  absl::Status Offer(rpc::ReceivedChunk& chunk, IndexRange blocks,
                     std::vector<BlockFact> facts);
  // The stream sends no further blocks.
  void Leave();
  // No stream brings the rest: parts of cells stay buffered until memory is
  // needed.
  void Abandon();
  // The contribution that takes the blocks: the set's, or the bound one before.
  std::shared_ptr<Contribution> contribution() const;

 private:
  struct Offered;

  void AskForMissing();
  void OfferCells(const LivePlace& place, const std::vector<int64_t>& cells,
                  std::shared_ptr<Offered> offered, bool at_once);
  // True if the next message may be read: budget is reserved for it, or it
  // needs none. Otherwise takes a ticket, and OnRoom follows.
  bool HasRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndTicket() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Joins the live merger if HasRoom.
  bool Join() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // True if reading was paused and can resume: the caller must call ReadOn.
  bool ReadsOn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // After a chunk: pauses reading while too many chunks wait to be merged, or
  // there is no budget for the next one.
  void ReadOnOrPause(const LivePlace& place);
  // Reserves budget for bytes that wait, from this stream's reservation first.
  // Empty if the budget is exhausted, unless the round cannot progress without
  // them. `begins_cell`: they wait for the rest of their cell, so few may
  // exceed the budget.
  std::optional<ReceiveBudget::Hold> TakeBudget(const LivePlace& place,
                                                int64_t bytes,
                                                bool begins_cell);

  LiveMergeHost& host_;
  UploadSender& sender_;
  const std::shared_ptr<Contribution> bound_;
  const std::shared_ptr<ReceiveBudget> budget_;
  const std::shared_ptr<WaiterGate> gate_;
  StreamProgress& progress_;

  mutable Mutex mutex_;
  LivePlace place_ ABSL_GUARDED_BY(mutex_);
  // The stream waits at its header: no block is asked for yet.
  bool at_header_ ABSL_GUARDED_BY(mutex_) = false;
  // Budget for the next message, or the ticket that waits for it.
  std::optional<ReceiveBudget::Hold> read_budget_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<ReceiveBudget::Ticket> ticket_ ABSL_GUARDED_BY(mutex_);
  // First block of the cell that this stream last brought a part of.
  std::optional<int64_t> part_cell_ ABSL_GUARDED_BY(mutex_);
  // Chunks that wait to be merged, and whether reading is paused.
  int offered_count_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_paused_ ABSL_GUARDED_BY(mutex_) = false;
  // State that the live merger was told: the stream has joined; it is crowded.
  bool joined_ ABSL_GUARDED_BY(mutex_) = false;
  bool crowded_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace atl::server
