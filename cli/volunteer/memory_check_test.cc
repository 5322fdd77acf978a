#include "cli/volunteer/memory_check.h"

#include "absl/strings/match.h"
#include "cli/output/error.h"
#include "gtest/gtest.h"
#include "worker/api/planner.h"

namespace atl::cli {
namespace {

v1::RunSpec Llama() {
  v1::RunSpec spec;
  v1::ModelSpec& model = *spec.mutable_model();
  model.set_architecture("llama");
  model.set_vocab_size(256);
  model.set_hidden_size(512);
  model.set_intermediate_size(1376);
  model.set_layer_count(8);
  model.set_head_count(8);
  model.set_kv_head_count(8);
  model.set_sequence_length(128);
  model.set_rope_theta(10000);
  model.set_rms_norm_eps(1e-5);
  spec.mutable_inner()->set_optimizer(v1::INNER_OPTIMIZER_KIND_ADAMW);
  spec.mutable_inner()->set_batch_size(4);
  *spec.mutable_layout() = worker::BuildLayout(model).value();
  return spec;
}

// 25.6 million parameters: parameters, gradients, moments and anchors in f32
// are 0.5 GB alone.
TEST(MemoryCheckTest, RefusesARunThatNeedsMoreThanIsLent) {
  EXPECT_TRUE(CheckMemory(Llama(), 2'000'000'000).ok());
  const absl::Status refused = CheckMemory(Llama(), 500'000'000);
  EXPECT_EQ(ToExitCode(refused), ExitCode::kPreflightFailed);
  EXPECT_EQ(GetReason(refused), "TOO_LITTLE_MEMORY");
  EXPECT_TRUE(absl::StrContains(refused.message(), "--memory lends 500.0 MB"));
}

TEST(MemoryCheckTest, OnlyItsTrainerKnowsAnExternalModel) {
  v1::RunSpec spec;
  spec.mutable_model()->set_architecture("external");
  EXPECT_TRUE(CheckMemory(spec, 1).ok());
}

}  // namespace
}  // namespace atl::cli
