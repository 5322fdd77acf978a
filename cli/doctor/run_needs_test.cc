#include "cli/doctor/run_needs.h"

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

v1::RunSpec Spec() {
  v1::RunSpec spec;
  v1::ModelSpec& model = *spec.mutable_model();
  model.set_architecture("llama");
  model.set_vocab_size(256);
  model.set_hidden_size(64);
  model.set_intermediate_size(176);
  model.set_layer_count(2);
  model.set_head_count(4);
  model.set_kv_head_count(4);
  model.set_sequence_length(64);
  model.set_rope_theta(10000);
  model.set_rms_norm_eps(1e-5);
  spec.mutable_inner()->set_batch_size(4);
  spec.mutable_inner()->set_optimizer(v1::INNER_OPTIMIZER_KIND_ADAMW);
  spec.mutable_layout()->set_fragment_count(1);
  spec.mutable_layout()->add_tensors()->add_shape(1'000'000);
  return spec;
}

TEST(RunNeedsTest, ALargerModelNeedsMore) {
  v1::RunSpec spec = Spec();
  const auto small = ComputeRunNeeds(spec);
  ASSERT_TRUE(small.ok()) << small.status();
  EXPECT_FALSE(small->is_external);
  EXPECT_FALSE(small->fetches_data);
  spec.mutable_model()->set_hidden_size(128);
  const auto large = ComputeRunNeeds(spec);
  ASSERT_TRUE(large.ok());
  EXPECT_GT(large->memory_bytes, small->memory_bytes);
  EXPECT_GT(large->disk_bytes, small->disk_bytes);
}

TEST(RunNeedsTest, OfAnExternalModelOnlyTheExchangeIsOurs) {
  v1::RunSpec spec = Spec();
  spec.mutable_model()->Clear();
  spec.mutable_model()->set_architecture("external");
  const auto needs = ComputeRunNeeds(spec);
  ASSERT_TRUE(needs.ok()) << needs.status();
  EXPECT_TRUE(needs->is_external);
  EXPECT_GT(needs->memory_bytes, 8'000'000);
}

TEST(RunNeedsTest, AModelOfAnotherKindIsUnknown) {
  v1::RunSpec spec = Spec();
  spec.mutable_model()->set_architecture("mystery");
  EXPECT_EQ(ComputeRunNeeds(spec).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(RunNeedsTest, DataByUrlIsFetched) {
  v1::RunSpec spec = Spec();
  spec.mutable_data()->set_url("https://data.example.org/manifest.json");
  EXPECT_TRUE(ComputeRunNeeds(spec)->fetches_data);
}

}  // namespace
}  // namespace atl::cli
