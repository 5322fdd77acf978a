#include "base/layout/layout.h"

#include <cstdint>
#include <random>
#include <vector>

#include "base/codec/block_grid.h"
#include "base/layout/digest.h"
#include "base/layout/ids.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

using ::testing::HasSubstr;

v1::TensorSpec* AddTensor(v1::Layout& layout, const std::string& name,
                          std::vector<int64_t> shape, int fragment) {
  v1::TensorSpec* tensor = layout.add_tensors();
  tensor->set_name(name);
  for (int64_t d : shape) tensor->add_shape(d);
  tensor->set_dtype(v1::DATA_TYPE_F32);
  tensor->set_tensor_class(v1::TENSOR_CLASS_MATRIX);
  tensor->set_fragment(fragment);
  tensor->mutable_init()->set_kind(v1::INIT_KIND_NORMAL);
  tensor->mutable_init()->set_value(0.02);
  return tensor;
}

v1::Layout RandomLayout(std::mt19937_64& random) {
  v1::Layout layout;
  const int fragments = 1 + random() % 3;
  layout.set_fragment_count(fragments);
  const int tensors = fragments + random() % 6;
  for (int i = 0; i < tensors; ++i) {
    AddTensor(layout, "t" + std::to_string(i),
              {static_cast<int64_t>(1 + random() % 5),
               static_cast<int64_t>(1 + random() % 9000)},
              i < fragments ? i : static_cast<int>(random() % fragments));
  }
  return layout;
}

TEST(RunLayoutTest, KnowsBuffersAndTheirFragments) {
  v1::Layout layout;
  layout.set_fragment_count(2);
  AddTensor(layout, "a", {5}, 0);
  AddTensor(layout, "b", {5}, 1);
  AddTensor(layout, "c", {5}, 1)->set_tensor_class(v1::TENSOR_CLASS_BUFFER);
  const auto run = RunLayout::Create(layout);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_FALSE(run->has_buffers(0));
  EXPECT_TRUE(run->has_buffers(1));
  EXPECT_FALSE(run->tensors()[1].is_buffer);
  EXPECT_TRUE(run->tensors()[2].is_buffer);
  layout.mutable_tensors(2)->set_tensor_class(v1::TENSOR_CLASS_VECTOR);
  EXPECT_NE(RunLayout::Create(layout)->fingerprint(), run->fingerprint());
}

TEST(RunLayoutTest, CutsTensorsIntoBlocksThatCrossNoTensor) {
  v1::Layout layout;
  layout.set_fragment_count(2);
  AddTensor(layout, "a", {5000}, 0);
  AddTensor(layout, "b", {3, 4096}, 1);
  AddTensor(layout, "c", {10}, 0);
  const auto run = RunLayout::Create(layout);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->element_count(), 5000 + 3 * 4096 + 10);
  EXPECT_EQ(run->fragment_block_count(0), 3);
  EXPECT_EQ(run->BlockOffset(0, 1), 4096);
  EXPECT_EQ(run->BlockOffset(0, 2), 5000);
  EXPECT_EQ(run->BlockOffset(0, 3), 5010);
  EXPECT_EQ(run->BlockTensor(0, 2).name, "c");
  EXPECT_EQ(run->tensors()[2].model_offset, 5000 + 3 * 4096);
  EXPECT_EQ(run->tensors()[2].fragment_offset, 5000);
}

TEST(RunLayoutTest, ShardsPartitionEveryFragmentAndAreBalanced) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int trial = 0; trial < 200; ++trial) {
    const auto run = RunLayout::Create(RandomLayout(random));
    ASSERT_TRUE(run.ok()) << run.status();
    const int shards = 1 + random() % 7;
    for (int f = 0; f < run->fragment_count(); ++f) {
      int64_t next = 0;
      for (int s = 0; s < shards; ++s) {
        const IndexRange range = run->ShardBlocks(f, s, shards);
        EXPECT_EQ(range.begin, next);
        EXPECT_LE(range.begin, range.end);
        next = range.end;
        const int64_t fair = run->fragment_element_count(f) / shards;
        EXPECT_LE(std::abs(run->BlockElements(f, range).size() - fair),
                  codec::kBlockElements + 1);
      }
      EXPECT_EQ(next, run->fragment_block_count(f));
    }
  }
}

TEST(RunLayoutTest, DigestsDoNotDependOnSharding) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const auto run = RunLayout::Create(RandomLayout(random));
  ASSERT_TRUE(run.ok());
  std::vector<float> values(run->fragment_element_count(0));
  for (float& v : values) v = static_cast<float>(random() % 1000);
  auto sharded = [&](int shards) {
    Digest128 sum;
    for (int s = 0; s < shards; ++s) {
      const IndexRange blocks = run->ShardBlocks(0, s, shards);
      const IndexRange elements = run->BlockElements(0, blocks);
      sum += RangeDigest(
          *run, 0, blocks,
          absl::MakeConstSpan(values).subspan(elements.begin, elements.size()));
    }
    return sum;
  };
  const Digest128 whole = sharded(1);
  EXPECT_EQ(whole, sharded(2));
  EXPECT_EQ(whole, sharded(5));
  values[values.size() / 2] += 1;
  EXPECT_NE(whole, sharded(1));
}

TEST(RunLayoutTest, FingerprintFollowsEveryFieldThatShapesTheGrid) {
  v1::Layout layout;
  layout.set_fragment_count(2);
  AddTensor(layout, "a", {8, 2}, 0);
  AddTensor(layout, "b", {4}, 1);
  AddTensor(layout, "c", {4}, 1);
  const uint64_t first = RunLayout::Create(layout)->fingerprint();
  EXPECT_EQ(first, RunLayout::Create(layout)->fingerprint());
  v1::Layout other = layout;
  other.mutable_tensors(0)->set_shape(0, 4);
  other.mutable_tensors(0)->set_shape(1, 4);
  EXPECT_NE(first, RunLayout::Create(other)->fingerprint());
  other = layout;
  other.mutable_tensors(2)->set_fragment(0);
  EXPECT_NE(first, RunLayout::Create(other)->fingerprint());
  other = layout;
  other.mutable_tensors(2)->set_name("d");
  EXPECT_NE(first, RunLayout::Create(other)->fingerprint());
}

TEST(RunLayoutTest, RefusesWhatCannotBeCutAndNamesTheTensor) {
  v1::Layout good;
  good.set_fragment_count(1);
  AddTensor(good, "a", {8}, 0);
  ASSERT_TRUE(RunLayout::Create(good).ok());
  auto refused = [](const v1::Layout& layout, const std::string& what) {
    const auto run = RunLayout::Create(layout);
    EXPECT_EQ(run.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(run.status().message()), HasSubstr(what));
  };
  refused(v1::Layout(), "no tensors");
  v1::Layout bad = good;
  AddTensor(bad, "a", {8}, 0);
  refused(bad, "same name");
  bad = good;
  bad.mutable_tensors(0)->set_shape(0, 0);
  refused(bad, "\"a\"");
  bad = good;
  bad.mutable_tensors(0)->add_shape(int64_t{1} << 62);
  refused(bad, "2^40");
  bad = good;
  bad.mutable_tensors(0)->set_fragment(1);
  refused(bad, "fragment 1");
  bad = good;
  bad.mutable_tensors(0)->set_name("../a");
  refused(bad, "its name must be");
  bad = good;
  bad.set_fragment_count(2);
  refused(bad, "fragment_count");
}

TEST(ValidateIdTest, TakesOnlyLowerCaseDigitsAndDashes) {
  EXPECT_TRUE(ValidateId("run_id", "a-0").ok());
  EXPECT_TRUE(ValidateId("run_id", std::string(63, 'a')).ok());
  for (const std::string& bad :
       {std::string(), std::string(64, 'a'), std::string("A"),
        std::string("a/b"), std::string(".."), std::string("a\0b", 3),
        std::string("a b"), std::string("\xc3\xa9")}) {
    EXPECT_EQ(ValidateId("run_id", bad).code(),
              absl::StatusCode::kInvalidArgument)
        << bad;
  }
}

}  // namespace
}  // namespace atl
