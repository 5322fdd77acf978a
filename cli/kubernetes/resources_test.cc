#include "cli/kubernetes/resources.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMib = int64_t{1} << 20;

// A llama of `layers` layers, as deploy/config/laptop.toml has four.
ResourceInput Llama(int32_t hidden, int32_t width, int32_t layers) {
  v1::ModelSpec spec;
  spec.set_architecture("llama");
  spec.set_vocab_size(256);
  spec.set_hidden_size(hidden);
  spec.set_intermediate_size(width);
  spec.set_layer_count(layers);
  spec.set_head_count(hidden / 64);
  spec.set_kv_head_count(hidden / 64);
  spec.set_sequence_length(128);
  spec.set_rope_theta(10000);
  spec.set_rms_norm_eps(1e-5);
  ResourceInput input;
  input.model = *worker::ModelOfSpec(spec);
  input.run.mutable_outer()->set_optimizer(v1::OUTER_OPTIMIZER_KIND_NESTEROV);
  input.run.mutable_inner()->set_optimizer(v1::INNER_OPTIMIZER_KIND_ADAMW);
  input.exchange.fragment_elements = {input.model.element_count};
  input.tokens_a_step = 512;
  input.server_count = 2;
  input.island_count = 2;
  return input;
}

// 25.6 million elements: 97.5 MiB.
ResourceInput Big() { return Llama(512, 1376, 8); }

TEST(ResourcesTest, LimitsAreAboveWhatRealProcessesTook) {
  // Peak resident MiB (VmHWM) and MiB on disk of `dev up` on x86-64.
  ResourceInput laptop = Llama(128, 344, 4);
  laptop.island_count = 3;
  laptop.tokens_a_step = 1024;
  const Resources small = PlanResources(laptop);
  EXPECT_GE(WithMarginMib(small.coordinator.memory_bytes()), 31);
  EXPECT_GE(ServerMemoryMib(small.server), 43);
  EXPECT_GE(WithMarginMib(small.island.memory_bytes()), 267);
  const Resources big = PlanResources(Big());
  EXPECT_GE(ServerMemoryMib(big.server), 200);
  EXPECT_GE(WithMarginMib(big.island.memory_bytes()), 1041);
  EXPECT_GE(WithMarginMib(big.server.disk_bytes), 489);
  EXPECT_GE(WithMarginMib(big.island.disk_bytes), 586);
  // And not far above.
  EXPECT_LE(WithMarginMib(small.island.memory_bytes()), 2 * 267);
  EXPECT_LE(WithMarginMib(big.island.memory_bytes()), 2 * 1041);
}

TEST(ResourcesTest, ARunOfAnySizeNeedsMoreThanNothing) {
  ResourceInput input = Big();
  input.tokens_a_step = INT64_MAX;
  EXPECT_GE(PlanResources(input).island.memory_bytes(), int64_t{1} << 60);
}

TEST(ResourcesTest, HalfOfAServersLimitHoldsItsVersions) {
  const Resources need = PlanResources(Big());
  EXPECT_GE(ServerMemoryMib(need.server) * kMib / 2, need.server.image_bytes);
}

TEST(ResourcesTest, MoreServersShareTheParameters) {
  ResourceInput input = Big();
  const int64_t two = PlanResources(input).server.image_bytes;
  input.server_count = 4;
  const int64_t four = PlanResources(input).server.image_bytes;
  EXPECT_LT(four, two * 6 / 10);
}

TEST(ResourcesTest, MoreIslandsNeedMoreOfAServersDisk) {
  ResourceInput input = Big();
  const int64_t few = PlanResources(input).server.disk_bytes;
  input.island_count += 10;
  // Two open contributions an island, each half of 97.5 MiB.
  EXPECT_NEAR(static_cast<double>(PlanResources(input).server.disk_bytes - few),
              10.0 * 97.5 * kMib, 5.0 * kMib);
}

TEST(ResourcesTest, CheckpointsNeedDisk) {
  ResourceInput input = Big();
  input.run.mutable_schedule()->set_round_count(1000);
  const int64_t none = PlanResources(input).server.disk_bytes;
  // Two arrays, parameters and momentum, of half of 97.5 MiB.
  const double each = 97.5 * kMib;
  input.run.set_checkpoint_every_round_count(100);
  EXPECT_NEAR(static_cast<double>(PlanResources(input).server.disk_bytes - none),
              10 * each, 0.05 * 10 * each);
  // 32 at most, however long the run is.
  for (const int64_t round_count : {1000, 0}) {
    input.run.mutable_schedule()->set_round_count(round_count);
    input.run.set_checkpoint_every_round_count(1);
    EXPECT_NEAR(
        static_cast<double>(PlanResources(input).server.disk_bytes - none),
        32 * each, 0.05 * 32 * each);
  }
}

TEST(ResourcesTest, TheOptimizersStateAndTheReplicaAreInMemory) {
  ResourceInput input = Big();
  const int64_t nesterov = PlanResources(input).server.image_bytes;
  input.run.mutable_outer()->set_optimizer(v1::OUTER_OPTIMIZER_KIND_FEDADAM);
  const int64_t adam = PlanResources(input).server.image_bytes;
  EXPECT_GE(adam - nesterov, 48 * kMib);  // One more array.
  input.run.mutable_outer()->set_optimizer(v1::OUTER_OPTIMIZER_KIND_NESTEROV);
  input.exchange.down_codec = codec::CodecId::kBf16;
  // A replica and two deltas of half its size instead of a second theta.
  EXPECT_GE(PlanResources(input).server.image_bytes - nesterov, 48 * kMib);
}

TEST(ResourcesTest, OverlapAndMomentsCostAnIslandMemory) {
  ResourceInput input = Big();
  const IslandResources plain = PlanResources(input).island;
  EXPECT_EQ(plain.model_bytes, 16 * input.model.element_count);
  input.exchange.overlap_step_count = 2;
  EXPECT_EQ(PlanResources(input).island.exchange_bytes - plain.exchange_bytes,
            16 * input.model.element_count);
  input.run.mutable_inner()->set_optimizer(v1::INNER_OPTIMIZER_KIND_SGD);
  EXPECT_EQ(PlanResources(input).island.model_bytes,
            8 * input.model.element_count);
}

ResourceInput Input() {
  ResourceInput input;
  input.model.element_count = 1000000;
  input.model.layer_count = 4;
  input.exchange.fragment_elements = {1000000};
  input.tokens_a_step = 1024;
  input.server_count = 3;
  input.island_count = 5;
  input.run.mutable_schedule()->set_timing(v1::TIMING_STRICT);
  return input;
}

TEST(ReportTest, ValuesHaveTheNumbersOfTheData) {
  const Json programs = ResourcesData(Input());
  const std::string values = ResourcesValues(Input());
  ASSERT_EQ(programs.size(), 3u);
  for (const Json& program : programs) {
    const std::string memory =
        absl::StrCat("memory: ", program["memory_mib"].get<int64_t>(), "Mi");
    EXPECT_THAT(values, HasSubstr(absl::StrCat("{requests: {", memory,
                                               "}, limits: {", memory, "}}")));
    EXPECT_THAT(values, HasSubstr(absl::StrCat(
                            program["disk_mib"].get<int64_t>(), "Mi")));
  }
  EXPECT_THAT(values, HasSubstr("replicas: 3\n"));
  EXPECT_THAT(values, HasSubstr("replicas: 5\n"));
}

TEST(ReportTest, StrictIslandsKeepAVolumeAndElasticOnesAreAJob) {
  ResourceInput input = Input();
  EXPECT_THAT(ResourcesValues(input), HasSubstr("kind: StatefulSet\n"));
  input.run.mutable_schedule()->set_timing(v1::TIMING_ELASTIC);
  EXPECT_THAT(ResourcesValues(input), HasSubstr("kind: Job\n"));
}

TEST(ReportTest, TheTextSaysWhatIsMeasuredAndEndsWithTheValues) {
  const std::string text = ResourcesText(Input());
  EXPECT_THAT(text, HasSubstr("measured"));
  EXPECT_THAT(text, ::testing::EndsWith(ResourcesValues(Input())));
}

}  // namespace
}  // namespace atl::cli
