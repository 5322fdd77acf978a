#include "server/service/live_upload.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/failpoint/test_point.h"
#include "base/status/refusal.h"
#include "server/live_merge/cell_pieces.h"

namespace atl::server {
namespace {

using Code = absl::StatusCode;

// Chunks of a stream that may wait to be merged: enough that islands need not
// send in step, chunk by chunk.
constexpr int kOfferedChunksMax = 4;

// A chunk that waits to be merged, in gRPC's slices. If too many chunks hold
// slices it is copied, so that gRPC gets its memory back.
class HeldChunk {
 public:
  HeldChunk(rpc::ReceivedChunk chunk, ReceiveBudget::Hold hold,
            std::shared_ptr<ReceiveBudget> held)
      : chunk_(std::move(chunk)),
        hold_(std::move(hold)),
        slice_bytes_(static_cast<int64_t>(chunk_.payload_bytes)),
        held_(std::move(held)) {
    if (held_->AddSliceBytes(slice_bytes_)) return;
    slice_bytes_ = 0;
    copy_ = std::make_unique_for_overwrite<char[]>(chunk_.payload_bytes);
    chunk_.CopyPayload(copy_.get());
    chunk_.payload = {{copy_.get(), chunk_.payload_bytes}};
    chunk_.slices.clear();
  }
  ~HeldChunk() { held_->RemoveSliceBytes(slice_bytes_); }
  HeldChunk(const HeldChunk&) = delete;
  HeldChunk& operator=(const HeldChunk&) = delete;

  const rpc::ReceivedChunk& chunk() const { return chunk_; }

 private:
  rpc::ReceivedChunk chunk_;
  std::unique_ptr<char[]> copy_;
  const ReceiveBudget::Hold hold_;
  int64_t slice_bytes_;
  const std::shared_ptr<ReceiveBudget> held_;
};

}  // namespace

void LiveUpload::Begin() {
  absl::StatusOr<LivePlace> found = shard_.FindLiveMerge(bound_->info());
  if (!found.ok()) {
    stream_.FinishWith(found.status());
    return;
  }
  // OnLiveMerge comes when the set is known.
  if (found->live_merger == nullptr) return;
  TestPoint("a set is found");
  bool asks = false;
  bool waits = false;
  std::shared_ptr<LiveMerger> live_merger;
  {
    MutexLock lock(&mutex_);
    if (place_.live_merger == nullptr) {
      place_ = *std::move(found);
      asks = Join();
      waits = at_header_ = !asks;
    }
    live_merger = place_.live_merger;
  }
  // The live merger may have been given up before this stream joined it: then
  // OnRestart came too early, and no one would merge its blocks. If it is given
  // up from here on, OnRestart ends the stream.
  found = shard_.FindLiveMerge(bound_->info());
  if (!found.ok()) {
    // Decided after the stream was listed: the decision settles it.
    if (!shard_.IsDecided(bound_->key())) stream_.FinishWith(found.status());
    return;
  }
  if (found->live_merger != live_merger) {
    OnRestart();
    return;
  }
  if (asks) AskForMissing();
  if (waits) TestPoint("an upload waits for room");
}

void LiveUpload::AskForMissing() {
  const std::vector<IndexRange> missing = contribution()->Missing();
  // If no block is missing, the stream waits for the commit.
  if (missing.empty()) {
    MutexLock lock(&mutex_);
    read_budget_.reset();
    return;
  }
  progress_.waits_for_us = false;
  stream_.AskFor(missing);
}

bool LiveUpload::Join() {
  if (!HasRoom()) return false;
  joined_ = true;
  place_.live_merger->Join(place_.index);
  return true;
}

bool LiveUpload::HasRoom() {
  const Contribution& contribution = *place_.contribution;
  if (contribution.HasAll() || place_.live_merger->next() >= place_.index) {
    EndTicket();
    if (contribution.HasAll()) read_budget_.reset();
    return true;
  }
  // For a chunk of whole cells, or for the cell that a part begins.
  const int64_t bytes =
      std::min<int64_t>(codec::kChunkPayloadBytesMax,
                        bound_->encoded().ByteCount(bound_->range().blocks()));
  if (read_budget_.has_value() && read_budget_->bytes() < bytes) {
    read_budget_.reset();
  }
  // The rest of an incomplete cell has its budget: waiting would hold that
  // budget longer.
  if (read_budget_.has_value() ||
      (part_cell_.has_value() &&
       place_.live_merger->pieces(place_.index).IsOpen(*part_cell_))) {
    EndTicket();
    return true;
  }
  if (ticket_ == nullptr) {
    ticket_ = budget_->Wait(
        {&contribution, bytes, place_.live_merger.get(), place_.index}, gate_);
    // LetInNext or LetInHolder may have run before this ticket existed.
    if (contribution.HasAll() || place_.live_merger->next() >= place_.index) {
      ticket_.reset();
      return true;
    }
  }
  // Asked once only: the ticket may be let in at any moment; OnRoom follows.
  if (!ticket_->is_in()) {
    progress_.budget_turn = ticket_->number();
    return false;
  }
  read_budget_ = ticket_->TakeBudget();
  EndTicket();
  return true;
}

void LiveUpload::EndTicket() {
  ticket_.reset();
  progress_.budget_turn = 0;
}

void LiveUpload::OnRestart() {
  {
    MutexLock lock(&mutex_);
    if (place_.live_merger == nullptr) return;
  }
  stream_.FinishWith(
      Refuse(Code::kUnavailable, "SET_CHANGED",
             "the set of contributions to merge has changed: push "
             "again"));
}

void LiveUpload::OnTaken() {
  {
    MutexLock lock(&mutex_);
    --offered_count_;
    if (!ReadsOn()) return;
  }
  progress_.waits_for_us = false;
  stream_.Resume();
}

void LiveUpload::OnBudget() {
  bool asks = false;
  {
    MutexLock lock(&mutex_);
    if (ticket_ == nullptr) return;  // It has ended or was used already.
    if (stream_.finishing()) {
      EndTicket();
      return;
    }
    if (at_header_) {
      if (!Join()) return;
      at_header_ = false;
      asks = true;
    } else if (!ReadsOn()) {
      return;
    }
  }
  if (asks) {
    AskForMissing();
    return;
  }
  progress_.waits_for_us = false;
  stream_.Resume();
}

bool LiveUpload::ReadsOn() {
  if (!is_paused_ || offered_count_ >= kOfferedChunksMax || !HasRoom()) {
    return false;
  }
  is_paused_ = false;
  if (crowded_) place_.live_merger->Crowd(place_.index, -1);
  crowded_ = false;
  return true;
}

void LiveUpload::ReadOnOrPause(const LivePlace& place) {
  bool crowded = false;
  bool waits = false;
  {
    MutexLock lock(&mutex_);
    const bool is_full = offered_count_ >= kOfferedChunksMax;
    if (is_full) read_budget_.reset();  // No block is read that needs it.
    waits = !is_full && !HasRoom();
    if (is_full || waits) {
      is_paused_ = true;
      progress_.waits_for_us = true;
      stream_.Pause();
      if (joined_ && !crowded_) crowded = crowded_ = true;
    }
  }
  if (crowded) place.live_merger->Crowd(place.index, 1);
  if (waits) TestPoint("an upload is not read for want of room");
}

void LiveUpload::Leave() {
  LivePlace place;
  bool crowded = false;
  std::optional<ReceiveBudget::Hold> hold;
  std::unique_ptr<ReceiveBudget::Ticket> ticket;
  {
    MutexLock lock(&mutex_);
    at_header_ = false;
    hold.swap(read_budget_);
    ticket.swap(ticket_);
    progress_.budget_turn = 0;
    if (!joined_) return;
    joined_ = false;
    std::swap(crowded, crowded_);
    place = place_;
  }
  place.live_merger->Leave(place.index, crowded);
}

std::shared_ptr<Contribution> LiveUpload::contribution() const {
  MutexLock lock(&mutex_);
  return place_.contribution != nullptr ? place_.contribution : bound_;
}

// Cells that wait to be merged, and their memory, which is freed when the last
// of them is merged.
struct LiveUpload::Offered {
  Offered(IndexRange blocks, const rpc::ReceivedChunk& chunk,
          std::vector<BlockFact> facts, std::shared_ptr<const void> memory)
      : blocks(blocks),
        chunk(chunk),
        facts(std::move(facts)),
        memory(std::move(memory)) {}

  const IndexRange blocks;
  const rpc::ReceivedChunk& chunk;  // Its payload is their encoding.
  const std::vector<BlockFact> facts;
  std::shared_ptr<const void> memory;  // Owns the memory of `chunk`.
  std::atomic<int64_t> left_count{0};  // Cells.
};

absl::Status LiveUpload::Offer(rpc::ReceivedChunk& chunk, IndexRange blocks,
                               std::vector<BlockFact> facts) {
  LivePlace place;
  {
    MutexLock lock(&mutex_);
    if (!at_header_) place = place_;
  }
  if (place.live_merger == nullptr) {
    return Refuse(Code::kInvalidArgument, "WRONG_ORDER",
                  "a chunk came before the header was answered");
  }
  LiveMerger& live_merger = *place.live_merger;
  // Parts of cells are copied, and their cells have their own budget.
  std::optional<ReceiveBudget::Hold> hold;
  if (live_merger.HasWholeCell(blocks)) {
    hold = TakeBudget(place, static_cast<int64_t>(chunk.payload_bytes),
                      /*begins_cell=*/false);
    if (!hold.has_value()) return NoBudgetToWait();
  }
  // Cells and parts of cells that no other stream has brought.
  CellPieces& pieces = live_merger.pieces(place.index);
  absl::Status status;
  std::vector<int64_t> whole;
  std::vector<std::pair<IndexRange, IndexRange>> parts;  // Cell, its blocks.
  std::vector<std::shared_ptr<CellPieces::Whole>> put_together;
  const IndexRange cells = live_merger.ToCells(blocks);
  for (int64_t cell = cells.begin; cell < cells.end; ++cell) {
    const IndexRange all = live_merger.CellBlocks(cell);
    const IndexRange part = {std::max(all.begin, blocks.begin),
                             std::min(all.end, blocks.end)};
    if (part.size() < all.size() && !pieces.IsOpen(all.begin) &&
        pieces.open_count() >= CellPieces::kOpenMax) {
      return Refuse(
          Code::kInvalidArgument, "CHUNK_DOES_NOT_FIT",
          absl::StrCat("chunk of blocks [", blocks.begin, ", ", blocks.end,
                       "): ", CellPieces::kOpenMax,
                       " cells are incomplete already; at durability `island` "
                       "cut chunks at multiples of ",
                       kCellBlocks,
                       " blocks, counted from the shard's first block"));
    }
    const std::vector<IndexRange> claimed = place.contribution->Claim(part);
    if (claimed.size() == 1 && claimed.front() == all) {
      whole.push_back(cell);
    } else {
      for (const IndexRange piece : claimed) parts.push_back({all, piece});
    }
  }
  for (const auto& [all, piece] : parts) {
    std::optional<ReceiveBudget::Hold> cell_budget;
    if (!pieces.IsOpen(all.begin)) {
      const int64_t bytes = bound_->encoded().ByteCount(all);
      if (whole.empty() && hold.has_value() && hold->bytes() >= bytes) {
        cell_budget = hold->Split(bytes);  // The chunk itself does not wait.
      } else {
        cell_budget = TakeBudget(place, bytes, /*begins_cell=*/true);
      }
      if (!cell_budget.has_value()) {
        place.contribution->Settle(piece, {});
        status = NoBudgetToWait();
        continue;
      }
    }
    rpc::PayloadReader payload(chunk);
    payload.Skip(static_cast<size_t>(
        bound_->encoded().ByteCount({blocks.begin, piece.begin})));
    absl::StatusOr<std::shared_ptr<CellPieces::Whole>> complete =
        pieces.Add(all, piece, payload,
                   absl::MakeConstSpan(facts).subspan(
                       piece.begin - blocks.begin, piece.size()),
                   std::move(cell_budget));
    if (!complete.ok()) {  // It was open, and was given up since.
      place.contribution->Settle(piece, {});
      status = NoBudgetToWait();
    } else if (*complete != nullptr) {
      put_together.push_back(*std::move(complete));
    } else {
      MutexLock lock(&mutex_);
      part_cell_ = all.begin;
    }
  }
  // True: other streams wait for memory, so cells are folded immediately.
  const bool scarce = budget_->IsScarce();
  if (!whole.empty()) {
    const bool at_once = scarce || hold->is_over_budget();
    const auto held = std::make_shared<HeldChunk>(std::move(chunk),
                                                  *std::move(hold), budget_);
    OfferCells(place, whole,
               std::make_shared<Offered>(blocks, held->chunk(),
                                         std::move(facts), held),
               at_once);
  }
  for (const std::shared_ptr<CellPieces::Whole>& one : put_together) {
    OfferCells(place, {live_merger.ToCells(one->blocks).begin},
               std::make_shared<Offered>(one->blocks, one->chunk,
                                         std::move(one->facts), one),
               scarce || one->hold->is_over_budget());
  }
  // A ticket that began to wait meanwhile may have folded before this offer.
  if (!scarce && budget_->IsScarce()) live_merger.FoldWaiting();
  // After the offer is counted: a new ticket calls next() once it is listed.
  budget_->LetInNext(&live_merger, live_merger.next());
  if (place.contribution->HasAll()) {
    budget_->LetInHolder(place.contribution.get());
  }
  if (status.ok()) ReadOnOrPause(place);
  return status;
}

std::optional<ReceiveBudget::Hold> LiveUpload::TakeBudget(
    const LivePlace& place, int64_t bytes, bool begins_cell) {
  {
    MutexLock lock(&mutex_);
    if (read_budget_.has_value() && read_budget_->bytes() >= bytes) {
      return read_budget_->Receive(bytes);
    }
  }
  const void* const holder = place.contribution.get();
  std::optional<ReceiveBudget::Hold> hold = budget_->Take(holder, bytes);
  if (hold.has_value()) return hold;
  // Otherwise all streams could wait for each other's memory.
  const bool may_be_over_budget =
      !begins_cell ||
      budget_->over_budget_bytes() < CellPieces::kOverBudgetBytesMax ||
      !place.live_merger->pieces(place.index).HoldsBeyond();
  if (may_be_over_budget && place.live_merger->next() >= place.index) {
    hold.emplace(budget_->TakeOverBudget(holder, bytes));
  } else {
    place.live_merger->FoldWaiting();
  }
  return hold;
}

void LiveUpload::OfferCells(const LivePlace& place,
                            const std::vector<int64_t>& cells,
                            std::shared_ptr<Offered> offered, bool at_once) {
  offered->left_count = static_cast<int64_t>(cells.size());
  {
    MutexLock lock(&mutex_);
    ++offered_count_;
  }
  const EncodedRange& encoded = bound_->encoded();
  for (const int64_t cell : cells) {
    const IndexRange part = place.live_merger->CellBlocks(cell);
    rpc::PayloadReader payload(offered->chunk);
    payload.Skip(static_cast<size_t>(
        encoded.ByteCount({offered->blocks.begin, part.begin})));
    place.live_merger->Offer(
        place.index, cell, payload,
        [offered, part, shard = &shard_, gate = gate_,
         contribution = place.contribution] {
          const bool whole = contribution->Settle(
              part,
              absl::MakeConstSpan(offered->facts)
                  .subspan(part.begin - offered->blocks.begin, part.size()));
          const bool last = --offered->left_count == 0;
          if (last) offered->memory.reset();
          if (whole) shard->FinishLater(contribution);
          if (last) gate->Call(&PushWaiter::OnTaken);
        },
        at_once);
  }
}

void LiveUpload::Abandon() {
  LivePlace place;
  {
    MutexLock lock(&mutex_);
    place = place_;
  }
  if (place.live_merger == nullptr) return;
  place.live_merger->pieces(place.index).Abandon();
  budget_->Abandon(place.contribution.get(),
                   [weak = std::weak_ptr<LiveMerger>(place.live_merger),
                    index = place.index, contribution = place.contribution] {
                     const std::shared_ptr<LiveMerger> live_merger =
                         weak.lock();
                     if (live_merger == nullptr) return;
                     for (const IndexRange piece :
                          live_merger->pieces(index).GiveUpAbandoned()) {
                       contribution->Settle(piece, {});
                     }
                   });
}

}  // namespace atl::server
