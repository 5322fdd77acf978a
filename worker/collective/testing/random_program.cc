#include "worker/collective/testing/random_program.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace atl::collective {
namespace {

using ByteVector = std::vector<uint8_t>;

// Values as f32, before they are stored in the type.
float Tree(const std::vector<float>& values, int begin, int end, bool sum) {
  if (end - begin == 1) return values[begin];
  int power = 1;
  while (power * 2 < end - begin) power *= 2;
  const float a = Tree(values, begin, begin + power, sum);
  const float b = Tree(values, begin + power, end, sum);
  if (sum) return a + b;
  return a > b ? a : b;
}

float Load(const ByteVector& data, int64_t i, DataType type) {
  if (type == DataType::kF32) {
    float value;
    std::memcpy(&value, &data[4 * i], 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, &data[2 * i], 2);
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

void Store(float value, int64_t i, DataType type, ByteVector& data) {
  if (type == DataType::kF32) {
    std::memcpy(&data[4 * i], &value, 4);
    return;
  }
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rest = bits & 0xffff;
  auto high = static_cast<uint16_t>(bits >> 16);
  if (rest > 0x8000 || (rest == 0x8000 && (high & 1))) ++high;
  std::memcpy(&data[2 * i], &high, 2);
}

// SplitMix64: cheap, because every rank makes the inputs of all.
uint64_t Next(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// `count` elements of `rank` in step `step`.
ByteVector Input(uint64_t seed, int step, int rank, int64_t count,
                 DataType type) {
  uint64_t state = seed * 1000003 + step * 1009 + rank;
  const auto random = [&state] { return Next(state); };
  ByteVector data(count * ElementBytes(type));
  if (type == DataType::kBytes) {
    for (uint8_t& byte : data) byte = static_cast<uint8_t>(random());
    return data;
  }
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = random();
    const float unit = static_cast<float>(bits >> 40) / (1 << 24) - 0.5f;
    Store(std::ldexp(unit, static_cast<int>(bits % 16)), i, type, data);
  }
  return data;
}

// A call with its buffers and the expected contents of `out`.
struct Step {
  Call call;
  ByteVector in;
  ByteVector out;
  std::vector<ByteVector> others;  // Buffers of transfers.
  ByteVector expected;
  bool in_place = false;
  bool checks = true;
  Pending pending;
};

class Program {
 public:
  Program(uint64_t seed, int64_t count_max, Collective& collective)
      : seed_(seed),
        count_max_(count_max),
        collective_(collective),
        n_(collective.size()),
        me_(collective.rank()),
        random_(seed) {}

  void Run(int call_count) {
    std::vector<std::unique_ptr<Step>> open;
    for (int i = 0; i < call_count; ++i) {
      auto step = Make(i);
      if (random_() % 3 == 0) {
        step->pending = collective_.Start(step->call);
        open.push_back(std::move(step));
      } else {
        const absl::Status status = collective_.Run(step->call);
        ASSERT_TRUE(status.ok()) << status << " in step " << i;
        Check(i, *step);
      }
      if (random_() % 4 == 0 || i + 1 == call_count) {
        for (auto& started : open) {
          const absl::Status status = started->pending.Wait();
          ASSERT_TRUE(status.ok()) << status << " before step " << i;
          Check(i, *started);
        }
        open.clear();
      }
    }
  }

 private:
  void Check(int i, const Step& step) {
    if (!step.checks) return;
    const ByteVector& out = step.in_place ? step.in : step.out;
    ASSERT_TRUE(std::equal(step.expected.begin(), step.expected.end(),
                           out.begin() + offset_of(step)))
        << Describe(step.call) << " on rank " << me_ << " of " << n_
        << ", around step " << i << ", seed " << seed_;
  }
  size_t offset_of(const Step& step) const {
    return step.in_place && step.call.kind == CallKind::kReduceScatter
               ? me_ * step.expected.size()
               : 0;
  }

  ByteVector In(int step, int rank, int64_t count, DataType type) const {
    return Input(seed_, step, rank, count, type);
  }

  ByteVector Reduced(int step, int64_t count, DataType type, bool sum) const {
    std::vector<ByteVector> inputs;
    for (int r = 0; r < n_; ++r) inputs.push_back(In(step, r, count, type));
    ByteVector out(count * ElementBytes(type));
    std::vector<float> values(n_);
    for (int64_t i = 0; i < count; ++i) {
      for (int r = 0; r < n_; ++r) values[r] = Load(inputs[r], i, type);
      Store(Tree(values, 0, n_, sum), i, type, out);
    }
    return out;
  }

  std::unique_ptr<Step> Make(int i) {
    auto step = std::make_unique<Step>();
    const auto kind = static_cast<CallKind>(random_() % 10);
    const int64_t count =
        random_() % 5 == 0 ? random_() % 3 : random_() % (count_max_ + 1);
    auto type = static_cast<DataType>(random_() % 3);
    const bool sum = random_() % 2 == 0;
    const int root = static_cast<int>(random_() % n_);
    const bool in_place = random_() % 2 == 0;
    const bool reduces = kind == CallKind::kReduce ||
                         kind == CallKind::kReduceScatter ||
                         kind == CallKind::kAllReduce;
    if (reduces && type == DataType::kBytes) type = DataType::kF32;
    if (reduces) {
      MakeReduction(i, kind, type, sum, count, root, in_place, *step);
    } else if (kind == CallKind::kAllToAll) {
      MakeAllToAll(i, type, count, in_place, *step);
    } else if (kind == CallKind::kTransfers) {
      MakeTransfers(i, count, *step);
    } else {
      MakeMove(i, kind, type, count, root, *step);
    }
    return step;
  }

  void MakeReduction(int i, CallKind kind, DataType type, bool sum,
                     int64_t count, int root, bool in_place, Step& step) {
    const size_t bytes = count * ElementBytes(type);
    const Reduction op = sum ? Reduction::kSum : Reduction::kMax;
    const bool scatters = kind == CallKind::kReduceScatter;
    step.in = In(i, me_, scatters ? n_ * count : count, type);
    step.out.resize(bytes + 1);
    step.in_place = in_place;
    void* out = in_place ? step.in.data() + (scatters ? me_ * bytes : 0)
                         : step.out.data();
    const ByteVector all = Reduced(i, scatters ? n_ * count : count, type, sum);
    if (scatters) {
      step.expected.assign(all.begin() + me_ * bytes,
                           all.begin() + (me_ + 1) * bytes);
      step.call = Call::ReduceScatter(type, op, step.in.data(), out, count);
    } else if (kind == CallKind::kReduce) {
      step.checks = me_ == root;
      step.expected = all;
      step.call = Call::Reduce(type, op, step.in.data(), out, count, root);
    } else {
      step.expected = all;
      step.call = Call::AllReduce(type, op, step.in.data(), out, count);
    }
  }

  void MakeMove(int i, CallKind kind, DataType type, int64_t count, int root,
                Step& step) {
    const size_t bytes = count * ElementBytes(type);
    step.in = In(i, me_, n_ * count, type);
    step.out.assign(n_ * bytes + 1, 0xee);
    switch (kind) {
      case CallKind::kBroadcast:
        step.expected = In(i, root, count, type);
        if (me_ == root) step.out = step.expected;
        step.out.resize(bytes + 1);
        step.call = Call::Broadcast(type, step.out.data(), count, root);
        break;
      case CallKind::kScatter: {
        const ByteVector all = In(i, root, n_ * count, type);
        step.expected.assign(all.begin() + me_ * bytes,
                             all.begin() + (me_ + 1) * bytes);
        step.call =
            Call::Scatter(type, step.in.data(), step.out.data(), count, root);
        break;
      }
      case CallKind::kGather:
      case CallKind::kAllGather:
        for (int r = 0; r < n_; ++r) {
          const ByteVector part = In(i, r, n_ * count, type);
          step.expected.insert(step.expected.end(), part.begin(),
                               part.begin() + bytes);
        }
        step.checks = kind == CallKind::kAllGather || me_ == root;
        step.call =
            kind == CallKind::kGather
                ? Call::Gather(type, step.in.data(), step.out.data(), count,
                               root)
                : Call::AllGather(type, step.in.data(), step.out.data(), count);
        break;
      default:
        step.call = Call::Barrier();
    }
  }

  void MakeAllToAll(int i, DataType type, int64_t count, bool even,
                    Step& step) {
    const size_t element = ElementBytes(type);
    std::vector<std::vector<int64_t>> counts(n_, std::vector<int64_t>(n_));
    for (auto& row : counts) {
      for (int64_t& c : row) c = even ? count : random_() % (count + 1);
    }
    std::vector<int64_t> receive_counts(n_);
    for (int from = 0; from < n_; ++from) {
      int64_t before = 0;
      int64_t total = 0;
      for (int to = 0; to < n_; ++to) {
        if (to < me_) before += counts[from][to];
        total += counts[from][to];
      }
      const ByteVector in = In(i, from, total, type);
      if (from == me_) step.in = in;
      receive_counts[from] = counts[from][me_];
      step.expected.insert(step.expected.end(), in.begin() + before * element,
                           in.begin() + (before + counts[from][me_]) * element);
    }
    step.in.push_back(0);
    step.out.resize(step.expected.size() + 1);
    step.call =
        even ? Call::AllToAll(type, step.in.data(), step.out.data(), count)
             : Call::AllToAllUneven(type, step.in.data(), step.out.data(),
                                    counts[me_], receive_counts);
  }

  // Around a ring in both directions, twice to the right, in an order that
  // differs by rank.
  void MakeTransfers(int i, int64_t count, Step& step) {
    if (n_ == 1) return;
    const int right = (me_ + 1) % n_;
    const int left = (me_ + n_ - 1) % n_;
    const ByteVector from_left = In(i, left, 3 * count, DataType::kBytes);
    const ByteVector from_right = In(i, right, 3 * count, DataType::kBytes);
    step.in = In(i, me_, 3 * count, DataType::kBytes);
    step.out.resize(3 * count + 1);
    std::vector<Transfer> batch = {
        SendTo(right, step.in.data(), count),
        SendTo(right, step.in.data() + count, count),
        ReceiveFrom(left, step.out.data(), count),
        ReceiveFrom(left, step.out.data() + count, count),
    };
    step.expected.assign(from_left.begin(), from_left.begin() + 2 * count);
    if (n_ > 2) {
      batch.push_back(SendTo(left, step.in.data() + 2 * count, count));
      batch.push_back(ReceiveFrom(right, step.out.data() + 2 * count, count));
      step.expected.insert(step.expected.end(), from_right.begin() + 2 * count,
                           from_right.end());
    }
    if (me_ % 2 == 1) {
      std::rotate(batch.begin(), batch.begin() + 2, batch.end());
    }
    step.call = Call::Transfers(std::move(batch));
  }

  const uint64_t seed_;
  const int64_t count_max_;
  Collective& collective_;
  const int n_;
  const int me_;
  std::mt19937_64 random_;
};

}  // namespace

void RunRandomProgram(uint64_t seed, int call_count, int64_t count_max,
                      Collective& collective) {
  Program(seed, count_max, collective).Run(call_count);
}

}  // namespace atl::collective
