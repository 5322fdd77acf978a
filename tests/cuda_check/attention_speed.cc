#include "tests/cuda_check/device_checks.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "worker/engine/ops/shapes.h"
#include "worker/engine/tensor/arena.h"

namespace atl::engine::check {
namespace {

constexpr int kWarmUps = 3;
constexpr int kRuns = 20;

// The median time of `queue`, including the wait for its work.
absl::StatusOr<double> Median(cuda::CudaOps& ops,
                              absl::FunctionRef<void()> queue) {
  std::vector<double> seconds;
  for (int i = 0; i < kWarmUps + kRuns; ++i) {
    const double start = Seconds();
    queue();
    RETURN_IF_ERROR(ops.Synchronize());
    if (i >= kWarmUps) seconds.push_back(Seconds() - start);
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace

absl::Status MeasureAttention(const SpeedShape& shape, cuda::CudaOps& ops,
                              Report& report) {
  const AttentionShape s = AttentionOf(shape);
  const int64_t qkv_count = s.rows() * s.qkv_size();
  const int64_t out_count = s.rows() * s.out_size();
  float *qkv = nullptr, *dqkv = nullptr, *out = nullptr, *log_sum = nullptr;
  const auto take = [&](Arena& arena) {
    qkv = arena.Take<float>(qkv_count);
    dqkv = arena.Take<float>(qkv_count);
    out = arena.Take<float>(out_count);
    log_sum = arena.Take<float>(s.rows() * s.head_count);
  };
  ASSIGN_OR_RETURN(const Arena arena, Arena::CreateFor(take, ops.memory()));
  std::minstd_rand random(1);
  std::vector<float> values(qkv_count);
  for (float& value : values) {
    value = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
  }
  ops.WriteValues(qkv_count, values.data(), qkv);
  ASSIGN_OR_RETURN(const double forward,
                   Median(ops, [&] { ops.Attention(s, qkv, out, log_sum); }));
  ASSIGN_OR_RETURN(const double backward, Median(ops, [&] {
                     ops.AttentionBackward(s, qkv, out, log_sum, out, dqkv);
                   }));
  // Forward has two products of half a square each, backward five.
  const double product =
      static_cast<double>(out_count) * static_cast<double>(s.sequence_length);
  const absl::StatusOr<std::string> library = ops.AttentionLibrary(s);
  report.Measure(
      "attention",
      {{"case", JsonString(shape.name)},
       {"forward_by", JsonString(library.ok() ? *library : "kernels of ours")},
       {"because", JsonString(library.status().message())},
       {"forward_seconds", absl::StrCat(forward)},
       {"forward_tflops", absl::StrCat(2 * product / forward / 1e12)},
       {"backward_seconds", absl::StrCat(backward)},
       {"backward_tflops", absl::StrCat(5 * product / backward / 1e12)}});
  return absl::OkStatus();
}

}  // namespace atl::engine::check
