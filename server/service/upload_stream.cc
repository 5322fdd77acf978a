#include "server/service/upload_stream.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "atoll/v1/parameter_service.pb.h"
#include "base/codec/crc32c.h"
#include "base/failpoint/test_point.h"
#include "base/layout/ids.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "server/live_merge/cell_pieces.h"
#include "server/service/block_check.h"

namespace atl::server {
namespace {

using Code = absl::StatusCode;

absl::Status Misfit(absl::string_view what) {
  return Refuse(Code::kInvalidArgument, "CHUNK_DOES_NOT_FIT", what);
}

// Chunks of a stream of level ISLAND that may wait for their turn: enough that
// the islands need not move in step to the chunk.
constexpr int kOfferedChunksMax = 4;

// A chunk of level ISLAND that waits for its turn: as it was received, or, if
// too many are, copied, so that gRPC has its memory back.
class HeldChunk {
 public:
  HeldChunk(rpc::ReceivedChunk chunk, ReceiveBudget::Hold room,
            std::shared_ptr<ReceiveBudget> held)
      : chunk_(std::move(chunk)),
        room_(std::move(room)),
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
  const ReceiveBudget::Hold room_;
  int64_t slice_bytes_;
  const std::shared_ptr<ReceiveBudget> held_;
};

}  // namespace

absl::StatusOr<Shard*> UploadStream::FindShard(
    const std::string& run_id) const {
  RETURN_IF_ERROR(
      WithReasonIfNone(ValidateId("run_id", run_id), "INVALID_FIELDS"));
  Shard* shard = context_.shards.FindShard(run_id);
  if (shard == nullptr) {
    return ShardNotHere(run_id);
  }
  return shard;
}

void UploadStream::OnMessage(const grpc::ByteBuffer& message) {
  absl::Status status;
  if (contribution_ == nullptr) {
    status = TakeHeader(message);
  } else {
    // A chunk is the same field of every request.
    auto decoded = rpc::DecodeBulk<v1::PushOuterGradientRequest>(message);
    status = WithReasonIfNone(decoded.status(), "UNREADABLE_MESSAGE");
    if (status.ok()) {
      status = decoded->is_chunk
                   ? TakeChunk(decoded->chunk)
                   : Refuse(Code::kInvalidArgument, "WRONG_ORDER",
                            "after the header every message must be a chunk");
    }
  }
  if (!status.ok()) FinishWith(status);
}

absl::Status UploadStream::TakeHeader(const grpc::ByteBuffer& message) {
  ASSIGN_OR_RETURN(Opened opened, Open(message));
  if (opened.contribution == nullptr) {
    OnSettled(absl::OkStatus());
    return absl::OkStatus();
  }
  shard_ = opened.shard;
  contribution_ = std::move(opened.contribution);
  // Once it is listed others call this stream: all that they need is set. That
  // is before the state is looked at, so that no settlement is missed.
  if (contribution_->is_merged_live()) {
    // What it waits for is not its sender's doing.
    progress().waits_for_us = true;
    if (!shard_->waiters().AddBounded(contribution_->key(), gate())) {
      return RefuseForNow(
          Code::kResourceExhausted, "TOO_MANY_STREAMS",
          absl::StrCat(PushWaiters::kWaitingMax, " streams of slot ",
                       contribution_->key().slot, " and fragment ",
                       contribution_->key().fragment,
                       " wait; call again later"),
          absl::Seconds(1));
    }
    RETURN_IF_ERROR(CheckMember());
    TestPoint("an upload is listed");
    // It may wait for as long as other islands take.
    LeavePlace();
    TestPoint("an upload waits for others");
    BeginLiveMerge();
    return absl::OkStatus();
  }
  shard_->waiters().Add(contribution_->key(), gate());
  RETURN_IF_ERROR(CheckMember());
  switch (contribution_->state()) {
    case Contribution::State::kStored:
      OnSettled(absl::OkStatus());
      return absl::OkStatus();
    case Contribution::State::kRefused:
      return Refuse(
          Code::kInvalidArgument, "CONTRIBUTION_REFUSED",
          absl::StrCat(contribution_->key().ToString(), " is refused: ",
                       contribution_->refused_reason(),
                       "; give it up and pull the newest version"));
    case Contribution::State::kPartial:
      break;
  }
  // It was given up before this stream was listed: who did it has settled those
  // that were.
  if (contribution_->is_released()) {
    return Refuse(Code::kUnavailable, "GIVEN_UP",
                  absl::StrCat(contribution_->key().ToString(),
                               " was given up here meanwhile: push again"));
  }
  const std::vector<IndexRange> missing = contribution_->Missing();
  // All blocks came, and a restart or a full disk was faster than the finish.
  if (contribution_->TakeFinish()) {
    progress().waits_for_us = true;
    shard_->FinishLater(contribution_);
  } else {
    Send(*MakeAnswer(missing, false));
  }
  return absl::OkStatus();
}

absl::Status UploadStream::CheckMember() const {
  const ContributionKey& key = contribution_->key();
  return key.is_import() ? absl::OkStatus() : shard_->CheckMember(key.slot);
}

absl::Status UploadStream::CheckChunk(const rpc::ReceivedChunk& chunk) const {
  const rpc::ChunkHeader& header = chunk.header;
  const ShardRange& range = contribution_->range();
  if (header.codec != static_cast<int32_t>(contribution_->info().codec())) {
    return Misfit(absl::StrCat("chunk.codec ", header.codec,
                               " is not that of the contribution's header"));
  }
  // In this order, so that no sum overflows.
  if (header.block_count < 1 || header.first_block < range.blocks().begin ||
      header.first_block >= range.blocks().end ||
      header.block_count > range.blocks().end - header.first_block) {
    return Misfit(absl::StrCat("chunk of ", header.block_count,
                               " blocks from ", header.first_block,
                               " is not within this shard's [",
                               range.blocks().begin, ", ", range.blocks().end,
                               "); cut by the layout"));
  }
  const int64_t bytes_expected = contribution_->encoded().ByteCount(
      {header.first_block, header.first_block + header.block_count});
  if (bytes_expected > codec::kChunkPayloadBytesMax ||
      static_cast<int64_t>(chunk.payload_bytes) != bytes_expected) {
    return Misfit(absl::StrCat(
        "chunk of ", header.block_count, " blocks from ", header.first_block,
        " has ", chunk.payload_bytes, " bytes of payload; they have ",
        bytes_expected, ", and a chunk at most ",
        codec::kChunkPayloadBytesMax));
  }
  return absl::OkStatus();
}

absl::Status UploadStream::TakeChunk(rpc::ReceivedChunk& chunk) {
  const rpc::ChunkHeader& header = chunk.header;
  const ContributionKey key = {header.run_epoch, header.fragment, header.slot,
                               header.seq};
  if (!header.has_key || !(key == contribution_->key())) {
    return Refuse(Code::kInvalidArgument, "WRONG_KEY",
                  absl::StrCat("chunk.key ", key.ToString(),
                               " is not that of the stream's header; open a "
                               "stream for each contribution"));
  }
  shard_->AddReceivedBytes(static_cast<int64_t>(chunk.payload_bytes));
  progress().payload_bytes += static_cast<int64_t>(chunk.payload_bytes);
  absl::Status status = CheckChunk(chunk);
  if (status.ok()) {
    const IndexRange blocks = {header.first_block,
                               header.first_block + header.block_count};
    if (contribution_->is_merged_live()) {
      absl::StatusOr<std::vector<BlockFact>> facts =
          CheckBlocks(chunk, blocks);
      status = facts.ok() ? OfferChunk(chunk, blocks, *std::move(facts))
                          : facts.status();
    } else {
      status = LogChunk(chunk, blocks);
    }
  } else {
    RETURN_IF_ERROR(
        WithReasonIfNone(rpc::CheckCrc32c(chunk), "CHUNK_DAMAGED"));
  }
  // The checksum is right, so the chunk is what its sender meant: an error in
  // it is the whole contribution's. But once that is whole, what else comes
  // under its key is this stream's error.
  if (absl::IsInvalidArgument(status) && contribution()->TakeRefusal()) {
    shard_->RefuseWhole(*contribution_, status);
  }
  return status;
}

absl::StatusOr<std::vector<BlockFact>> UploadStream::CheckBlocks(
    const rpc::ReceivedChunk& chunk, IndexRange blocks) const {
  const EncodedRange& encoded = contribution_->encoded();
  const ShardRange& range = contribution_->range();
  rpc::PayloadReader payload(chunk);
  std::vector<BlockFact> facts(blocks.size());
  int64_t bad_block = -1;
  auto fault = codec::BlockFault::kNone;
  // Each block is checked and summed where it was received, or, if it lies in
  // several pieces, in the first-level cache; the chunk's checksum is put
  // together from theirs.
  alignas(64) char passing[codec::kBlockElements * sizeof(float)];
  uint32_t crc = rpc::ChunkCrc32c(chunk.header, {});
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    const absl::string_view block = payload.Next(
        static_cast<size_t>(encoded.ByteCount({b, b + 1})), passing);
    BlockFact& fact = facts[b - blocks.begin];
    fact.crc32c = codec::Crc32c(block);
    crc = codec::CombineCrc32c(crc, fact.crc32c, block.size());
    const CheckedBlock checked =
        CheckBlock(encoded.codec(), block, range.ElementCount({b, b + 1}));
    fact.norm_squared = checked.sum_of_squares;
    if (checked.fault != codec::BlockFault::kNone) {
      bad_block = b;
      fault = checked.fault;
    }
  }
  if (crc != chunk.header.crc32c) {
    return Refuse(Code::kDataLoss, "CHUNK_DAMAGED",
                  "a chunk's checksum does not match: send it again");
  }
  if (bad_block >= 0) {
    return Refuse(
        Code::kInvalidArgument,
        fault == codec::BlockFault::kNotFinite ? "NOT_FINITE" : "MALFORMED",
        absl::StrCat(
            "block ", bad_block, ", of tensor ",
            range.layout().BlockTensor(range.fragment(), bad_block).name, ", ",
            codec::FaultText(fault)));
  }
  return facts;
}

absl::Status UploadStream::LogChunk(const rpc::ReceivedChunk& chunk,
                                    IndexRange blocks) {
  ASSIGN_OR_RETURN(const std::vector<BlockFact> facts,
                   CheckBlocks(chunk, blocks));
  const EncodedRange& encoded = contribution_->encoded();
  bool complete = false;
  absl::Status status;
  for (const IndexRange claimed : contribution_->Claim(blocks)) {
    if (!status.ok()) {
      contribution_->Settle(claimed, {});
      continue;
    }
    // From where it was received straight to its place.
    rpc::PayloadReader payload(chunk);
    payload.Skip(encoded.ByteCount({blocks.begin, claimed.begin}));
    std::vector<absl::string_view> pieces;
    payload.Take(encoded.ByteCount(claimed), &pieces);
    const absl::StatusOr<bool> last = shard_->WriteBlocks(
        *contribution_, claimed, pieces,
        absl::MakeConstSpan(facts).subspan(claimed.begin - blocks.begin,
                                           claimed.size()));
    status = last.status();
    complete |= last.ok() && *last;
  }
  RETURN_IF_ERROR(status);
  if (complete) {
    progress().waits_for_us = true;
    shard_->FinishLater(contribution_);
  }
  return absl::OkStatus();
}

// --- Level ISLAND -----------------------------------------------------------

void UploadStream::BeginLiveMerge() {
  absl::StatusOr<Shard::LiveMerge> found =
      shard_->FindLiveMerge(contribution_->info());
  if (!found.ok()) {
    FinishWith(found.status());
    return;
  }
  // OnLiveMerge comes when it is its turn.
  if (found->live_merger == nullptr) return;
  TestPoint("a set is found");
  bool asks = false;
  bool waits = false;
  std::shared_ptr<LiveMerger> live_merger;
  {
    MutexLock lock(&live_merge_mutex_);
    if (live_merge_.live_merger == nullptr) {
      live_merge_ = *std::move(found);
      asks = JoinLiveMerge();
      waits = at_header_ = !asks;
    }
    live_merger = live_merge_.live_merger;
  }
  // What was found may have been given up before this stream had joined it:
  // then OnRestart came too early to find anything, and nobody merges what it
  // would bring. What is given up from here on, OnRestart ends.
  found = shard_->FindLiveMerge(contribution_->info());
  if (!found.ok()) {
    // Decided since it was listed: who decided it settles it.
    if (!shard_->IsDecided(contribution_->key())) FinishWith(found.status());
    return;
  }
  if (found->live_merger != live_merger) {
    OnRestart();
    return;
  }
  if (asks) AskForMissing();
  if (waits) TestPoint("an upload waits for room");
}

void UploadStream::AskForMissing() {
  const std::vector<IndexRange> missing = contribution()->Missing();
  // Without a missing block it waits for the commit.
  if (missing.empty()) {
    MutexLock lock(&live_merge_mutex_);
    read_room_.reset();
    return;
  }
  progress().waits_for_us = false;
  Send(*MakeAnswer(missing, false));
}

bool UploadStream::JoinLiveMerge() {
  if (!HasRoom()) return false;
  joined_ = true;
  live_merge_.live_merger->Join(live_merge_.index);
  return true;
}

bool UploadStream::HasRoom() {
  const Contribution& contribution = *live_merge_.contribution;
  if (contribution.HasAll() ||
      live_merge_.live_merger->next() >= live_merge_.index) {
    EndTicket();
    if (contribution.HasAll()) read_room_.reset();
    return true;
  }
  // For a chunk of whole cells, or for the cell that a part begins.
  const int64_t bytes =
      std::min<int64_t>(codec::kChunkPayloadBytesMax,
                        contribution_->encoded().ByteCount(
                            contribution_->range().blocks()));
  if (read_room_.has_value() && read_room_->bytes() < bytes) read_room_.reset();
  // If it goes on with a cell that is begun, that has its room: who waited with
  // it would hold it for as long.
  if (read_room_.has_value() ||
      (part_cell_.has_value() &&
       live_merge_.live_merger->pieces(live_merge_.index).IsOpen(*part_cell_))) {
    EndTicket();
    return true;
  }
  if (ticket_ == nullptr) {
    ticket_ = context_.held->Wait({&contribution, bytes,
                                 live_merge_.live_merger.get(), live_merge_.index},
                                gate());
    // Who lets in those that need none may have come before.
    if (contribution.HasAll() ||
        live_merge_.live_merger->next() >= live_merge_.index) {
      ticket_.reset();
      return true;
    }
  }
  // Asked once: it may be let in at any moment, and is told after that.
  if (!ticket_->is_in()) {
    progress().room_turn = ticket_->number();
    return false;
  }
  read_room_ = ticket_->TakeRoom();
  EndTicket();
  return true;
}

void UploadStream::EndTicket() {
  ticket_.reset();
  progress().room_turn = 0;
}

void UploadStream::OnRestart() {
  {
    MutexLock lock(&live_merge_mutex_);
    if (live_merge_.live_merger == nullptr) return;
  }
  FinishWith(Refuse(Code::kUnavailable, "SET_CHANGED",
                    "other contributions than expected are merged: push "
                    "again"));
}

void UploadStream::OnTaken() {
  {
    MutexLock lock(&live_merge_mutex_);
    --offered_count_;
    if (!ReadsOn()) return;
  }
  progress().waits_for_us = false;
  Resume();
}

void UploadStream::OnRoom() {
  bool asks = false;
  {
    MutexLock lock(&live_merge_mutex_);
    if (ticket_ == nullptr) return;  // It has ended, or has seen it.
    if (finishing()) {
      EndTicket();
      return;
    }
    if (at_header_) {
      if (!JoinLiveMerge()) return;
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
  progress().waits_for_us = false;
  Resume();
}

bool UploadStream::ReadsOn() {
  if (!is_paused_ || offered_count_ >= kOfferedChunksMax || !HasRoom()) {
    return false;
  }
  is_paused_ = false;
  if (crowded_) live_merge_.live_merger->Crowd(live_merge_.index, -1);
  crowded_ = false;
  return true;
}

void UploadStream::ReadOnOrPause(const Shard::LiveMerge& live_merge) {
  bool crowded = false;
  bool waits = false;
  {
    MutexLock lock(&live_merge_mutex_);
    const bool is_full = offered_count_ >= kOfferedChunksMax;
    if (is_full) read_room_.reset();  // Nothing is read that could need it.
    waits = !is_full && !HasRoom();
    if (is_full || waits) {
      is_paused_ = true;
      progress().waits_for_us = true;
      Pause();
      if (joined_ && !crowded_) crowded = crowded_ = true;
    }
  }
  if (crowded) live_merge.live_merger->Crowd(live_merge.index, 1);
  if (waits) TestPoint("an upload is not read for want of room");
}

void UploadStream::LeaveLiveMerge() {
  Shard::LiveMerge live_merge;
  bool crowded = false;
  std::optional<ReceiveBudget::Hold> room;
  std::unique_ptr<ReceiveBudget::Ticket> ticket;
  {
    MutexLock lock(&live_merge_mutex_);
    at_header_ = false;
    room.swap(read_room_);
    ticket.swap(ticket_);
    progress().room_turn = 0;
    if (!joined_) return;
    joined_ = false;
    std::swap(crowded, crowded_);
    live_merge = live_merge_;
  }
  live_merge.live_merger->Leave(live_merge.index, crowded);
}

std::shared_ptr<Contribution> UploadStream::contribution() const {
  MutexLock lock(&live_merge_mutex_);
  return live_merge_.contribution != nullptr ? live_merge_.contribution
                                            : contribution_;
}

// Cells that wait to be taken in, and the memory in which they do, which is let
// go when the last of them has been.
struct UploadStream::Offered {
  Offered(IndexRange blocks, const rpc::ReceivedChunk& chunk,
          std::vector<BlockFact> facts, std::shared_ptr<const void> memory)
      : blocks(blocks),
        chunk(chunk),
        facts(std::move(facts)),
        memory(std::move(memory)) {}

  const IndexRange blocks;
  const rpc::ReceivedChunk& chunk;  // Their encoding is its payload.
  const std::vector<BlockFact> facts;
  std::shared_ptr<const void> memory;  // Of `chunk`.
  std::atomic<int64_t> left_count{0};  // Cells.
};

absl::Status UploadStream::OfferChunk(rpc::ReceivedChunk& chunk,
                                      IndexRange blocks,
                                      std::vector<BlockFact> facts) {
  Shard::LiveMerge live_merge;
  {
    MutexLock lock(&live_merge_mutex_);
    if (!at_header_) live_merge = live_merge_;
  }
  if (live_merge.live_merger == nullptr) {
    return Refuse(Code::kInvalidArgument, "WRONG_ORDER",
                  "a chunk came before the header was answered");
  }
  LiveMerger& live_merger = *live_merge.live_merger;
  // Parts of cells are copied into these, and have their room.
  std::optional<ReceiveBudget::Hold> room;
  if (live_merger.HasWholeCell(blocks)) {
    room = TakeRoom(live_merge, static_cast<int64_t>(chunk.payload_bytes),
                    /*begins_cell=*/false);
    if (!room.has_value()) return NoRoomToWait();
  }
  // What no other stream has brought: cells, and parts of cells.
  CellPieces& pieces = live_merger.pieces(live_merge.index);
  absl::Status status;
  std::vector<int64_t> whole;
  std::vector<std::pair<IndexRange, IndexRange>> parts;  // Cell, what of it.
  std::vector<std::shared_ptr<CellPieces::Whole>> put_together;
  const IndexRange cells = live_merger.ToCells(blocks);
  for (int64_t cell = cells.begin; cell < cells.end; ++cell) {
    const IndexRange all = live_merger.CellBlocks(cell);
    const IndexRange part = {std::max(all.begin, blocks.begin),
                             std::min(all.end, blocks.end)};
    if (part.size() < all.size() && !pieces.IsOpen(all.begin) &&
        pieces.open_count() >= CellPieces::kOpenMax) {
      return Misfit(absl::StrCat(
          "chunk of blocks [", blocks.begin, ", ", blocks.end, "): parts of ",
          CellPieces::kOpenMax, " cells have come whose rest has not; at level "
          "ISLAND cut chunks at multiples of ", kCellBlocks,
          " blocks, counted from the shard's first"));
    }
    const std::vector<IndexRange> claimed =
        live_merge.contribution->Claim(part);
    if (claimed.size() == 1 && claimed.front() == all) {
      whole.push_back(cell);
    } else {
      for (const IndexRange piece : claimed) parts.push_back({all, piece});
    }
  }
  for (const auto& [all, piece] : parts) {
    std::optional<ReceiveBudget::Hold> cell_room;
    if (!pieces.IsOpen(all.begin)) {
      const int64_t bytes = contribution_->encoded().ByteCount(all);
      if (whole.empty() && room.has_value() && room->bytes() >= bytes) {
        cell_room = room->Split(bytes);  // The chunk itself does not wait.
      } else {
        cell_room = TakeRoom(live_merge, bytes, /*begins_cell=*/true);
      }
      if (!cell_room.has_value()) {
        live_merge.contribution->Settle(piece, {});
        status = NoRoomToWait();
        continue;
      }
    }
    rpc::PayloadReader payload(chunk);
    payload.Skip(static_cast<size_t>(contribution_->encoded().ByteCount(
        {blocks.begin, piece.begin})));
    absl::StatusOr<std::shared_ptr<CellPieces::Whole>> complete = pieces.Add(
        all, piece, payload,
        absl::MakeConstSpan(facts).subspan(piece.begin - blocks.begin,
                                           piece.size()),
        std::move(cell_room));
    if (!complete.ok()) {  // It was open, and was given up since.
      live_merge.contribution->Settle(piece, {});
      status = NoRoomToWait();
    } else if (*complete != nullptr) {
      put_together.push_back(*std::move(complete));
    } else {
      MutexLock lock(&live_merge_mutex_);
      part_cell_ = all.begin;
    }
  }
  // Others wait for what this one would hold.
  const bool scarce = context_.held->IsScarce();
  if (!whole.empty()) {
    const bool at_once = scarce || room->is_over_budget();
    const auto held = std::make_shared<HeldChunk>(
        std::move(chunk), *std::move(room), context_.held);
    OfferCells(live_merge, whole,
               std::make_shared<Offered>(blocks, held->chunk(),
                                         std::move(facts), held),
               at_once);
  }
  for (const std::shared_ptr<CellPieces::Whole>& one : put_together) {
    OfferCells(live_merge, {live_merger.ToCells(one->blocks).begin},
               std::make_shared<Offered>(one->blocks, one->chunk,
                                         std::move(one->facts), one),
               scarce || one->room->is_over_budget());
  }
  // Who has begun to wait since may have looked before this was offered.
  if (!scarce && context_.held->IsScarce()) live_merger.FoldWaiting();
  // Not before what was offered counts: who waits looks once it is listed.
  context_.held->LetInNext(&live_merger, live_merger.next());
  if (live_merge.contribution->HasAll()) {
    context_.held->LetInHolder(live_merge.contribution.get());
  }
  if (status.ok()) ReadOnOrPause(live_merge);
  return status;
}

std::optional<ReceiveBudget::Hold> UploadStream::TakeRoom(
    const Shard::LiveMerge& live_merge, int64_t bytes, bool begins_cell) {
  {
    MutexLock lock(&live_merge_mutex_);
    if (read_room_.has_value() && read_room_->bytes() >= bytes) {
      return read_room_->Receive(bytes);
    }
  }
  const void* const holder = live_merge.contribution.get();
  std::optional<ReceiveBudget::Hold> room = context_.held->Take(holder, bytes);
  if (room.has_value()) return room;
  // Else all could wait for what nobody lets in.
  const bool may_be_over_budget =
      !begins_cell ||
      context_.held->over_budget_bytes() < CellPieces::kBeyondBytesMax ||
      !live_merge.live_merger->pieces(live_merge.index).HoldsBeyond();
  if (may_be_over_budget && live_merge.live_merger->next() >= live_merge.index) {
    room.emplace(context_.held->TakeOverBudget(holder, bytes));
  } else {
    live_merge.live_merger->FoldWaiting();
  }
  return room;
}

void UploadStream::OfferCells(const Shard::LiveMerge& live_merge,
                              const std::vector<int64_t>& cells,
                              std::shared_ptr<Offered> offered, bool at_once) {
  offered->left_count = static_cast<int64_t>(cells.size());
  {
    MutexLock lock(&live_merge_mutex_);
    ++offered_count_;
  }
  const EncodedRange& encoded = contribution_->encoded();
  for (const int64_t cell : cells) {
    const IndexRange part = live_merge.live_merger->CellBlocks(cell);
    rpc::PayloadReader payload(offered->chunk);
    payload.Skip(static_cast<size_t>(
        encoded.ByteCount({offered->blocks.begin, part.begin})));
    live_merge.live_merger->Offer(
        live_merge.index, cell, payload,
        [offered, part, shard = shard_, gate = gate(),
         contribution = live_merge.contribution] {
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

// --- The end ---------------------------------------------------------------

void UploadStream::OnEnd() {
  if (contribution_ == nullptr) {
    FinishWith(Refuse(Code::kInvalidArgument, "WRONG_ORDER",
                      "the stream ended without a header"));
    return;
  }
  LeaveLiveMerge();
  EndIfNobodySends(
      shard_->waiters().EndSending(contribution_->key(), gate().get()));
}

void UploadStream::EndIfNobodySends(bool nobody_sends) {
  if (!nobody_sends || contribution()->Missing().empty()) return;
  Shard::LiveMerge live_merge;
  {
    MutexLock lock(&live_merge_mutex_);
    live_merge = live_merge_;
  }
  if (live_merge.live_merger != nullptr) {
    // Parts of cells wait for who brings the rest, unless somebody needs their
    // room before: then they come again.
    live_merge.live_merger->pieces(live_merge.index).Abandon();
    context_.held->Abandon(
        live_merge.contribution.get(),
        [weak = std::weak_ptr<LiveMerger>(live_merge.live_merger),
         index = live_merge.index, contribution = live_merge.contribution] {
          const std::shared_ptr<LiveMerger> live_merger = weak.lock();
          if (live_merger == nullptr) return;
          for (const IndexRange piece :
               live_merger->pieces(index).GiveUpAbandoned()) {
            contribution->Settle(piece, {});
          }
        });
  }
  shard_->waiters().Settle(
      contribution_->key(),
      Refuse(Code::kUnavailable, "BLOCKS_MISSING",
             "blocks are missing and nobody sends them: push again"));
}

void UploadStream::OnGone() {
  if (contribution_ == nullptr) return;
  LeaveLiveMerge();
  EndIfNobodySends(
      shard_->waiters().Remove(contribution_->key(), gate().get()));
  TestPoint("an upload is gone");
}

}  // namespace atl::server
