// Clients that each hold a part of the model, like the processes of an island.

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "server/client/parameter_client.h"
#include "server/client/testing/loopback_parameter_server.h"

namespace atl::server {
namespace {

constexpr int64_t kBlock = 4096;
constexpr int kProcessCount = 3;

class PartClientTest : public testing::Test {
 protected:
  void SetUp() override {
    v1::Layout layout;
    layout.set_fragment_count(1);
    for (const int64_t size : {40 * kBlock + 5, kBlock, 60 * kBlock, 17l}) {
      v1::TensorSpec* tensor = layout.add_tensors();
      tensor->set_name(absl::StrCat("t", layout.tensors_size()));
      tensor->add_shape(size);
      tensor->set_dtype(v1::DATA_TYPE_F32);
      tensor->set_tensor_class(v1::TENSOR_CLASS_MATRIX);
      tensor->mutable_init()->set_kind(v1::INIT_KIND_CONSTANT);
    }
    layout_ = std::make_unique<RunLayout>(*RunLayout::Create(layout));
    elements_.resize(layout_->fragment_element_count(0));
    std::normal_distribution<float> normal;
    for (float& element : elements_) element = normal(random_);
    ShardRoutes routes;
    routes.placement_epoch = 5;
    for (int32_t shard = 0; shard < 2; ++shard) {
      servers_.push_back(
          std::make_unique<LoopbackParameterServer>(*layout_, shard, 2));
      v1::ShardPlacement& placement = routes.shards.emplace_back();
      placement.set_shard(shard);
      placement.set_address(servers_.back()->address());
    }
    Cut();
    for (int p = 0; p < kProcessCount; ++p) {
      ParameterClientOptions options;
      options.run_id = "run-1";
      options.shard_count = 2;
      options.retry.initial_delay = absl::Milliseconds(1);
      options.retry.max_delay = absl::Milliseconds(20);
      options.held = {held_[p]};
      clients_.push_back(*MakeParameterClient(options, *layout_));
      clients_.back()->SetRoutes(routes);
      clients_.back()->SetIdentity({"island-1", 3, "\x01\xab"});
    }
  }

  // Several processes get runs of the first shard's blocks, the last one few.
  void Cut() {
    held_.resize(kProcessCount);
    const int64_t count = layout_->fragment_block_count(0);
    for (int64_t begin = 0; begin < count;) {
      const int64_t end =
          std::min<int64_t>(count, begin + 1 + random_() % 20);
      std::vector<IndexRange>& runs =
          held_[begin == 0 ? 0
                : held_[1].empty() ? 1
                : random_() % 8 == 0 ? 2
                                     : random_() % 2];
      if (!runs.empty() && runs.back().end == begin) {
        runs.back().end = end;
      } else {
        runs.push_back({begin, end});
      }
      begin = end;
    }
  }

  std::vector<float> TakePart(int process) const {
    std::vector<float> part;
    for (const IndexRange blocks : held_[process]) {
      const IndexRange at = layout_->BlockElements(0, blocks);
      part.insert(part.end(), elements_.begin() + at.begin,
                  elements_.begin() + at.end);
    }
    return part;
  }

  static CallBounds Soon() {
    CallBounds bounds;
    bounds.deadline = absl::Now() + absl::Minutes(2);
    return bounds;
  }

  TransferOutcome PushPart(int process) {
    v1::ContributionInfo info;
    info.mutable_key()->set_seq(7);
    info.set_codec(v1::CODEC_F32);
    const std::vector<float> part = TakePart(process);
    return clients_[process]->Push(
        info,
        {reinterpret_cast<const char*>(part.data()),
         part.size() * sizeof(float)},
        Soon());
  }

  const uint64_t seed_ = std::random_device()();
  testing::ScopedTrace trace_{__FILE__, __LINE__,
                              "seed " + std::to_string(seed_)};
  std::mt19937_64 random_{seed_};
  std::unique_ptr<RunLayout> layout_;
  std::vector<float> elements_;
  std::vector<std::vector<IndexRange>> held_;  // By process.
  std::vector<std::unique_ptr<LoopbackParameterServer>> servers_;
  std::vector<std::unique_ptr<ParameterClient>> clients_;
};

TEST_F(PartClientTest, EachPushesWhatItHoldsAndNothingElse) {
  // The first process pushes long before the others, and asks until they end.
  std::vector<std::thread> threads;
  threads.emplace_back([this] {
    const TransferOutcome outcome = PushPart(0);
    EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  });
  ASSERT_TRUE(servers_[0]->WaitForStreams(2));
  for (const int p : {1, 2}) {
    threads.emplace_back([this, p] {
      const TransferOutcome outcome = PushPart(p);
      EXPECT_TRUE(outcome.status.ok()) << outcome.status;
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<char> stored;
  int64_t payload_bytes = 0;
  for (const auto& server : servers_) {
    const auto received = server->received().at({0, 7});
    EXPECT_TRUE(received.stored);
    stored.insert(stored.end(), received.encoded.begin(),
                  received.encoded.end());
    payload_bytes += server->payload_bytes();
  }
  ASSERT_EQ(stored.size(), elements_.size() * sizeof(float));
  EXPECT_EQ(std::memcmp(stored.data(), elements_.data(), stored.size()), 0);
  EXPECT_EQ(payload_bytes, stored.size()) << "blocks were sent twice";
  for (int p = 0; p < kProcessCount; ++p) {
    EXPECT_EQ(clients_[p]->counters().sent_payload_bytes,
              TakePart(p).size() * sizeof(float));
  }
}

TEST_F(PartClientTest, APushWaitsForWhatOthersHold) {
  CallBounds bounds;
  bounds.deadline = absl::Now() + absl::Milliseconds(200);
  v1::ContributionInfo info;
  info.mutable_key()->set_seq(7);
  info.set_codec(v1::CODEC_F32);
  const std::vector<float> part = TakePart(0);
  const TransferOutcome outcome = clients_[0]->Push(
      info,
      {reinterpret_cast<const char*>(part.data()),
       part.size() * sizeof(float)},
      bounds);
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(PartClientTest, PullsOfAllAddUpToWhatWasCommitted) {
  for (auto& server : servers_) server->SetVersion(0, 3, elements_);
  std::map<int32_t, Digest128> came, all;
  Digest128 sum;
  for (int p = 0; p < kProcessCount; ++p) {
    std::vector<float> part(TakePart(p).size());
    const TransferOutcome outcome = clients_[p]->Pull(
        0, 3, std::nullopt, absl::MakeSpan(part), Soon());
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    EXPECT_EQ(part, TakePart(p));
    for (const ShardDigest& digest : outcome.digests) {
      came[digest.shard] += digest.came;
      all[digest.shard] = digest.all;
      sum += digest.came;
    }
  }
  EXPECT_EQ(came, all);
  EXPECT_EQ(sum, RangeDigest(*layout_, 0,
                             {0, layout_->fragment_block_count(0)}, elements_));
  // A control: a wrong block changes the sum.
  elements_[0] += 1;
  EXPECT_NE(sum, RangeDigest(*layout_, 0,
                             {0, layout_->fragment_block_count(0)}, elements_));
}

TEST_F(PartClientTest, RefusesSpansOfAnotherLength) {
  std::vector<float> part(TakePart(0).size() + 1);
  EXPECT_EQ(clients_[0]
                ->Pull(0, 3, std::nullopt, absl::MakeSpan(part), Soon())
                .status.code(),
            absl::StatusCode::kInvalidArgument);
  ParameterClientOptions options;
  options.shard_count = 2;
  options.held = {held_[0], held_[0]};
  EXPECT_EQ(MakeParameterClient(options, *layout_).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace atl::server
