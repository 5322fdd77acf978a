#include "worker/collective/call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace atl::collective {
namespace {

Call Make(CallKind kind, DataType type, const void* in, void* out,
          int64_t count) {
  Call call;
  call.kind = kind;
  call.type = type;
  call.in = in;
  call.out = out;
  call.count = count;
  return call;
}

bool HasRoot(CallKind kind) {
  return kind == CallKind::kBroadcast || kind == CallKind::kScatter ||
         kind == CallKind::kGather || kind == CallKind::kReduce;
}

bool Reduces(CallKind kind) {
  return kind == CallKind::kReduce || kind == CallKind::kReduceScatter ||
         kind == CallKind::kAllReduce;
}

const char* KindName(CallKind kind) {
  switch (kind) {
    case CallKind::kBarrier:
      return "barrier";
    case CallKind::kBroadcast:
      return "broadcast";
    case CallKind::kScatter:
      return "scatter";
    case CallKind::kGather:
      return "gather";
    case CallKind::kAllGather:
      return "all-gather";
    case CallKind::kReduce:
      return "reduce";
    case CallKind::kReduceScatter:
      return "reduce-scatter";
    case CallKind::kAllReduce:
      return "all-reduce";
    case CallKind::kAllToAll:
      return "all-to-all";
    case CallKind::kTransfers:
      return "send and receive";
  }
  return "unknown call";
}

const char* TypeName(DataType type) {
  switch (type) {
    case DataType::kBytes:
      return "bytes";
    case DataType::kF32:
      return "f32";
    case DataType::kBf16:
      return "bf16";
    case DataType::kF64:
      return "f64";
  }
  return "unknown type";
}

absl::Status Wrong(const Call& call, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(Describe(call), ": ", what));
}

absl::Status ValidateTransfers(const Call& call, int rank, int size) {
  for (const Transfer& transfer : call.transfers) {
    if (transfer.peer < 0 || transfer.peer >= size) {
      return Wrong(call, absl::StrCat("there is no rank ", transfer.peer,
                                      " in a group of ", size));
    }
    if (transfer.peer == rank) return Wrong(call, "a rank cannot reach itself");
    if (transfer.byte_count < 0) return Wrong(call, "a negative byte count");
    if (transfer.byte_count > 0 && transfer.data == nullptr) {
      return Wrong(call, "a buffer is missing");
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateUneven(const Call& call, int size) {
  if (static_cast<int>(call.send_counts.size()) != size ||
      static_cast<int>(call.receive_counts.size()) != size) {
    return Wrong(call, absl::StrCat("needs ", size, " counts to send and ",
                                    size, " to receive"));
  }
  int64_t sent = 0;
  int64_t received = 0;
  for (int p = 0; p < size; ++p) {
    if (call.send_counts[p] < 0 || call.receive_counts[p] < 0) {
      return Wrong(call, "a negative count");
    }
    sent += call.send_counts[p];
    received += call.receive_counts[p];
  }
  if ((sent > 0 && call.in == nullptr) ||
      (received > 0 && call.out == nullptr)) {
    return Wrong(call, "a buffer is missing");
  }
  return absl::OkStatus();
}

}  // namespace

size_t ElementBytes(DataType type) {
  switch (type) {
    case DataType::kF32:
      return 4;
    case DataType::kBf16:
      return 2;
    case DataType::kF64:
      return 8;
    case DataType::kBytes:
      break;
  }
  return 1;
}

Transfer SendTo(int peer, const void* data, int64_t byte_count) {
  return {true, peer, const_cast<void*>(data), byte_count};
}

Transfer ReceiveFrom(int peer, void* data, int64_t byte_count) {
  return {false, peer, data, byte_count};
}

Call Call::Barrier() { return Call(); }

Call Call::Broadcast(DataType type, void* data, int64_t count, int root) {
  Call call = Make(CallKind::kBroadcast, type, data, data, count);
  call.root = root;
  return call;
}

Call Call::Scatter(DataType type, const void* in, void* out, int64_t count,
                   int root) {
  Call call = Make(CallKind::kScatter, type, in, out, count);
  call.root = root;
  return call;
}

Call Call::Gather(DataType type, const void* in, void* out, int64_t count,
                  int root) {
  Call call = Make(CallKind::kGather, type, in, out, count);
  call.root = root;
  return call;
}

Call Call::AllGather(DataType type, const void* in, void* out, int64_t count) {
  return Make(CallKind::kAllGather, type, in, out, count);
}

Call Call::Reduce(DataType type, Reduction reduction, const void* in, void* out,
                  int64_t count, int root) {
  Call call = Make(CallKind::kReduce, type, in, out, count);
  call.reduction = reduction;
  call.root = root;
  return call;
}

Call Call::ReduceScatter(DataType type, Reduction reduction, const void* in,
                         void* out, int64_t count) {
  Call call = Make(CallKind::kReduceScatter, type, in, out, count);
  call.reduction = reduction;
  return call;
}

Call Call::AllReduce(DataType type, Reduction reduction, const void* in,
                     void* out, int64_t count) {
  Call call = Make(CallKind::kAllReduce, type, in, out, count);
  call.reduction = reduction;
  return call;
}

Call Call::AllToAll(DataType type, const void* in, void* out, int64_t count) {
  return Make(CallKind::kAllToAll, type, in, out, count);
}

Call Call::AllToAllUneven(DataType type, const void* in, void* out,
                          std::vector<int64_t> send_counts,
                          std::vector<int64_t> receive_counts) {
  Call call = Make(CallKind::kAllToAll, type, in, out, -1);
  call.send_counts = std::move(send_counts);
  call.receive_counts = std::move(receive_counts);
  return call;
}

Call Call::Transfers(std::vector<Transfer> transfers) {
  Call call;
  call.kind = CallKind::kTransfers;
  call.transfers = std::move(transfers);
  return call;
}

std::string DescribeCall(CallKind kind, DataType type, Reduction reduction,
                         int root, int64_t count) {
  if (kind == CallKind::kBarrier || kind == CallKind::kTransfers) {
    return KindName(kind);
  }
  std::string text = KindName(kind);
  if (Reduces(kind)) {
    absl::StrAppend(&text, reduction == Reduction::kSum ? " sum" : " max");
  }
  if (count < 0) {
    absl::StrAppend(&text, " of uneven parts of ", TypeName(type));
  } else {
    absl::StrAppend(&text, " of ", count, " ", TypeName(type));
  }
  if (HasRoot(kind)) absl::StrAppend(&text, " with root ", root);
  return text;
}

std::string Describe(const Call& call) {
  return DescribeCall(call.kind, call.type, call.reduction, call.root,
                      call.count);
}

absl::Status ValidateCall(const Call& call, int rank, int size) {
  if (call.kind == CallKind::kBarrier) return absl::OkStatus();
  if (call.kind == CallKind::kTransfers) {
    return ValidateTransfers(call, rank, size);
  }
  if (call.root < 0 || call.root >= size) {
    return Wrong(call, absl::StrCat("no such root in a group of ", size));
  }
  if (Reduces(call.kind) && call.type == DataType::kBytes) {
    return Wrong(call, "bytes cannot be reduced");
  }
  if (call.kind == CallKind::kAllToAll && call.count == -1) {
    return ValidateUneven(call, size);
  }
  if (call.count < 0) return Wrong(call, "a negative count");
  if (call.count == 0) return absl::OkStatus();
  const bool is_root = call.root == rank;
  const bool reads = call.kind != CallKind::kScatter || is_root;
  const bool writes =
      (call.kind != CallKind::kGather && call.kind != CallKind::kReduce) ||
      is_root;
  if ((reads && call.in == nullptr) || (writes && call.out == nullptr)) {
    return Wrong(call, "a buffer is missing");
  }
  return absl::OkStatus();
}

}  // namespace atl::collective
