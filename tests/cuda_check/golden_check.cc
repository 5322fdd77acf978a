#include "tests/cuda_check/device_checks.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "worker/engine/ops/cuda/make_cuda_ops.h"
#include "worker/engine/testing/golden.h"
#include "worker/engine/trainer.h"

namespace atl::engine::check {
namespace {

constexpr int kSteps = 5;

// A NaN is not near.
absl::Status HoldNear(double value, double expected, double bound,
                      absl::string_view what) {
  if (std::abs(value - expected) <= bound) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, " is ", value, ", PyTorch's ",
                                          expected, "; bound ", bound));
}

absl::Status HoldGolden(const GoldenCase& golden, ComputeType compute,
                        int device) {
  const bool is_f32 = compute == ComputeType::kF32;
  TrainerOptions options;
  options.model = golden.config;
  options.schedule = GoldenSchedule();
  options.batch_size = golden.batch_size;
  options.sequence_length = golden.sequence_length;
  ASSIGN_OR_RETURN(auto ops, cuda::MakeCudaOps(device, compute));
  ASSIGN_OR_RETURN(const auto trainer,
                   Trainer::CreateOn(options, std::move(ops)));
  const std::vector<float> parameters = GoldenParameters(golden);
  std::copy(parameters.begin(), parameters.end(),
            trainer->parameters().begin());
  RETURN_IF_ERROR(trainer->Scatter());
  const GoldenResults expected = ReadGoldenResults(golden);
  for (int step = 0; step < kSteps; ++step) {
    const GoldenTokens tokens = MakeGoldenTokens(golden, step);
    ASSIGN_OR_RETURN(const float loss,
                     trainer->Step(tokens.inputs, tokens.targets, step));
    const double value = expected.step_losses[step];
    RETURN_IF_ERROR(HoldNear(loss, value, is_f32 ? 2e-5 * value : 0.04,
                             absl::StrCat("the loss of step ", step)));
    if (step > 0 || !is_f32) continue;
    RETURN_IF_ERROR(HoldNear(trainer->gradient_norm(), expected.gradient_norm,
                             2e-5 * expected.gradient_norm,
                             "the gradient's norm"));
  }
  return absl::OkStatus();
}

}  // namespace

void CheckGolden(int device, Report& report) {
  const std::vector<GoldenCase> all = GoldenCases();
  for (const GoldenCase& golden : all) {
    report.Check(absl::StrCat("golden f32: ", golden.name), [&] {
      return HoldGolden(golden, ComputeType::kF32, device);
    });
  }
  report.Check(absl::StrCat("golden bf16: ", all[0].name), [&] {
    return HoldGolden(all[0], ComputeType::kBf16, device);
  });
}

}  // namespace atl::engine::check
