// Pulls of a replica: applied, broken, damaged, malformed and missing chains.

#include <cstring>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/codec/codec.h"
#include "base/layout/encoded_layout.h"
#include "gtest/gtest.h"
#include "server/client/parameter_client.h"
#include "server/client/testing/loopback_parameter_server.h"

namespace atl::server {
namespace {

using Fault = LoopbackParameterServer::Fault;

constexpr int32_t kShards = 2;

// 300 blocks and a short one, and a short tensor: several groups on each shard.
RunLayout MakeLayout() {
  v1::Layout layout;
  layout.set_fragment_count(1);
  for (const int64_t size : {300 * 4096 + 7, 12}) {
    v1::TensorSpec* tensor = layout.add_tensors();
    tensor->set_name(absl::StrCat("t", size));
    tensor->add_shape(size);
    tensor->set_dtype(v1::DATA_TYPE_F32);
    tensor->set_tensor_class(v1::TENSOR_CLASS_MATRIX);
    tensor->mutable_init()->set_kind(v1::INIT_KIND_CONSTANT);
  }
  return *RunLayout::Create(layout);
}

class ReplicaPullTest : public testing::Test {
 protected:
  ReplicaPullTest() : seed_(std::random_device{}()), random_(seed_) {
    std::cout << "seed " << seed_ << std::endl;
    for (int32_t shard = 0; shard < kShards; ++shard) {
      servers_.push_back(
          std::make_unique<LoopbackParameterServer>(layout_, shard, kShards));
    }
    ParameterClientOptions options;
    options.run_id = "run";
    options.shard_count = kShards;
    options.retry.initial_delay = absl::Milliseconds(1);
    options.retry.max_delay = absl::Milliseconds(20);
    options.seed = seed_;
    options.stream_count = 1;  // Faults are of one stream's chunks, in order.
    client_ = *MakeParameterClient(options, layout_);
    ShardRoutes routes;
    for (int32_t shard = 0; shard < kShards; ++shard) {
      v1::ShardPlacement placement;
      placement.set_shard(shard);
      placement.set_address(servers_[shard]->address());
      routes.shards.push_back(placement);
    }
    client_->SetRoutes(routes);
    first_.resize(layout_.element_count());
    std::normal_distribution<float> normal;
    for (float& value : first_) value = normal(random_);
  }

  // Makes a chain of `count` deltas on first_; returns the resulting replica.
  std::vector<float> MakeChain(int count, codec::CodecId id) {
    const codec::Codec& codec = codec::GetCodec(id);
    const EncodedLayout encoded(layout_, 0, codec);
    const int64_t block_count = layout_.fragment_block_count(0);
    std::normal_distribution<float> normal;
    std::vector<float> replica = first_;
    deltas_.clear();
    for (int i = 0; i < count; ++i) {
      std::string delta(encoded.ByteOffset(block_count), '\0');
      for (int64_t b = 0; b < block_count; ++b) {
        std::vector<float> change(encoded.ElementCount(b));
        for (float& value : change) value = 0.01f * normal(random_);
        const absl::Span<char> bytes = absl::MakeSpan(delta).subspan(
            encoded.ByteOffset(b), encoded.ByteCount({b, b + 1}));
        EXPECT_EQ(codec.Encode({}, change, bytes), codec::BlockFault::kNone);
        EXPECT_EQ(codec.DecodeAccumulate(
                      {bytes.data(), bytes.size()}, 1.0f,
                      absl::MakeSpan(replica).subspan(layout_.BlockOffset(0, b),
                                                      change.size())),
                  codec::BlockFault::kNone);
      }
      deltas_.push_back(std::move(delta));
    }
    return replica;
  }

  // Shards serve `replica` as version 4 + the chain's length.
  void Serve(const std::vector<float>& replica, codec::CodecId id) {
    version_ = 4 + static_cast<int64_t>(deltas_.size());
    for (auto& server : servers_) {
      server->SetVersion(0, version_, replica);
      server->SetChain(0, 4, version_, id, deltas_);
    }
  }

  // Pulls with first_ as version `from_version`.
  absl::Status Pull(int64_t from_version) {
    held_ = first_;
    const int64_t before = client_->counters().received_payload_bytes;
    CallBounds bounds;
    bounds.deadline = absl::Now() + absl::Minutes(2);
    const TransferOutcome outcome = client_->PullReplica(
        0, version_, from_version, absl::MakeSpan(held_), bounds);
    bytes_ = client_->counters().received_payload_bytes - before;
    return outcome.status;
  }

  bool Holds(const std::vector<float>& replica) const {
    return std::memcmp(held_.data(), replica.data(),
                       replica.size() * sizeof(float)) == 0;
  }
  int64_t ChainBytes() const {
    int64_t bytes = 0;
    for (const std::string& delta : deltas_) bytes += delta.size();
    return bytes;
  }
  int64_t FullBytes() const { return layout_.element_count() * 4; }

  const uint32_t seed_;
  std::mt19937 random_;
  const RunLayout layout_ = MakeLayout();
  std::vector<std::unique_ptr<LoopbackParameterServer>> servers_;
  std::unique_ptr<ParameterClient> client_;
  std::vector<float> first_;
  std::vector<float> held_;
  std::vector<std::string> deltas_;
  int64_t version_ = 0;
  int64_t bytes_ = 0;
};

TEST_F(ReplicaPullTest, ReplaysAChainOfEveryCodec) {
  for (const codec::CodecId id : codec::AllCodecs()) {
    SCOPED_TRACE(codec::CodecName(id));
    const std::vector<float> replica = MakeChain(2, id);
    Serve(replica, id);
    const absl::Status pulled = Pull(4);
    ASSERT_TRUE(pulled.ok()) << pulled;
    EXPECT_TRUE(Holds(replica));
    EXPECT_EQ(bytes_, ChainBytes());
  }
}

TEST_F(ReplicaPullTest, TakesTheReplicaInFullFromAShardThatTellsNoChain) {
  const std::vector<float> replica = MakeChain(1, codec::CodecId::kInt8);
  Serve(replica, codec::CodecId::kInt8);
  for (const int64_t from : {-1, 3}) {
    ASSERT_TRUE(Pull(from).ok());
    EXPECT_TRUE(Holds(replica));
    EXPECT_EQ(bytes_, FullBytes());
  }
  servers_[1]->SetChain(0, 0, version_, codec::CodecId::kInt8, deltas_);
  ASSERT_TRUE(Pull(4).ok());
  EXPECT_TRUE(Holds(replica));
  EXPECT_GT(bytes_, ChainBytes());
  EXPECT_LT(bytes_, FullBytes());
}

TEST_F(ReplicaPullTest, GoesOnInTheMiddleOfAChain) {
  const std::vector<float> replica = MakeChain(3, codec::CodecId::kE3m0);
  Serve(replica, codec::CodecId::kE3m0);
  // Cut after whole groups of three, and within them.
  for (const int after : {0, 1, 2, 3, 4, 5}) {
    servers_[0]->FailNext(
        {Fault::kEnd, after, absl::UnavailableError("a cut")});
  }
  const absl::Status pulled = Pull(4);
  ASSERT_TRUE(pulled.ok()) << pulled;
  EXPECT_TRUE(Holds(replica));
}

TEST_F(ReplicaPullTest, GoesOnWithTheReplicaInFullWhenTheChainIsGone) {
  const std::vector<float> replica = MakeChain(2, codec::CodecId::kInt8);
  Serve(replica, codec::CodecId::kInt8);
  // One group is complete, and half of the next.
  servers_[0]->FailNext({Fault::kLoseChains, 3, absl::OkStatus()});
  const absl::Status pulled = Pull(4);
  ASSERT_TRUE(pulled.ok()) << pulled;
  EXPECT_TRUE(Holds(replica));
  EXPECT_GT(bytes_, ChainBytes());
  EXPECT_LT(bytes_, FullBytes());
}

TEST_F(ReplicaPullTest, AsksAgainForADeltaWhoseChecksumIsWrong) {
  const std::vector<float> replica = MakeChain(2, codec::CodecId::kTwoBit);
  Serve(replica, codec::CodecId::kTwoBit);
  servers_[0]->FailNext({Fault::kCorruptChecksum, 1, absl::OkStatus()});
  servers_[1]->FailNext({Fault::kCorruptChecksum, 2, absl::OkStatus()});
  const absl::Status pulled = Pull(4);
  ASSERT_TRUE(pulled.ok()) << pulled;
  EXPECT_TRUE(Holds(replica));
}

TEST_F(ReplicaPullTest, StartsOverInFullWhenTheResultIsNotTheShardsReplica) {
  const std::vector<float> replica = MakeChain(1, codec::CodecId::kBf16);
  Serve(replica, codec::CodecId::kBf16);
  // The caller does not hold what it claims, so the chain leads elsewhere.
  first_[5] += 1;
  const absl::Status pulled = Pull(4);
  ASSERT_TRUE(pulled.ok()) << pulled;
  EXPECT_TRUE(Holds(replica));
  EXPECT_GT(bytes_, ChainBytes());
}

TEST_F(ReplicaPullTest, TakesTheReplicaInFullWhereADeltaIsNoEncoding) {
  for (const int count : {1, 2}) {
    const std::vector<float> replica = MakeChain(count, codec::CodecId::kBf16);
    // NaN, in the fourth block.
    deltas_[0][3 * 8192 + 101] = '\x7f';
    deltas_[0][3 * 8192 + 100] = '\xff';
    Serve(replica, codec::CodecId::kBf16);
    const absl::Status pulled = Pull(4);
    ASSERT_TRUE(pulled.ok()) << pulled;
    EXPECT_TRUE(Holds(replica));
  }
}

TEST_F(ReplicaPullTest, TakesTheReplicaInFullWhereSumsAreNotFinite) {
  first_.assign(first_.size(), 3e38f);
  const std::vector<float> replica = MakeChain(1, codec::CodecId::kBf16);
  for (size_t i = 0; i + 1 < deltas_[0].size(); i += 2) {
    deltas_[0][i] = '\x7f';
    deltas_[0][i + 1] = '\x7f';  // The largest that is finite.
  }
  Serve(replica, codec::CodecId::kBf16);
  const absl::Status pulled = Pull(4);
  ASSERT_TRUE(pulled.ok()) << pulled;
  EXPECT_TRUE(Holds(replica));
}

TEST_F(ReplicaPullTest, RefusesADeltaOfAnotherSize) {
  const std::vector<float> replica = MakeChain(1, codec::CodecId::kInt8);
  deltas_[0].pop_back();
  Serve(replica, codec::CodecId::kInt8);
  EXPECT_TRUE(absl::IsInternal(Pull(4)));
}

TEST_F(ReplicaPullTest, RefusesToGoBack) {
  const std::vector<float> replica = MakeChain(1, codec::CodecId::kInt8);
  Serve(replica, codec::CodecId::kInt8);
  EXPECT_TRUE(absl::IsInvalidArgument(Pull(version_ + 1)));
}

}  // namespace
}  // namespace atl::server
