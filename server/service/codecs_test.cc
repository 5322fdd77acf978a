// Rounds of encoded contributions on whole servers.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/codec/block_run.h"
#include "base/codec/codec.h"
#include "base/layout/encoded_layout.h"
#include "gtest/gtest.h"
#include "server/service/testing/test_cluster.h"

namespace atl::server {
namespace {

constexpr int kSlots = 3;

v1::Run MakeRun(codec::CodecId id,
                v1::MergeRuleKind rule = v1::MERGE_RULE_KIND_UNSPECIFIED) {
  v1::Run run = SmallRun();
  run.mutable_spec()->mutable_exchange()->set_up(static_cast<v1::Codec>(id));
  v1::OuterSpec* outer = run.mutable_spec()->mutable_outer();
  outer->set_optimizer(v1::OUTER_OPTIMIZER_KIND_SGD);
  outer->set_learning_rate(1);
  outer->clear_momentum();
  outer->mutable_merge()->set_rule(rule);
  return run;
}

class CodecsTest : public testing::TestWithParam<codec::CodecId> {
 protected:
  CodecsTest() : seed_(std::random_device{}()), random_(seed_) {
    std::cout << "seed " << seed_ << std::endl;
  }

  void Begin(int server_count, int threads = 1,
             v1::MergeRuleKind rule = v1::MERGE_RULE_KIND_UNSPECIFIED) {
    cluster_ = std::make_unique<TestCluster>(MakeRun(GetParam(), rule),
                                             server_count, threads);
    ASSERT_TRUE(cluster_->StartAll().ok());
    const absl::Status begun = cluster_->Begin();
    ASSERT_TRUE(begun.ok()) << begun;
  }

  std::vector<float> Decoded(int32_t fragment,
                             const std::vector<float>& gradient) {
    const codec::Codec& codec = codec::GetCodec(GetParam());
    const RunLayout& layout = cluster_->layout();
    const std::vector<char> bytes = cluster_->Encode(fragment, gradient);
    const std::vector<int32_t> counts =
        EncodedLayout(layout, fragment, codec)
            .ElementCounts({0, layout.fragment_block_count(fragment)});
    codec::BlockRun run;
    run.element_counts = counts;
    std::vector<float> values(gradient.size());
    EXPECT_TRUE(codec::DecodeRun(codec, run,
                                 absl::string_view(bytes.data(), bytes.size()),
                                 absl::MakeSpan(values))
                    .ok());
    return values;
  }

  const unsigned seed_;
  std::mt19937 random_;
  std::unique_ptr<TestCluster> cluster_;
};

// SGD with rate 1 and equal weights, in f64 by its definition.
TEST_P(CodecsTest, AMergeIsTheMeanOfWhatWasSent) {
  Begin(2);
  for (int32_t f = 0; f < 2; ++f) {
    const auto before = cluster_->Pull(f, 0);
    ASSERT_TRUE(before.ok()) << before.status();
    std::vector<double> expected(before->begin(), before->end());
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      const std::vector<float> sent =
          Decoded(f, cluster_->Gradient(f, slot, 0));
      for (size_t i = 0; i < sent.size(); ++i) {
        expected[i] -= static_cast<double>(sent[i]) / kSlots;
      }
    }
    if (f == 0) {
      const absl::Status round = cluster_->Round(0, kSlots);
      ASSERT_TRUE(round.ok()) << round;
    }
    const auto after = cluster_->Pull(f, 1);
    ASSERT_TRUE(after.ok()) << after.status();
    for (size_t i = 0; i < after->size(); ++i) {
      ASSERT_NEAR((*after)[i], expected[i], 4e-7 * (1 + std::abs(expected[i])))
          << f << " " << i;
    }
  }
}

TEST_P(CodecsTest, AnOrderRuleTakesWhatIsDecoded) {
  Begin(2, /*threads=*/1, v1::MERGE_RULE_KIND_MEDIAN);
  const auto before = cluster_->Pull(0, 0);
  ASSERT_TRUE(before.ok()) << before.status();
  std::vector<std::vector<float>> sent;
  for (int32_t slot = 0; slot < kSlots; ++slot) {
    sent.push_back(Decoded(0, cluster_->Gradient(0, slot, 0)));
  }
  const absl::Status round = cluster_->Round(0, kSlots);
  ASSERT_TRUE(round.ok()) << round;
  const auto after = cluster_->Pull(0, 1);
  ASSERT_TRUE(after.ok()) << after.status();
  for (size_t i = 0; i < after->size(); ++i) {
    const float low = std::min(sent[0][i], sent[1][i]);
    const float high = std::max(sent[0][i], sent[1][i]);
    const float middle = std::max(low, std::min(high, sent[2][i]));
    ASSERT_NEAR((*after)[i], static_cast<double>((*before)[i]) - middle,
                4e-7 * (1 + std::abs((*before)[i])))
        << i;
  }
}

TEST_P(CodecsTest, ShardsThreadsAndPowerCutsDoNotShow) {
  std::vector<std::string> digests;
  for (const int server_count : {1, 2, 3}) {
    Begin(server_count, /*threads=*/server_count);
    ASSERT_TRUE(cluster_->Round(0, kSlots).ok());
    if (server_count == 2) {
      cluster_->CutPower(1);
      ASSERT_TRUE(cluster_->Start(1).ok());
    }
    const absl::Status round = cluster_->Round(1, kSlots);
    ASSERT_TRUE(round.ok()) << round;
    const auto digest = cluster_->Sha256();
    ASSERT_TRUE(digest.ok()) << digest.status();
    digests.push_back(*digest);
  }
  EXPECT_EQ(digests[1], digests[0]);
  EXPECT_EQ(digests[2], digests[0]);
}

TEST_P(CodecsTest, AnyBytesAreRefusedOrFinite) {
  Begin(1);
  const EncodedLayout layout(cluster_->layout(), 1,
                             codec::GetCodec(GetParam()));
  std::vector<v1::ContributionInfo> stored;
  int64_t seq = 0;
  // Four for each of eight slots: a slot's fifth push would wait until one of
  // them is decided.
  for (int repetition = 0; repetition < 32; ++repetition) {
    const std::vector<float> gradient = cluster_->Gradient(1, 0, 0);
    v1::ContributionInfo info = cluster_->Info(1, repetition % 8, 0, gradient);
    info.mutable_key()->set_seq(++seq);
    std::vector<char> bytes = cluster_->Encode(1, gradient);
    // Valid bytes, or a few flipped bits.
    const int flips = repetition % 2 == 0 ? 0 : 1 + random_() % 3;
    for (int i = 0; i < flips; ++i) {
      bytes[random_() % bytes.size()] ^= static_cast<char>(1 << random_() % 8);
    }
    if (flips == 0) {
      for (char& byte : bytes) byte = static_cast<char>(random_());
    }
    const absl::Status pushed = cluster_->PushEncoded(info, bytes);
    if (pushed.ok()) {
      stored.push_back(info);
      if (stored.size() == 8) break;
    } else {
      ASSERT_TRUE(absl::IsInvalidArgument(pushed)) << pushed;
    }
  }
  if (stored.empty()) return;
  const auto digest = cluster_->Seal(1, 0, stored);
  ASSERT_TRUE(digest.ok()) << digest.status();
  const auto report = cluster_->WaitForReport(
      0, [](const v1::ShardReport& r) { return r.prepared_size() > 0; });
  ASSERT_TRUE(report.ok()) << report.status();
  if (!report->prepared(0).finite()) return;  // Never committed.
  ASSERT_TRUE(cluster_->Commit(1, 0, *digest).ok());
  const auto made = cluster_->Pull(1, 1);
  ASSERT_TRUE(made.ok()) << made.status();
  for (const float value : *made) ASSERT_TRUE(std::isfinite(value));
}

INSTANTIATE_TEST_SUITE_P(All, CodecsTest,
                         testing::ValuesIn(codec::AllCodecs().begin(),
                                           codec::AllCodecs().end()),
                         [](const auto& info) {
                           return std::string(codec::CodecName(info.param));
                         });

}  // namespace
}  // namespace atl::server
