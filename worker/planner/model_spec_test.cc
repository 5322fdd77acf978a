#include "worker/planner/model_spec.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "base/layout/layout.h"
#include "gtest/gtest.h"

namespace atl::worker {
namespace {

v1::ModelSpec Model() {
  v1::ModelSpec model;
  model.set_architecture("llama");
  model.set_vocab_size(256);
  model.set_hidden_size(32);
  model.set_intermediate_size(48);
  model.set_layer_count(6);
  model.set_head_count(4);
  model.set_kv_head_count(2);
  model.set_sequence_length(16);
  model.set_rope_theta(10000);
  model.set_rms_norm_eps(1e-5);
  return model;
}

int32_t FindFragment(const v1::Layout& layout, const std::string& name) {
  for (const v1::TensorSpec& tensor : layout.tensors()) {
    if (tensor.name() == name) return tensor.fragment();
  }
  return -1;
}

TEST(ModelSpecTest, LayoutsAreOnesThatEveryoneAccepts) {
  for (const bool tied : {false, true}) {
    v1::ModelSpec model = Model();
    model.set_tie_embeddings(tied);
    const auto layout = BuildLayout(model);
    ASSERT_TRUE(layout.ok()) << layout.status();
    EXPECT_EQ(layout->tensors_size(), tied ? 56 : 57);
    EXPECT_TRUE(RunLayout::Create(*layout).ok());
    EXPECT_EQ(layout->tensors(0).tensor_class(), v1::TENSOR_CLASS_EMBEDDING);
  }
}

TEST(ModelSpecTest, DealsLayersToFragments) {
  const std::string norm = ".input_layernorm.weight";
  const auto strided = BuildLayout(Model(), 3);
  ASSERT_TRUE(strided.ok());
  EXPECT_EQ(FindFragment(*strided, "model.layers.0" + norm), 0);
  EXPECT_EQ(FindFragment(*strided, "model.layers.1" + norm), 1);
  EXPECT_EQ(FindFragment(*strided, "model.layers.5" + norm), 2);
  EXPECT_EQ(FindFragment(*strided, "model.embed_tokens.weight"), 0);
  EXPECT_EQ(FindFragment(*strided, "lm_head.weight"), 2);
  for (int32_t count = 1; count <= 6; ++count) {
    EXPECT_TRUE(RunLayout::Create(*BuildLayout(Model(), count)).ok());
  }
}

TEST(ModelSpecTest, BalancesNeighbouringLayersByBytes) {
  for (int32_t count = 1; count <= 6; ++count) {
    const v1::Layout layout =
        *BuildLayout(Model(), count, FragmentAssignment::kBalanced);
    const absl::StatusOr<RunLayout> run = RunLayout::Create(layout);
    ASSERT_TRUE(run.ok()) << run.status();
    // The embedding is in fragment 0, layers follow in order, then the head.
    int32_t before = 0;
    for (const v1::TensorSpec& tensor : layout.tensors()) {
      EXPECT_GE(tensor.fragment(), before) << tensor.name();
      before = tensor.fragment();
    }
    EXPECT_EQ(layout.tensors(0).fragment(), 0);
    EXPECT_EQ(before, count - 1);
    // At least as even as the other assignment, for equal layers.
    int64_t largest = 0, strided = 0;
    const RunLayout other = *RunLayout::Create(*BuildLayout(Model(), count));
    for (int32_t f = 0; f < count; ++f) {
      largest = std::max(largest, run->fragment_element_count(f));
      strided = std::max(strided, other.fragment_element_count(f));
    }
    EXPECT_LE(largest, strided);
  }
}

TEST(ModelSpecTest, DealsOtherArchitecturesInTheSameWay) {
  v1::ModelSpec model = Model();
  model.set_architecture("gpt2");
  model.set_kv_head_count(4);
  model.set_tie_embeddings(true);
  const auto gpt2 = BuildLayout(model, 3);
  ASSERT_TRUE(gpt2.ok()) << gpt2.status();
  EXPECT_TRUE(RunLayout::Create(*gpt2).ok());
  EXPECT_EQ(FindFragment(*gpt2, "transformer.wpe.weight"), 0);
  EXPECT_EQ(FindFragment(*gpt2, "transformer.h.4.ln_2.bias"), 1);
  EXPECT_EQ(FindFragment(*gpt2, "transformer.ln_f.bias"), 2);
  model = Model();
  model.set_architecture("mixtral");
  model.set_expert_count(3);
  model.set_experts_per_token(2);
  const auto mixture = BuildLayout(model, 3);
  ASSERT_TRUE(mixture.ok()) << mixture.status();
  EXPECT_TRUE(RunLayout::Create(*mixture).ok());
  EXPECT_EQ(FindFragment(*mixture,
                         "model.layers.1.block_sparse_moe.experts.2.w2.weight"),
            1);
}

TEST(ModelSpecTest, FragmentsAreCountedOrMadeOfLayers) {
  EXPECT_EQ(CountFragments(7, 0, 0), 1);
  EXPECT_EQ(CountFragments(7, 0, 4), 4);
  EXPECT_EQ(CountFragments(7, 3, 0), 3);
  EXPECT_EQ(CountFragments(6, 3, 0), 2);
  EXPECT_EQ(CountFragments(2, 3, 0), 1);
  EXPECT_EQ(CountFragments(7, 1, 24), 7);
  EXPECT_EQ(CountFragments(48, 1, 24), 24);
}

TEST(ModelSpecTest, AssignmentsHaveNames) {
  EXPECT_EQ(*ParseFragmentAssignment("strided"), FragmentAssignment::kStrided);
  EXPECT_EQ(*ParseFragmentAssignment("balanced"),
            FragmentAssignment::kBalanced);
  EXPECT_TRUE(
      absl::IsInvalidArgument(ParseFragmentAssignment("random").status()));
}

TEST(ModelSpecTest, RefusesMoreFragmentsThanLayers) {
  EXPECT_FALSE(BuildLayout(Model(), 7).ok());
  EXPECT_FALSE(BuildLayout(Model(), 0).ok());
}

TEST(ModelSpecTest, RefusesModelsThatItCannotBuild) {
  v1::ModelSpec model = Model();
  model.set_architecture("gpt");
  EXPECT_EQ(BuildLayout(model).status().code(),
            absl::StatusCode::kInvalidArgument);
  model.set_architecture("gpt2");  // Grouped heads, an untied head.
  EXPECT_EQ(BuildLayout(model).status().code(),
            absl::StatusCode::kInvalidArgument);
  model.set_architecture("mixtral");  // Without experts.
  EXPECT_EQ(BuildLayout(model).status().code(),
            absl::StatusCode::kInvalidArgument);
  model = Model();
  model.set_head_count(5);
  EXPECT_EQ(BuildLayout(model).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ModelSpecTest, SaysThatOnlyATrainerKnowsAnExternalModel) {
  v1::ModelSpec model;
  model.set_architecture("external");
  model.set_sequence_length(16);
  const absl::Status status = MakeModelConfig(model).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "external")) << status;
  EXPECT_EQ(BuildLayout(model).status(), status);
}

TEST(ModelSpecTest, TheScheduleSpansTheWholeRun) {
  v1::RunSpec spec;
  *spec.mutable_model() = Model();
  *spec.mutable_layout() = *BuildLayout(Model());
  spec.mutable_inner()->set_optimizer(v1::INNER_OPTIMIZER_KIND_SGD);
  spec.mutable_inner()->set_learning_rate(0.5);
  spec.mutable_inner()->set_batch_size(3);
  spec.mutable_schedule()->set_inner_step_count(20);
  spec.mutable_schedule()->set_round_count(30);
  const auto options = MakeTrainerOptions(spec, 2);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->schedule.total_step_count, 600);
  EXPECT_EQ(options->schedule.peak, 0.5);
  EXPECT_EQ(options->batch_size, 3);
  EXPECT_EQ(options->sequence_length, 16);
}

TEST(ModelSpecTest, RefusesALayoutOfAnotherModel) {
  v1::RunSpec spec;
  *spec.mutable_model() = Model();
  spec.mutable_inner()->set_optimizer(v1::INNER_OPTIMIZER_KIND_SGD);
  v1::ModelSpec other = Model();
  other.set_intermediate_size(64);
  *spec.mutable_layout() = *BuildLayout(other);
  EXPECT_EQ(MakeTrainerOptions(spec, 1).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace atl::worker
