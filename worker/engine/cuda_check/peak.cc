#include "worker/engine/cuda_check/peak.h"

#include <bit>
#include <cstdint>
#include <memory>
#include <random>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "base/status/status_macros.h"
#include "worker/engine/cuda_check/speed.h"
#include "worker/engine/ops/cuda/lt_matmul.h"
#include "worker/engine/ops/cuda/matmul.h"
#include "worker/engine/tensor/arena.h"

namespace atl::engine::check {
namespace {

constexpr int64_t kSize = 8192;
constexpr int64_t kCount = kSize * kSize;
constexpr int kRuns = 20;

// Stores v as f32, or as bfloat16: its upper half.
void Set(float v, float& to) { to = v; }
void Set(float v, uint16_t& to) {
  to = static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16);
}

// Not zeros, which make a device's products faster.
template <typename Element>
std::vector<Element> RandomValues() {
  std::vector<Element> values(kCount);
  std::minstd_rand random(1);
  for (Element& value : values) {
    Set(static_cast<float>(random() % 2001) / 1000.0f - 1.0f, value);
  }
  return values;
}

template <typename Element>
absl::StatusOr<double> Measure(cuda::CudaOps& ops) {
  constexpr bool kIsBf16 = std::is_same_v<Element, uint16_t>;
  Element* x = nullptr;
  Element* w = nullptr;
  float* y = nullptr;
  const auto take = [&](Arena& arena) {
    x = arena.Take<Element>(kCount);
    w = arena.Take<Element>(kCount);
    y = arena.Take<float>(kCount);
  };
  ASSIGN_OR_RETURN(const Arena arena, Arena::CreateFor(take, ops.memory()));
  const std::vector<Element> values = RandomValues<Element>();
  for (Element* to : {x, w}) {
    ops.FromHost(kCount * sizeof(Element), values.data(), to);
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<cuda::Matmul> matmul,
                   cuda::MakeLtMatmul(ops.device()));
  const auto multiply = [&](int times) -> absl::Status {
    for (int i = 0; i < times; ++i) {
      RETURN_IF_ERROR(matmul->Multiply(
          ops.stream(), cuda::ProductKind::kLinear, kSize, kSize, kSize,
          kIsBf16, w, x, y, /*accumulate=*/false));
    }
    return ops.Synchronize();
  };
  RETURN_IF_ERROR(multiply(3));
  const double start = Seconds();
  RETURN_IF_ERROR(multiply(kRuns));
  const double seconds = (Seconds() - start) / kRuns;
  return 2.0 * static_cast<double>(kSize) * static_cast<double>(kCount) /
         seconds;
}

}  // namespace

absl::StatusOr<double> MeasurePeak(ComputeType compute, cuda::CudaOps& ops) {
  return compute == ComputeType::kBf16 ? Measure<uint16_t>(ops)
                                       : Measure<float>(ops);
}

}  // namespace atl::engine::check
