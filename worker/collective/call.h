// One call of a collective, as a value.
//
// Pure. A Call borrows its buffers: until the call ends they must live, and
// nothing else may touch them. A Collective on a device needs device memory.
//
//   n      ranks in the group
//   count  elements, of the call's type

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace atl::collective {

// Only CPU ranks support kF64, for checks of f32 code.
enum class DataType : uint8_t { kBytes = 0, kF32 = 1, kBf16 = 2, kF64 = 3 };

// Bytes of one element: 1, 4, 2, 8.
size_t ElementBytes(DataType type);

// The data type of float or double.
template <typename T>
inline constexpr DataType kDataTypeOf = sizeof(T) == sizeof(double)
                                            ? DataType::kF64
                                            : DataType::kF32;

enum class Reduction : uint8_t { kSum = 0, kMax = 1 };

enum class CallKind : uint8_t {
  kBarrier = 0,
  kBroadcast = 1,
  kScatter = 2,
  kGather = 3,
  kAllGather = 4,
  kReduce = 5,
  kReduceScatter = 6,
  kAllReduce = 7,
  kAllToAll = 8,
  kTransfers = 9,  // Sends and receives between pairs, as one batch.
};

struct Transfer {
  bool is_send = false;
  int peer = 0;  // In the group; not the caller.
  void* data = nullptr;
  int64_t byte_count = 0;
};

// A send never writes to `data`.
Transfer SendTo(int peer, const void* data, int64_t byte_count);
Transfer ReceiveFrom(int peer, void* data, int64_t byte_count);

struct Call {
  CallKind kind = CallKind::kBarrier;
  DataType type = DataType::kBytes;
  Reduction reduction = Reduction::kSum;
  int root = 0;
  int64_t count = 0;
  const void* in = nullptr;
  void* out = nullptr;
  std::vector<int64_t> send_counts;     // kAllToAll with uneven parts, [n].
  std::vector<int64_t> receive_counts;  // The same.
  std::vector<Transfer> transfers;

  static Call Barrier();
  // `count` elements of `data` on rank `root` arrive in `data` of all others.
  static Call Broadcast(DataType type, void* data, int64_t count, int root);
  // `in` [n, count] of rank `root`; row r arrives in `out` [count] of rank r.
  static Call Scatter(DataType type, const void* in, void* out, int64_t count,
                      int root);
  // `in` [count] of rank r arrives in row r of `out` [n, count] of `root`.
  static Call Gather(DataType type, const void* in, void* out, int64_t count,
                     int root);
  // As Gather, for all ranks. In place: in = row `rank` of out.
  static Call AllGather(DataType type, const void* in, void* out,
                        int64_t count);
  // The reduction of all ranks' `in` [count] arrives in `out` of `root`.
  static Call Reduce(DataType type, Reduction reduction, const void* in,
                     void* out, int64_t count, int root);
  // Row r of the reduction of all ranks' `in` [n, count] arrives in `out`
  // [count] of rank r. In place: out = row `rank` of in.
  static Call ReduceScatter(DataType type, Reduction reduction, const void* in,
                            void* out, int64_t count);
  // As Reduce, for all ranks. In place: out = in.
  static Call AllReduce(DataType type, Reduction reduction, const void* in,
                        void* out, int64_t count);
  // Row p of `in` [n, count] arrives in row `rank` of rank p's `out`, [n,
  // count]. Not in place.
  static Call AllToAll(DataType type, const void* in, void* out, int64_t count);
  // The same with uneven rows, concatenated: send_counts[p] elements go to rank
  // p, receive_counts[p] come from it. Not in place.
  static Call AllToAllUneven(DataType type, const void* in, void* out,
                             std::vector<int64_t> send_counts,
                             std::vector<int64_t> receive_counts);
  // All transfers at once, as between ncclGroupStart and ncclGroupEnd.
  // Transfers of one pair in one direction match in order.
  static Call Transfers(std::vector<Transfer> transfers);
};

// "all-reduce sum of 16 f32", for messages.
std::string Describe(const Call& call);
std::string DescribeCall(CallKind kind, DataType type, Reduction reduction,
                         int root, int64_t count);

// Validates `call` of rank `rank` in a group of `size` ranks. INVALID_ARGUMENT:
// a root or a peer outside the group, a peer that is the caller, a negative
// count, not one count a rank, a missing buffer, or a reduction of bytes.
absl::Status ValidateCall(const Call& call, int rank, int size);

}  // namespace atl::collective
