#include "worker/collective/reduction.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace atl::collective {
namespace {

// Elements of a block, the tree's scratch for more than 8 inputs.
constexpr int64_t kBlock = 512;
constexpr int kFusedMax = 8;

// Wide: the type of the tree's arithmetic.
template <typename T>
struct Same {
  using Element = T;
  using Wide = T;
  static T Load(T value) { return value; }
  static T Store(T value) { return value; }
};
using F32 = Same<float>;
using F64 = Same<double>;

struct Bf16 {
  using Element = uint16_t;
  using Wide = float;
  static float Load(uint16_t bits) {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
  static uint16_t Store(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const uint32_t nan = (bits >> 16) | 0x40;
    return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? nan
                                                                  : rounded);
  }
};

struct Sum {
  template <typename T>
  static T Of(T a, T b) {
    return a + b;
  }
};

struct Max {
  template <typename T>
  static T Of(T a, T b) {
    return a > b || a != a ? a : b;
  }
};

constexpr int ChooseSplit(int count) {
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>(count)) / 2);
}

// Computes R(kBegin, kEnd) of element i.
template <typename T, typename Op, int kBegin, int kEnd>
inline typename T::Wide Tree(const typename T::Element* const* in, int64_t i) {
  if constexpr (kEnd - kBegin == 1) {
    return T::Load(in[kBegin][i]);
  } else {
    constexpr int kMiddle = kBegin + ChooseSplit(kEnd - kBegin);
    return Op::Of(Tree<T, Op, kBegin, kMiddle>(in, i),
                  Tree<T, Op, kMiddle, kEnd>(in, i));
  }
}

// Out is T, or the wide type within a larger tree.
template <typename T, typename Out, typename Op, int kCount>
void Fused(const typename T::Element* const* inputs, int64_t count,
           typename Out::Element* out) {
  const typename T::Element* in[kCount];
  std::copy(inputs, inputs + kCount, in);
  // `out` may be one of the inputs; elements do not depend on each other.
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    out[i] = Out::Store(Tree<T, Op, 0, kCount>(in, i));
  }
}

template <typename T, typename Out, typename Op>
void RunFused(int n, const typename T::Element* const* in, int64_t count,
              typename Out::Element* out) {
  switch (n) {
    case 1:
      return Fused<T, Out, Op, 1>(in, count, out);
    case 2:
      return Fused<T, Out, Op, 2>(in, count, out);
    case 3:
      return Fused<T, Out, Op, 3>(in, count, out);
    case 4:
      return Fused<T, Out, Op, 4>(in, count, out);
    case 5:
      return Fused<T, Out, Op, 5>(in, count, out);
    case 6:
      return Fused<T, Out, Op, 6>(in, count, out);
    case 7:
      return Fused<T, Out, Op, 7>(in, count, out);
    default:
      return Fused<T, Out, Op, 8>(in, count, out);
  }
}

// R over in[0, n) of elements [first, first + count), count <= kBlock.
template <typename T, typename Op>
void Block(int n, const typename T::Element* const* in, int64_t first,
           int64_t count, typename T::Wide* out) {
  using Wide = typename T::Wide;
  if (n <= kFusedMax) {
    const typename T::Element* shifted[kFusedMax];
    for (int r = 0; r < n; ++r) shifted[r] = in[r] + first;
    RunFused<T, Same<Wide>, Op>(n, shifted, count, out);
    return;
  }
  const int middle = ChooseSplit(n);
  Wide right[kBlock];
  Block<T, Op>(middle, in, first, count, out);
  Block<T, Op>(n - middle, in + middle, first, count, right);
  for (int64_t i = 0; i < count; ++i) out[i] = Op::Of(out[i], right[i]);
}

template <typename T, typename Op>
void Reduce(absl::Span<const void* const> inputs, int64_t count, void* out) {
  using Element = typename T::Element;
  const int n = static_cast<int>(inputs.size());
  // Reads the array of void pointers as an array of element pointers.
  const auto* in = reinterpret_cast<const Element* const*>(inputs.data());
  auto* result = static_cast<Element*>(out);
  if (n <= kFusedMax) {
    RunFused<T, T, Op>(n, in, count, result);
    return;
  }
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t length = std::min(kBlock, count - first);
    typename T::Wide block[kBlock];
    Block<T, Op>(n, in, first, length, block);
    for (int64_t i = 0; i < length; ++i) {
      result[first + i] = T::Store(block[i]);
    }
  }
}

template <typename T>
void ReduceBy(Reduction reduction, absl::Span<const void* const> inputs,
              int64_t count, void* out) {
  if (reduction == Reduction::kSum) {
    Reduce<T, Sum>(inputs, count, out);
  } else {
    Reduce<T, Max>(inputs, count, out);
  }
}

}  // namespace

void ReduceInputs(DataType type, Reduction reduction,
                  absl::Span<const void* const> inputs, int64_t count,
                  void* out) {
  if (inputs.size() == 1) {
    if (inputs[0] != out && count > 0) {
      std::memcpy(out, inputs[0], count * ElementBytes(type));
    }
    return;
  }
  if (type == DataType::kF32) {
    ReduceBy<F32>(reduction, inputs, count, out);
  } else if (type == DataType::kF64) {
    ReduceBy<F64>(reduction, inputs, count, out);
  } else {
    ReduceBy<Bf16>(reduction, inputs, count, out);
  }
}

}  // namespace atl::collective
