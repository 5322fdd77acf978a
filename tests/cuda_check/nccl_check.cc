#include "tests/cuda_check/device_checks.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status/status_macros.h"
#include "worker/collective/call.h"
#include "worker/collective/collective.h"
#include "worker/collective/nccl/nccl_world.h"
#include "worker/collective/tcp/tcp_world.h"
#include "worker/engine/ops/cuda/make_cuda_ops.h"
#include "worker/engine/tensor/arena.h"

namespace atl::engine::check {
namespace {

using collective::Call;
using collective::Collective;
using collective::DataType;
using collective::Reduction;

constexpr absl::Duration kCallTimeout = absl::Seconds(60);
constexpr int64_t kCountMax = 100'000;
constexpr int64_t kSpeedCount = int64_t{16} << 20;  // 64 MiB of f32.
constexpr int kSpeedRuns = 10;

using Bytes = std::vector<uint8_t>;

// Small integers: sums over ranks are exact in every type and order.
int Number(int rank, int64_t i) {
  return static_cast<int>((i * 7 + rank * 5) % 13) - (rank + 3);
}

void Store(int number, DataType type, int64_t i, Bytes& to) {
  const float value = static_cast<float>(number);
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  if (type == DataType::kF32) std::memcpy(&to[4 * i], &bits, 4);
  if (type == DataType::kBf16) {
    const uint16_t high = static_cast<uint16_t>(bits >> 16);
    std::memcpy(&to[2 * i], &high, 2);
  }
  if (type == DataType::kBytes) to[i] = static_cast<uint8_t>(number);
}

Bytes Input(int rank, int64_t count, DataType type) {
  Bytes bytes(count * static_cast<int64_t>(collective::ElementBytes(type)));
  for (int64_t i = 0; i < count; ++i) Store(Number(rank, i), type, i, bytes);
  return bytes;
}

Bytes Reduced(int size, int64_t count, DataType type, Reduction reduction) {
  Bytes bytes(count * static_cast<int64_t>(collective::ElementBytes(type)));
  for (int64_t i = 0; i < count; ++i) {
    int result = Number(0, i);
    for (int r = 1; r < size; ++r) {
      const int next = Number(r, i);
      result =
          reduction == Reduction::kSum ? result + next : std::max(result, next);
    }
    Store(result, type, i, bytes);
  }
  return bytes;
}

// A rank with two buffers on its device.
class Rank {
 public:
  static absl::StatusOr<std::unique_ptr<Rank>> Join(const NcclRank& at) {
    auto rank = std::unique_ptr<Rank>(new Rank);
    ASSIGN_OR_RETURN(rank->ops_,
                     cuda::MakeCudaOps(at.device, ComputeType::kF32));
    ASSIGN_OR_RETURN(rank->tcp_, MeetRanks(at));
    rank->control_ = std::move(rank->tcp_->TakeRanks()[0]);
    collective::NcclOptions nccl;
    nccl.device = at.device;
    nccl.compute_stream = rank->ops_->stream();
    nccl.call_timeout = kCallTimeout;
    nccl.check_calls = true;
    ASSIGN_OR_RETURN(rank->world_, collective::JoinNccl(*rank->control_, nccl));
    const size_t bytes = std::max<size_t>(sizeof(float) * kSpeedCount,
                                          sizeof(float) * kCountMax * at.size);
    ASSIGN_OR_RETURN(rank->in_, Arena::Create(bytes, rank->ops_->memory()));
    ASSIGN_OR_RETURN(rank->out_, Arena::Create(bytes, rank->ops_->memory()));
    rank->in_data_ = rank->in_.Take<char>(static_cast<int64_t>(bytes));
    rank->out_data_ = rank->out_.Take<char>(static_cast<int64_t>(bytes));
    return rank;
  }

  Collective& world() { return *world_; }
  char* in() { return in_data_; }
  char* out() { return out_data_; }

  // Runs `call` on `input` and compares its output with `expected`.
  absl::Status Hold(Collective& group, const Bytes& input,
                    const Bytes& expected, const Call& call) {
    ops_->FromHost(input.size(), input.data(), in());
    RETURN_IF_ERROR(group.Run(call));
    return HoldOut(expected, call);
  }

  absl::Status HoldOut(const Bytes& expected, const Call& call) {
    Bytes actual(expected.size());
    ops_->ToHost(actual.size(), call.out, actual.data());
    RETURN_IF_ERROR(ops_->status());
    RETURN_IF_ERROR(world_->status());
    if (actual == expected) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat(Describe(call), " gave wrong output"));
  }

  cuda::CudaOps& ops() { return *ops_; }

 private:
  Rank() = default;

  // Each depends on those before it.
  std::unique_ptr<cuda::CudaOps> ops_;
  std::unique_ptr<collective::TcpWorld> tcp_;
  std::unique_ptr<Collective> control_;
  Arena in_, out_;
  char* in_data_ = nullptr;
  char* out_data_ = nullptr;
  std::unique_ptr<Collective> world_;
};

Bytes Part(const Bytes& all, int64_t begin, int64_t count) {
  return Bytes(all.begin() + begin, all.begin() + begin + count);
}

absl::Status HoldReductions(Rank& rank, int64_t count, DataType type) {
  Collective& world = rank.world();
  const int n = world.size(), me = world.rank();
  for (Reduction reduction : {Reduction::kSum, Reduction::kMax}) {
    const Bytes all = Reduced(n, count, type, reduction);
    const Bytes input = Input(me, count, type);
    RETURN_IF_ERROR(rank.Hold(
        world, input, all,
        Call::AllReduce(type, reduction, rank.in(), rank.out(), count)));
    // In place.
    RETURN_IF_ERROR(rank.Hold(
        world, input, all,
        Call::AllReduce(type, reduction, rank.in(), rank.in(), count)));
    const int root = static_cast<int>(count % n);
    RETURN_IF_ERROR(rank.Hold(
        world, input, me == root ? all : Bytes(),
        Call::Reduce(type, reduction, rank.in(), rank.out(), count, root)));
    const Bytes rows = Reduced(n, n * count, type, reduction);
    const int64_t bytes = static_cast<int64_t>(all.size());
    RETURN_IF_ERROR(rank.Hold(
        world, Input(me, n * count, type), Part(rows, me * bytes, bytes),
        Call::ReduceScatter(type, reduction, rank.in(), rank.out(), count)));
  }
  return absl::OkStatus();
}

absl::Status HoldMoves(Rank& rank, int64_t count, DataType type) {
  Collective& world = rank.world();
  const int n = world.size(), me = world.rank();
  const int root = static_cast<int>(count % n);
  const int64_t bytes =
      count * static_cast<int64_t>(collective::ElementBytes(type));
  RETURN_IF_ERROR(rank.Hold(world, Input(me, count, type),
                            Input(root, count, type),
                            Call::Broadcast(type, rank.in(), count, root)));
  Bytes gathered, exchanged;
  for (int r = 0; r < n; ++r) {
    const Bytes input = Input(r, n * count, type);
    gathered.insert(gathered.end(), input.begin(), input.begin() + bytes);
    const Bytes part = Part(input, me * bytes, bytes);
    exchanged.insert(exchanged.end(), part.begin(), part.end());
  }
  const Bytes input = Input(me, n * count, type);
  RETURN_IF_ERROR(rank.Hold(
      world, input, Part(Input(root, n * count, type), me * bytes, bytes),
      Call::Scatter(type, rank.in(), rank.out(), count, root)));
  RETURN_IF_ERROR(
      rank.Hold(world, input, me == root ? gathered : Bytes(),
                Call::Gather(type, rank.in(), rank.out(), count, root)));
  RETURN_IF_ERROR(
      rank.Hold(world, input, gathered,
                Call::AllGather(type, rank.in(), rank.out(), count)));
  return rank.Hold(world, input, exchanged,
                   Call::AllToAll(type, rank.in(), rank.out(), count));
}

// Rank p sends p + q + 1 numbers to rank q.
absl::Status HoldUneven(Rank& rank) {
  Collective& world = rank.world();
  const int n = world.size(), me = world.rank();
  std::vector<int64_t> send, receive;
  Bytes expected;
  for (int p = 0; p < n; ++p) {
    send.push_back(me + p + 1);
    receive.push_back(p + me + 1);
    int64_t before = 0, total = 0;
    for (int q = 0; q < n; ++q) {
      if (q < me) before += p + q + 1;
      total += p + q + 1;
    }
    const Bytes part =
        Part(Input(p, total, DataType::kF32), 4 * before, 4 * receive.back());
    expected.insert(expected.end(), part.begin(), part.end());
  }
  int64_t total = 0;
  for (int64_t count : send) total += count;
  return rank.Hold(world, Input(me, total, DataType::kF32), expected,
                   Call::AllToAllUneven(DataType::kF32, rank.in(), rank.out(),
                                        send, receive));
}

// Around the ring, both ways, in one batch.
absl::Status HoldTransfers(Rank& rank) {
  Collective& world = rank.world();
  const int n = world.size(), me = world.rank();
  const int right = (me + 1) % n, left = (me + n - 1) % n;
  constexpr int64_t kBytes = 1000;
  Bytes expected = Input(left, kBytes, DataType::kBytes);
  const Bytes more = Input(right, kBytes, DataType::kBytes);
  expected.insert(expected.end(), more.begin(), more.end());
  Call call = Call::Transfers(
      {collective::SendTo(right, rank.in(), kBytes),
       collective::ReceiveFrom(left, rank.out(), kBytes),
       collective::SendTo(left, rank.in(), kBytes),
       collective::ReceiveFrom(right, rank.out() + kBytes, kBytes)});
  call.out = rank.out();
  return rank.Hold(world, Input(me, kBytes, DataType::kBytes), expected, call);
}

// Groups of even and odd ranks, and a group of all that runs a call meanwhile.
absl::Status HoldGroups(Rank& rank) {
  Collective& world = rank.world();
  const int n = world.size(), me = world.rank();
  ASSIGN_OR_RETURN(auto half, world.Split(me % 2, "half"));
  ASSIGN_OR_RETURN(auto all, world.Split(0, "all"));
  ASSIGN_OR_RETURN(auto without, world.Split(me == 0 ? -1 : 1, "without"));
  if ((without == nullptr) != (me == 0) || half->rank() != me / 2) {
    return absl::InternalError("a group has the wrong ranks");
  }
  constexpr int64_t kCount = 5000;
  const Bytes input = Input(me, kCount, DataType::kF32);
  Bytes expected(input.size());
  for (int64_t i = 0; i < kCount; ++i) {
    int sum = 0;
    for (int r = me % 2; r < n; r += 2) sum += Number(r, i);
    Store(sum, DataType::kF32, i, expected);
  }
  char* const elsewhere = rank.out() + input.size();
  rank.ops().FromHost(input.size(), input.data(), elsewhere);
  collective::Pending later = all->Start(Call::AllReduce(
      DataType::kF32, Reduction::kSum, elsewhere, elsewhere, kCount));
  RETURN_IF_ERROR(rank.Hold(*half, input, expected,
                            Call::AllReduce(DataType::kF32, Reduction::kSum,
                                            rank.in(), rank.out(), kCount)));
  RETURN_IF_ERROR(later.Wait());
  Call done = Call::AllReduce(DataType::kF32, Reduction::kSum, elsewhere,
                              elsewhere, kCount);
  return rank.HoldOut(Reduced(n, kCount, DataType::kF32, Reduction::kSum),
                      done);
}

absl::Status MeasureAllReduce(Rank& rank, Report& report) {
  Collective& world = rank.world();
  const Call call = Call::AllReduce(DataType::kF32, Reduction::kSum, rank.in(),
                                    rank.out(), kSpeedCount);
  RETURN_IF_ERROR(world.Run(call));
  RETURN_IF_ERROR(world.Barrier());
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kSpeedRuns; ++i) RETURN_IF_ERROR(world.Run(call));
  RETURN_IF_ERROR(rank.ops().Synchronize());
  RETURN_IF_ERROR(world.Barrier());
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count() /
      kSpeedRuns;
  if (world.rank() != 0) return absl::OkStatus();
  report.Measure("all-reduce on one device",
                 {{"ranks", absl::StrCat(world.size())},
                  {"bytes", absl::StrCat(kSpeedCount * sizeof(float))},
                  {"seconds", absl::StrCat(seconds)}});
  return absl::OkStatus();
}

// The last rank makes another call while three groups have calls in flight, as
// in training. All get an error from every call, and the world ends.
absl::Status HoldMismatch(Rank& rank) {
  Collective& world = rank.world();
  const int n = world.size(), me = world.rank();
  ASSIGN_OR_RETURN(const auto gather, world.Split(0, "gather"));
  ASSIGN_OR_RETURN(const auto reduce, world.Split(0, "reduce"));
  ASSIGN_OR_RETURN(const auto tp, world.Split(0, "tp"));
  constexpr auto kType = DataType::kF32;
  constexpr auto kSum = Reduction::kSum;
  // Quarters of the buffers: the calls share no memory.
  constexpr int64_t kQuarter = kSpeedCount / 4;
  auto* const in = reinterpret_cast<float*>(rank.in());
  auto* const out = reinterpret_cast<float*>(rank.out());
  std::vector<collective::Pending> pending;
  pending.push_back(
      gather->Start(Call::AllGather(kType, in, out, kQuarter / n)));
  pending.push_back(reduce->Start(Call::ReduceScatter(
      kType, kSum, in + kQuarter, out + kQuarter, kQuarter / n)));
  pending.push_back(tp->Start(Call::AllReduce(kType, kSum, in + 2 * kQuarter,
                                              out + 2 * kQuarter, kQuarter)));
  const absl::Status status = world.Run(Call::AllReduce(
      kType, kSum, in + 3 * kQuarter, out + 3 * kQuarter, me == n - 1 ? 8 : 9));
  if (status.code() != absl::StatusCode::kInvalidArgument &&
      status.code() != absl::StatusCode::kUnavailable) {
    return absl::InternalError(
        absl::StrCat("mismatched calls ended with ", status.ToString()));
  }
  for (collective::Pending& one : pending) {
    if (!one.Wait().ok()) continue;
    return absl::InternalError("a call in flight ended with OK");
  }
  for (Collective* group : {&world, gather.get(), reduce.get(), tp.get()}) {
    if (!group->Barrier().ok()) continue;
    return absl::InternalError(
        absl::StrCat(group->name(), " went on after an error"));
  }
  return rank.ops().Synchronize();
}

}  // namespace

void CheckNccl(const NcclRank& at, Report& report) {
  const std::string prefix =
      absl::StrCat("nccl ", at.size, " ranks on one device, rank ", at.rank);
  const auto check = [&](const std::string& what,
                         absl::FunctionRef<absl::Status()> run) {
    return report.Check(absl::StrCat(prefix, ": ", what), run);
  };
  absl::StatusOr<std::unique_ptr<Rank>> joined;
  if (!check("join", [&] {
        joined = Rank::Join(at);
        return joined.status();
      })) {
    return;
  }
  Rank& rank = **joined;
  check("barrier", [&] { return rank.world().Barrier(); });
  for (DataType type : {DataType::kF32, DataType::kBf16, DataType::kBytes}) {
    const char* const name = type == DataType::kF32    ? "f32"
                             : type == DataType::kBf16 ? "bf16"
                                                       : "bytes";
    for (int64_t count : {int64_t{1}, int64_t{777}, kCountMax}) {
      const std::string suffix = absl::StrCat(count, " ", name);
      check(absl::StrCat("moves of ", suffix),
            [&] { return HoldMoves(rank, count, type); });
      if (type == DataType::kBytes) continue;
      check(absl::StrCat("reductions of ", suffix),
            [&] { return HoldReductions(rank, count, type); });
    }
  }
  check("an uneven all-to-all", [&] { return HoldUneven(rank); });
  check("sends and receives", [&] { return HoldTransfers(rank); });
  check("groups", [&] { return HoldGroups(rank); });
  check("speed", [&] { return MeasureAllReduce(rank, report); });
  check("ranks that differ", [&] { return HoldMismatch(rank); });
}

}  // namespace atl::engine::check
