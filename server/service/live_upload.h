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
#include "base/rpc/chunk_codec.h"
#include "base/sync/mutex.h"
#include "server/live_merge/live_merger.h"
#include "server/live_merge/live_rounds.h"
#include "server/live_merge/receive_budget.h"
#include "server/service/bidi_stream.h"
#include "server/shard/shard.h"
#include "server/store/contribution.h"
#include "server/waiters/push_waiters.h"
#include "server/waiters/stream_progress.h"

namespace atl::server {

class LiveUpload {
 public:
  // `bound`: the contribution that the stream's header was bound to. `gate`:
  // the gate of the stream, which forwards its PushWaiter events to this
  // upload. `shard` and `stream` outlive it.
  LiveUpload(Shard& shard, BidiStream& stream,
             std::shared_ptr<Contribution> bound,
             std::shared_ptr<ReceiveBudget> budget,
             std::shared_ptr<WaiterGate> gate, StreamProgress& progress)
      : shard_(shard),
        stream_(stream),
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
  // True if reading was paused and can resume: the caller must call Resume.
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

  Shard& shard_;
  BidiStream& stream_;
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
