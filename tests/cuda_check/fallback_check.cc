#include "tests/cuda_check/device_checks.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "worker/engine/model/decoder.h"
#include "worker/engine/ops/cuda/cudnn_attention.h"
#include "worker/engine/ops/cuda/plan/product_plan.h"
#include "worker/engine/ops/shapes.h"
#include "worker/engine/tensor/arena.h"

namespace atl::engine::check {
namespace {

using cuda::ProductKind;

constexpr std::pair<ProductKind, const char*> kProducts[] = {
    {ProductKind::kLinear, "y = x w"},
    {ProductKind::kBackwardInput, "dx = dy w"},
    {ProductKind::kBackwardWeight, "dw = dy x"},
};

// Zeros for parameters and tokens: only the shapes matter.
absl::Status TakeStep(const SpeedShape& shape, Ops& ops) {
  ModelConfig config = shape.config;
  config.layer_count = 1;
  const int64_t rows = shape.batch * config.sequence_length_max;
  ASSIGN_OR_RETURN(auto decoder, Decoder<float>::Create(config, rows, ops));
  const int64_t count = decoder->layout().element_count;
  float *parameters = nullptr, *gradients = nullptr;
  const auto take = [&](Arena& arena) {
    parameters = arena.Take<float>(count);
    gradients = arena.Take<float>(count);
  };
  ASSIGN_OR_RETURN(const Arena arena, Arena::CreateFor(take, ops.memory()));
  ops.SetZero(count, parameters);
  const std::vector<int32_t> tokens(rows, 0);
  decoder->ForwardBackward(parameters,
                           {.batch = shape.batch,
                            .sequence_length = config.sequence_length_max,
                            .inputs = tokens.data(),
                            .targets = tokens.data()},
                           gradients);
  return ops.status();
}

}  // namespace

void CheckCudnn(Report& report) {
  report.Check("cuDNN loads", [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const auto attention, cuda::MakeCudnnAttention());
    report.Measure("cuDNN", {{"say", JsonString(attention->name())}});
    return absl::OkStatus();
  });
}

void CheckFallbacks(
    ComputeType compute,
    absl::FunctionRef<std::unique_ptr<cuda::CudaOps>()> make_ops,
    Report& report) {
  for (const SpeedShape& shape : SpeedShapes()) {
    const auto ops = make_ops();
    if (ops == nullptr) return;
    const bool is_bf16 = compute == ComputeType::kBf16;
    const std::string name =
        absl::StrCat(shape.name, is_bf16 ? " bf16" : " f32");
    if (!report.Check(absl::StrCat("one layer of ", name),
                      [&] { return TakeStep(shape, *ops); })) {
      continue;
    }
    const std::map<ProductKind, std::string> fallbacks =
        ops->product_fallbacks();
    for (const auto& [kind, formula] : kProducts) {
      const auto found = fallbacks.find(kind);
      report.Check(absl::StrCat(formula, " of ", name, " by cuBLASLt"),
                   found == fallbacks.end()
                       ? absl::OkStatus()
                       : absl::UnimplementedError(found->second));
    }
    if (!is_bf16) continue;
    report.Check(absl::StrCat("attention of ", name, " by cuDNN"),
                 ops->AttentionLibrary(AttentionOf(shape)).status());
  }
}

}  // namespace atl::engine::check
