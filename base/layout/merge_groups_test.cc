#include "base/layout/merge_groups.h"

#include <string>

#include "gtest/gtest.h"

namespace atl {
namespace {

// Tensors 0 to 4: embedding, matrix, vector, matrix, embedding. Tensor 2 is in
// fragment 1.
v1::RunSpec MakeSpec(v1::MergeRuleKind rule) {
  v1::RunSpec spec;
  spec.mutable_outer()->mutable_merge()->set_rule(rule);
  const v1::TensorClass classes[] = {
      v1::TENSOR_CLASS_EMBEDDING, v1::TENSOR_CLASS_MATRIX,
      v1::TENSOR_CLASS_VECTOR, v1::TENSOR_CLASS_MATRIX,
      v1::TENSOR_CLASS_EMBEDDING};
  spec.mutable_layout()->set_fragment_count(2);
  for (int i = 0; i < 5; ++i) {
    v1::TensorSpec& tensor = *spec.mutable_layout()->add_tensors();
    tensor.set_name("t" + std::to_string(i));
    tensor.add_shape(10);
    tensor.set_dtype(v1::DATA_TYPE_F32);
    tensor.set_tensor_class(classes[i]);
    tensor.set_fragment(i == 2 ? 1 : 0);
    tensor.mutable_init()->set_kind(v1::INIT_KIND_CONSTANT);
  }
  return spec;
}

TEST(MergeGroupsTest, RdaHasAGroupATensorWithoutTheClassesOfThePlainMean) {
  v1::RunSpec spec = MakeSpec(v1::MERGE_RULE_KIND_RDA);
  const RunLayout layout = *RunLayout::Create(spec.layout());
  EXPECT_EQ(MergeGroups(layout, spec, 0).count(), 4);
  spec.mutable_outer()->mutable_merge()->add_mean_tensor_classes(
      v1::TENSOR_CLASS_EMBEDDING);
  const MergeGroups groups(layout, spec, 0);
  EXPECT_EQ(groups.count(), 2);
  EXPECT_EQ(groups.FindGroup(0), MergeGroups::kNone);
  EXPECT_EQ(groups.FindGroup(1), 0);
  EXPECT_EQ(groups.FindGroup(3), 1);
  EXPECT_EQ(groups.FindGroup(4), MergeGroups::kNone);
  const MergeGroups other(layout, spec, 1);
  EXPECT_EQ(other.count(), 1);
  EXPECT_EQ(other.FindGroup(2), 0);
}

TEST(MergeGroupsTest, RdaTakesThePlainMeanOfBuffers) {
  v1::RunSpec spec = MakeSpec(v1::MERGE_RULE_KIND_RDA);
  spec.mutable_layout()->mutable_tensors(1)->set_tensor_class(
      v1::TENSOR_CLASS_BUFFER);
  const MergeGroups groups(*RunLayout::Create(spec.layout()), spec, 0);
  EXPECT_EQ(groups.count(), 3);
  EXPECT_EQ(groups.FindGroup(1), MergeGroups::kNone);
  EXPECT_EQ(groups.FindGroup(3), 1);
}

TEST(MergeGroupsTest, KrumMdaAndTheClipsLookAtTheWholeFragment) {
  for (const auto rule :
       {v1::MERGE_RULE_KIND_KRUM, v1::MERGE_RULE_KIND_MDA,
        v1::MERGE_RULE_KIND_NORM_CLIP, v1::MERGE_RULE_KIND_CENTRED_CLIP}) {
    const v1::RunSpec spec = MakeSpec(rule);
    const MergeGroups groups(*RunLayout::Create(spec.layout()), spec, 0);
    EXPECT_EQ(groups.count(), 1);
    EXPECT_EQ(groups.FindGroup(4), 0);
  }
}

TEST(MergeGroupsTest, RulesWithoutAVerdictHaveNone) {
  const v1::RunSpec spec = MakeSpec(v1::MERGE_RULE_KIND_MEDIAN);
  const MergeGroups groups(*RunLayout::Create(spec.layout()), spec, 0);
  EXPECT_EQ(groups.count(), 0);
  EXPECT_EQ(groups.FindGroup(1), MergeGroups::kNone);
}

}  // namespace
}  // namespace atl
