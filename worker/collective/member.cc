#include "worker/collective/member.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "base/time/clock.h"
#include "worker/collective/reduction.h"

namespace atl::collective {
namespace {

// Bytes of each remote peer's input that arrive before they are reduced.
constexpr int64_t kSliceBytes = 256 << 10;
// Bytes of each input: with 8 ranks inputs and output fit in the L2 cache.
constexpr int64_t kPieceBytes = 16 << 10;
// Up to this size ranks of several processes reduce everything themselves.
constexpr int64_t kSmallBytes = 16 << 10;
// From this size on, the root of a broadcast sends each byte once.
constexpr int64_t kLargeBroadcastBytes = 256 << 10;
// Parts begin at multiples of this: 64 bytes of f32.
constexpr int64_t kPartAlignment = 16;

int64_t Bytes(const Call& call, int64_t count) {
  return count * static_cast<int64_t>(ElementBytes(call.type));
}

int64_t Sum(const std::vector<int64_t>& counts, int end) {
  return std::accumulate(counts.begin(), counts.begin() + end, int64_t{0});
}

// Returns begin and length of part `rank` of `count` elements.
std::pair<int64_t, int64_t> TakePart(int64_t count, int rank, int size) {
  const int64_t share = (count + size - 1) / size;
  const int64_t length =
      (share + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
  return {std::min(count, length * rank), std::min(count, length * (rank + 1))};
}

char* At(const void* base, int64_t offset_bytes) {
  return const_cast<char*>(static_cast<const char*>(base)) + offset_bytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Collective>> Member::Create(
    std::shared_ptr<Group> group, int rank) {
  World& world = group->world();
  std::unique_ptr<RemoteLinks> links;
  if (group->has_remote()) {
    absl::StatusOr<std::unique_ptr<RemoteLinks>> connected =
        world.remote()->Connect(group->name(), rank, group->world_ranks(),
                                SystemClock().Now() +
                                    world.options().call_timeout);
    if (!connected.ok()) return world.Break(connected.status());
    links = *std::move(connected);
  }
  return std::unique_ptr<Collective>(
      new Member(std::move(group), rank, std::move(links)));
}

Member::Member(std::shared_ptr<Group> group, int rank,
               std::unique_ptr<RemoteLinks> links)
    : group_(std::move(group)),
      rank_(rank),
      links_(std::move(links)),
      headers_(group_->size()),
      inputs_(group_->size()),
      scratch_index_(group_->size(), -1),
      queue_([this](const Call& call) { return Execute(call); }) {
  if (links_ == nullptr) return;
  int remote_count = 0;
  for (int peer = 0; peer < size(); ++peer) {
    if (!group_->is_local(peer)) scratch_index_[peer] = ++remote_count;
  }
  sends_.reserve(size());
  receives_.reserve(size());
  group_->SetWaker(rank_, [this] { links_->Wake(); });
}

Member::~Member() {
  // Also finishes started calls.
  queue_.Run(Call::Transfers({})).IgnoreError();
  group_->SetWaker(rank_, nullptr);
  group_->MarkLeft(rank_, call_number_);
  World& world = group_->world();
  if (links_ != nullptr && !world.broken()) {
    world.remote()->TellLeft(group_->name(), rank_, call_number_);
  }
}

absl::Status Member::Run(const Call& call) { return queue_.Run(call); }

Pending Member::Start(Call call) { return queue_.Start(std::move(call)); }

void Member::Abort(absl::string_view reason) {
  group_->world()
      .Break(absl::UnavailableError(absl::StrCat(
          "rank ", rank_, " of ", group_->name(), " aborted: ", reason)))
      .IgnoreError();
}

absl::StatusOr<std::unique_ptr<Collective>> Member::Split(
    int color, absl::string_view name) {
  const int32_t own = color;
  std::vector<int32_t> colors(size());
  RETURN_IF_ERROR(
      Run(Call::AllGather(DataType::kBytes, &own, colors.data(), sizeof(own))));
  const int64_t split = split_count_++;
  if (color < 0) return std::unique_ptr<Collective>();
  std::vector<int> world_ranks;
  int rank = 0;
  for (int peer = 0; peer < size(); ++peer) {
    if (colors[peer] != color) continue;
    if (peer == rank_) rank = static_cast<int>(world_ranks.size());
    world_ranks.push_back(group_->world_ranks()[peer]);
  }
  const std::string child =
      absl::StrCat(group_->name(), "/", name, "#", split, ".", color);
  return Create(group_->Child(child, world_ranks), rank);
}

absl::Status Member::Execute(const Call& call) {
  World& world = group_->world();
  if (world.broken()) return world.status();
  const absl::Time deadline =
      SystemClock().Now() + world.options().call_timeout;
  absl::Status status = ValidateCall(call, rank_, size());
  if (status.ok()) {
    status = call.kind == CallKind::kTransfers
                 ? ExecuteTransfers(call, deadline)
                 : ExecuteCollective(call, deadline);
  } else {
    status =
        Annotate(status, absl::StrCat("rank ", rank_, " of ", group_->name()));
  }
  if (status.ok()) return status;
  if (links_ != nullptr && absl::IsUnavailable(status)) {
    // The peer may have gone because of an error that it sent to us.
    world.remote()->ReadNews();
  }
  status = world.Break(status);
  group_->Withdraw(rank_);
  return status;
}

absl::Status Member::ExecuteTransfers(const Call& call, absl::Time deadline) {
  if (call.transfers.empty()) return absl::OkStatus();
  Group::LocalTransfers local(group_.get(), rank_, call.transfers);
  if (links_ != nullptr) {
    // Headers must not move while the sends run.
    std::vector<CallHeader> headers;
    headers.reserve(call.transfers.size());
    for (const Transfer& transfer : call.transfers) {
      if (group_->is_local(transfer.peer)) continue;
      if (transfer.is_send) {
        headers.push_back(MakeHeader(call, transfer.byte_count));
        sends_.push_back({transfer.peer, &headers.back(), transfer.data,
                          transfer.byte_count});
      } else {
        receives_.push_back(
            {transfer.peer, true, transfer.data, transfer.byte_count});
      }
    }
    headers_due_ = false;
    RETURN_IF_ERROR(RunRemote(call, deadline));
  }
  return local.Finish(deadline);
}

absl::Status Member::ExecuteCollective(const Call& call, absl::Time deadline) {
  ++call_number_;
  headers_due_ = links_ != nullptr;
  RETURN_IF_ERROR(group_->Post(rank_, &call, call_number_, deadline));
  switch (call.kind) {
    case CallKind::kBarrier:
      RETURN_IF_ERROR(RunRemote(call, deadline));
      break;
    case CallKind::kReduce:
    case CallKind::kReduceScatter:
      RETURN_IF_ERROR(ReduceOwned(call, deadline));
      break;
    case CallKind::kAllReduce:
      if (links_ != nullptr && Bytes(call, call.count) <= kSmallBytes) {
        RETURN_IF_ERROR(ReduceAll(call, deadline));
      } else {
        RETURN_IF_ERROR(ReduceOwned(call, deadline));
        RETURN_IF_ERROR(Move(call, Moves::kPartsOfAll, false, deadline));
      }
      break;
    case CallKind::kBroadcast:
      if (links_ != nullptr &&
          Bytes(call, call.count) >= kLargeBroadcastBytes) {
        RETURN_IF_ERROR(Move(call, Moves::kPartsOfRoot, true, deadline));
        RETURN_IF_ERROR(group_->Barrier(rank_, deadline));
        RETURN_IF_ERROR(Move(call, Moves::kPartsOfAll, true, deadline));
        break;
      }
      [[fallthrough]];
    default:
      RETURN_IF_ERROR(Move(call, Moves::kWhole, true, deadline));
  }
  return group_->End(rank_, deadline);
}

Member::Piece Member::Outgoing(const Call& call, Moves moves, int from,
                               int to) const {
  const int64_t whole = Bytes(call, call.count);
  if (moves == Moves::kPartsOfRoot) {
    if (from != call.root) return {};
    const auto [begin, end] = TakePart(call.count, to, size());
    return {At(call.out, Bytes(call, begin)), Bytes(call, end - begin)};
  }
  if (moves == Moves::kPartsOfAll) {
    if (call.kind == CallKind::kBroadcast && to == call.root) return {};
    const auto [begin, end] = TakePart(call.count, from, size());
    return {At(call.out, Bytes(call, begin)), Bytes(call, end - begin)};
  }
  switch (call.kind) {
    case CallKind::kBroadcast:
      return from == call.root ? Piece{At(call.out, 0), whole} : Piece{};
    case CallKind::kScatter:
      return from == call.root ? Piece{At(call.in, to * whole), whole}
                               : Piece{};
    case CallKind::kGather:
      return to == call.root ? Piece{At(call.in, 0), whole} : Piece{};
    case CallKind::kAllGather:
      return {At(call.in, 0), whole};
    case CallKind::kAllToAll:
      if (call.count >= 0) return {At(call.in, to * whole), whole};
      return {At(call.in, Bytes(call, Sum(call.send_counts, to))),
              Bytes(call, call.send_counts[to])};
    default:
      return {};
  }
}

Member::Piece Member::Incoming(const Call& call, Moves moves, int to,
                               int from) const {
  const int64_t whole = Bytes(call, call.count);
  if (moves != Moves::kWhole) {
    // Parts have the same offset on both sides.
    return Outgoing(call, moves, from, to);
  }
  switch (call.kind) {
    case CallKind::kBroadcast:
      return from == call.root ? Piece{At(call.out, 0), whole} : Piece{};
    case CallKind::kScatter:
      return from == call.root ? Piece{At(call.out, 0), whole} : Piece{};
    case CallKind::kGather:
      return to == call.root ? Piece{At(call.out, from * whole), whole}
                             : Piece{};
    case CallKind::kAllGather:
      return {At(call.out, from * whole), whole};
    case CallKind::kAllToAll:
      if (call.count >= 0) return {At(call.out, from * whole), whole};
      return {At(call.out, Bytes(call, Sum(call.receive_counts, from))),
              Bytes(call, call.receive_counts[from])};
    default:
      return {};
  }
}

absl::Status Member::Move(const Call& call, Moves moves, bool local,
                          absl::Time deadline) {
  for (int step = 0; step < size(); ++step) {
    // Each rank starts with another peer, so they read different memory.
    const int peer = (rank_ + step) % size();
    if (group_->is_local(peer)) {
      if (!local) continue;
      const Piece from = Outgoing(group_->call(peer), moves, peer, rank_);
      const Piece to = Incoming(call, moves, rank_, peer);
      if (to.byte_count > 0 && to.data != from.data) {
        std::memcpy(to.data, from.data, to.byte_count);
      }
      continue;
    }
    const Piece out = Outgoing(call, moves, rank_, peer);
    const Piece in = Incoming(call, moves, rank_, peer);
    AddSend(peer, out.data, out.byte_count);
    AddReceive(peer, in.data, in.byte_count);
  }
  return RunRemote(call, deadline);
}

Member::Owned Member::OwnedBy(const Call& call, int rank) const {
  const bool here = group_->is_local(rank);
  switch (call.kind) {
    case CallKind::kReduceScatter:
      return {rank * call.count, call.count,
              here ? At(group_->call(rank).out, 0) : nullptr};
    case CallKind::kReduce:
      if (rank != call.root) return {};
      return {0, call.count, here ? At(group_->call(rank).out, 0) : nullptr};
    default: {
      const auto [begin, end] = TakePart(call.count, rank, size());
      return {begin, end - begin,
              here ? At(group_->call(rank).out, Bytes(call, begin)) : nullptr};
    }
  }
}

absl::Status Member::ReduceOwned(const Call& call, absl::Time deadline) {
  const Owned own = OwnedBy(call, rank_);
  const bool share = call.kind == CallKind::kAllReduce;
  if (links_ == nullptr) {
    ReducePiece(call, own, 0, own.count, share);
    return absl::OkStatus();
  }
  const int64_t slice = kSliceBytes / Bytes(call, 1);
  // At least once: the first slice carries the headers.
  for (int64_t begin = 0;; begin += slice) {
    bool more = false;
    for (int step = 1; step < size(); ++step) {
      const int peer = (rank_ + step) % size();
      if (group_->is_local(peer)) continue;
      const Owned theirs = OwnedBy(call, peer);
      const int64_t out = std::clamp<int64_t>(theirs.count - begin, 0, slice);
      const int64_t in = std::clamp<int64_t>(own.count - begin, 0, slice);
      AddSend(peer, At(call.in, Bytes(call, theirs.begin + begin)),
              Bytes(call, out));
      AddReceive(peer, Scratch(scratch_index_[peer]), Bytes(call, in));
      more = more || begin + slice < std::max(theirs.count, own.count);
    }
    RETURN_IF_ERROR(RunRemote(call, deadline));
    ReducePiece(call, own, begin, std::min(own.count, begin + slice), share);
    if (!more) return absl::OkStatus();
  }
}

absl::Status Member::ReduceAll(const Call& call, absl::Time deadline) {
  const int64_t bytes = Bytes(call, call.count);
  for (int peer = 0; peer < size(); ++peer) {
    if (group_->is_local(peer)) continue;
    AddSend(peer, call.in, bytes);
    AddReceive(peer, Scratch(scratch_index_[peer]), bytes);
  }
  RETURN_IF_ERROR(RunRemote(call, deadline));
  char* const result = Scratch(0);
  ReducePiece(call, {0, call.count, result}, 0, call.count, false);
  // Out may be in, which other ranks still read.
  RETURN_IF_ERROR(group_->Barrier(rank_, deadline));
  if (bytes > 0) std::memcpy(call.out, result, bytes);
  return absl::OkStatus();
}

void Member::ReducePiece(const Call& call, const Owned& owned, int64_t begin,
                         int64_t end, bool share) {
  const int64_t piece = kPieceBytes / Bytes(call, 1);
  for (int64_t at = begin; at < end; at += piece) {
    const int64_t count = std::min(piece, end - at);
    for (int rank = 0; rank < size(); ++rank) {
      inputs_[rank] =
          group_->is_local(rank)
              ? At(group_->call(rank).in, Bytes(call, owned.begin + at))
              : Scratch(scratch_index_[rank]) + Bytes(call, at - begin);
    }
    char* const out = owned.out + Bytes(call, at);
    ReduceInputs(call.type, call.reduction, inputs_, count, out);
    if (!share) continue;
    for (int rank : group_->local_ranks()) {
      if (rank == rank_) continue;
      // No other rank reads or writes this part of its buffers.
      std::memcpy(At(group_->call(rank).out, Bytes(call, owned.begin + at)),
                  out, Bytes(call, count));
    }
  }
}

char* Member::Scratch(int index) {
  // Allocated by the first reduction: many groups never reduce.
  if (scratch_.empty()) {
    const int64_t remote_count =
        size() - static_cast<int64_t>(group_->local_ranks().size());
    scratch_.resize((remote_count + 1) * kSliceBytes);
  }
  return scratch_.data() + index * kSliceBytes;
}

void Member::AddSend(int peer, const void* data, int64_t byte_count) {
  if (byte_count > 0 || headers_due_) {
    sends_.push_back({peer, nullptr, data, byte_count});
  }
}

void Member::AddReceive(int peer, void* data, int64_t byte_count) {
  if (byte_count > 0 || headers_due_) {
    receives_.push_back({peer, headers_due_, data, byte_count});
  }
}

CallHeader Member::MakeHeader(const Call& call, int64_t byte_count) const {
  CallHeader header;
  header.kind = static_cast<uint8_t>(call.kind);
  header.type = static_cast<uint8_t>(call.type);
  header.reduction = static_cast<uint8_t>(call.reduction);
  header.root = call.root;
  header.rank = rank_;
  header.call_number = call.kind == CallKind::kTransfers ? 0 : call_number_;
  header.count = call.count;
  header.byte_count = byte_count;
  return header;
}

absl::Status Member::CheckHeader(const Call& call, int peer,
                                 const CallHeader& header,
                                 int64_t byte_count) const {
  if (header.magic != CallHeader::kMagic || header.rank != peer) {
    return absl::UnavailableError(absl::StrCat(
        "rank ", peer, " of ", group_->name(), " sent an invalid header"));
  }
  CallHeader own = MakeHeader(call, byte_count);
  own.rank = peer;
  if (std::memcmp(&own, &header, sizeof(own)) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "in ", group_->name(), ": rank ", rank_, " makes ", Describe(call),
      " (call ", own.call_number, ") and expects ", byte_count,
      " bytes of rank ", peer, ", but that makes ",
      DescribeCall(static_cast<CallKind>(header.kind),
                   static_cast<DataType>(header.type),
                   static_cast<Reduction>(header.reduction), header.root,
                   header.count),
      " (call ", header.call_number, ") and sends ", header.byte_count));
}

absl::Status Member::RunRemote(const Call& call, absl::Time deadline) {
  if (links_ == nullptr) return absl::OkStatus();
  if (headers_due_) {
    if (sends_.empty()) {
      for (int peer = 0; peer < size(); ++peer) {
        if (group_->is_local(peer)) continue;
        AddSend(peer, nullptr, 0);
        AddReceive(peer, nullptr, 0);
      }
    }
    // The first header covers the later slices.
    for (RemoteLinks::Send& send : sends_) {
      headers_[send.peer] = MakeHeader(call, send.byte_count);
      send.header = &headers_[send.peer];
    }
    headers_due_ = false;
  }
  absl::Status status = links_->Run(
      sends_, receives_,
      [&](int peer, const CallHeader& header, int64_t byte_count) {
        return CheckHeader(call, peer, header, byte_count);
      },
      [&]() -> absl::Status {
        if (call.kind != CallKind::kTransfers)
          return group_->Interrupted(rank_);
        return group_->world().status();
      },
      deadline);
  sends_.clear();
  receives_.clear();
  return status;
}

}  // namespace atl::collective
