// The shard's replica and an island's hold the same bits, whatever the codec.

#include "server/core/replica.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/codec/codec.h"
#include "base/layout/exchange.h"
#include "gtest/gtest.h"

namespace atl::server {
namespace {

// Two tensors with a short last block each: 3 + 2 blocks.
RunLayout MakeLayout() {
  v1::Layout layout;
  layout.set_fragment_count(1);
  for (const int64_t count : {10000, 5001}) {
    v1::TensorSpec* tensor = layout.add_tensors();
    tensor->set_name(std::to_string(count));
    tensor->add_shape(count);
    tensor->set_dtype(v1::DATA_TYPE_F32);
    tensor->set_tensor_class(v1::TENSOR_CLASS_MATRIX);
    tensor->mutable_init()->set_kind(v1::INIT_KIND_CONSTANT);
  }
  return *RunLayout::Create(layout);
}

class ReplicaTest : public testing::TestWithParam<codec::CodecId> {
 protected:
  ReplicaTest() : seed_(std::random_device()()), random_(seed_) {
    exchange_.set_seed(seed_);
    theta_ = Random(1.0f);
    replica_ = theta_;
  }

  std::vector<float> Random(float scale) {
    std::normal_distribution<float> normal(0.0f, scale);
    std::vector<float> values(layout_.element_count());
    for (float& value : values) value = normal(random_);
    return values;
  }

  int64_t BlockCount() const { return layout_.fragment_block_count(0); }

  // Advances one version in tiles of `tile` blocks. Returns D.
  std::string Advance(int64_t version, int64_t tile) {
    const ReplicaStep step(encoded_layout_, exchange_, version);
    std::string delta(encoded_layout_.ByteOffset(BlockCount()), '\0');
    std::vector<float> next(replica_.size());
    digest_ = Digest128();
    finite_ = true;
    for (int64_t b = 0; b < BlockCount(); b += tile) {
      const IndexRange blocks = {b, std::min(b + tile, BlockCount())};
      const int64_t first = layout_.BlockOffset(0, b);
      const ReplicaStep::Result result = step.Advance(
          blocks, theta_.data() + first, replica_.data() + first,
          next.data() + first, delta.data() + encoded_layout_.ByteOffset(b));
      finite_ &= result.finite;
      digest_ += result.digest;
    }
    replica_ = next;
    return delta;
  }

  // Applies D as an island does.
  void Replay(const std::string& delta, std::vector<float>& held) const {
    for (int64_t b = 0; b < BlockCount(); ++b) {
      const int64_t at = encoded_layout_.ByteOffset(b);
      ASSERT_EQ(
          codec_.DecodeAccumulate(
              absl::string_view(delta).substr(
                  at, encoded_layout_.ByteOffset(b + 1) - at),
              1.0f,
              absl::MakeSpan(held).subspan(layout_.BlockOffset(0, b),
                                           encoded_layout_.ElementCount(b))),
          codec::BlockFault::kNone);
    }
  }

  double Residual() const {
    double sum = 0;
    for (size_t i = 0; i < replica_.size(); ++i) {
      sum += std::pow(theta_[i] - replica_[i], 2);
    }
    return std::sqrt(sum);
  }

  const codec::Codec& codec_ = codec::GetCodec(GetParam());
  const RunLayout layout_ = MakeLayout();
  const EncodedLayout encoded_layout_{layout_, 0, codec_};
  const uint32_t seed_;
  std::mt19937 random_;
  v1::ExchangeSpec exchange_;
  std::vector<float> theta_;
  std::vector<float> replica_;
  Digest128 digest_;
  bool finite_ = true;
};

TEST_P(ReplicaTest, WhoReplaysTheChainHoldsTheSameBits) {
  SCOPED_TRACE(seed_);
  std::vector<float> held = replica_;
  for (int64_t version = 1; version <= 5; ++version) {
    const std::vector<float> step = Random(0.01f);
    for (size_t i = 0; i < step.size(); ++i) theta_[i] -= step[i];
    Replay(Advance(version, 2), held);
    ASSERT_TRUE(finite_);
    ASSERT_EQ(
        std::memcmp(held.data(), replica_.data(), held.size() * sizeof(float)),
        0);
    ASSERT_EQ(RangeDigest(layout_, 0, {0, BlockCount()}, held), digest_);
  }
}

TEST_P(ReplicaTest, ADeltaDoesNotDependOnTheTiles) {
  SCOPED_TRACE(seed_);
  theta_ = Random(1.0f);
  const std::vector<float> before = replica_;
  const std::string whole = Advance(3, BlockCount());
  const std::vector<float> after = replica_;
  const Digest128 digest = digest_;
  replica_ = before;
  EXPECT_EQ(Advance(3, 1), whole);
  EXPECT_EQ(replica_, after);
  EXPECT_EQ(digest_, digest);
}

TEST_P(ReplicaTest, WhatOneDeltaLeavesUnsaidTheNextOnesSay) {
  SCOPED_TRACE(seed_);
  const std::vector<float> step = Random(0.01f);
  for (size_t i = 0; i < step.size(); ++i) theta_[i] -= step[i];
  const double before = Residual();
  for (int64_t version = 1; version <= 20; ++version) Advance(version, 4);
  EXPECT_LT(Residual(), before * 0.9);
}

TEST_P(ReplicaTest, AValueThatIsNotFiniteIsSaid) {
  theta_[4100] = std::numeric_limits<float>::infinity();
  Advance(1, 1);
  EXPECT_FALSE(finite_);
  // The difference of finite values may overflow.
  theta_[4100] = 3e38f;
  replica_[4100] = -3e38f;
  Advance(1, 1);
  EXPECT_FALSE(finite_);
}

INSTANTIATE_TEST_SUITE_P(Codecs, ReplicaTest,
                         testing::ValuesIn(codec::AllCodecs()),
                         [](const auto& codec) {
                           return std::string(codec::CodecName(codec.param));
                         });

TEST(ReplicaSeedTest, DiffersForFragmentsAndVersions) {
  EXPECT_NE(ReplicaSeed(1, 0, 1), ReplicaSeed(1, 0, 2));
  EXPECT_NE(ReplicaSeed(1, 0, 1), ReplicaSeed(1, 1, 1));
  EXPECT_NE(ReplicaSeed(1, 0, 1), ReplicaSeed(2, 0, 1));
  EXPECT_NE(ReplicaSeed(1, 1, 2), ReplicaSeed(1, 2, 1));
}

TEST(DeltasKeptTest, TakeNoMoreThanTheReplicaInFull) {
  EXPECT_EQ(DeltasKept(4000, 2000), 2);
  EXPECT_EQ(DeltasKept(4000, 1007), 3);
  EXPECT_EQ(DeltasKept(4000, 5000), 1);
  EXPECT_EQ(DeltasKept(4000, 10), 64);
  EXPECT_EQ(DeltasKept(0, 0), 1);
}

}  // namespace
}  // namespace atl::server
