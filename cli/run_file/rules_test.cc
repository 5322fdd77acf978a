#include "cli/run_file/rules.h"

#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::DataSpec Preset() {
  v1::DataSpec data;
  data.set_format(v1::DATA_FORMAT_BYTES);
  data.set_path("text");
  data.set_seed(1);
  data.set_fingerprint("f");
  data.set_validation_fraction(0.05);
  data.set_data_shard_count(4);
  return data;
}

TEST(DataUrlTest, AUrlReplacesThePresetsData) {
  v1::DataSpec data = Preset();
  DropOtherData({"data.seed"}, &data);
  EXPECT_EQ(data.DebugString(), Preset().DebugString());
  data.set_url("s3://bucket/manifest.json");
  data.set_order(v1::DATA_ORDER_BY_FILE);
  DropOtherData({"data.url", "data.order"}, &data);
  v1::DataSpec left;
  left.set_data_shard_count(4);
  left.set_url("s3://bucket/manifest.json");
  left.set_order(v1::DATA_ORDER_BY_FILE);
  EXPECT_EQ(data.DebugString(), left.DebugString());
  EXPECT_THAT(FindDataFaults(data), IsEmpty());
}

TEST(DataUrlTest, SaysWhichKeysAUrlExcludes) {
  v1::DataSpec data = Preset();
  data.set_url("s3://bucket/manifest.json");
  DropOtherData({"data.url", "data.path", "data.seed", "data.format",
                 "data.validation_fraction"},
                &data);
  EXPECT_EQ(data.format(), v1::DATA_FORMAT_BYTES);
  EXPECT_THAT(FindDataFaults(data),
              ElementsAre(HasSubstr("exclude each other"),
                          HasSubstr("'data.order' must be \"by_file\""),
                          HasSubstr("'data.validation_fraction'"),
                          HasSubstr("'data.seed'")));
}

TEST(DataUrlTest, OnlyAManifestHasAnOrderOfFiles) {
  v1::DataSpec data = Preset();
  EXPECT_THAT(FindDataFaults(data), IsEmpty());
  data.set_order(v1::DATA_ORDER_BY_FILE);
  EXPECT_THAT(FindDataFaults(data), ElementsAre(HasSubstr("needs data.url")));
}

TEST(RangesTest, AFileIsHeldToTheBoundsOfARun) {
  EXPECT_THAT(RangeFault("server_count", 256), IsEmpty());
  EXPECT_THAT(RangeFault("server_count", 257), HasSubstr("at most 256"));
  EXPECT_THAT(RangeFault("layout.fragment_count", 257),
              HasSubstr("at most 256"));
  EXPECT_THAT(RangeFault("schedule.island_count_min", 1025),
              HasSubstr("at most 1024"));
}

TEST(RoundsTest, AStrictFileDropsWhatItsPresetSaysOfElasticRounds) {
  v1::ScheduleSpec preset;
  preset.set_timing(v1::TIMING_ELASTIC);
  preset.set_island_count_min(8);
  preset.set_min_quorum(6);
  preset.mutable_grace_window()->set_seconds(60);
  preset.mutable_round_deadline()->set_seconds(7200);
  preset.set_max_ahead_steps(100);
  preset.set_max_staleness(16);
  v1::ScheduleSpec schedule = preset;
  DropOtherRounds({"schedule.timing", "schedule.round_count"}, &schedule);
  EXPECT_EQ(schedule.DebugString(), preset.DebugString());
  schedule.set_timing(v1::TIMING_STRICT);
  DropOtherRounds({"schedule.timing", "schedule.round_deadline"}, &schedule);
  v1::ScheduleSpec left;
  left.set_timing(v1::TIMING_STRICT);
  left.set_island_count_min(8);
  left.set_min_quorum(6);
  left.mutable_round_deadline()->set_seconds(7200);  // The file's own: told.
  EXPECT_EQ(schedule.DebugString(), left.DebugString());
  left.set_island_count_min(6);
  DropOtherRounds({"schedule.island_count_min"}, &left);
  EXPECT_EQ(left.min_quorum(), 6);
  left.set_island_count_min(2);
  DropOtherRounds({"schedule.island_count_min", "schedule.min_quorum"}, &left);
  EXPECT_EQ(left.min_quorum(), 6);
  DropOtherRounds({"schedule.island_count_min"}, &left);
  EXPECT_EQ(left.min_quorum(), 0);
}

TEST(ExternalRunTest, ClearsWhatOnlyOurTrainerReads) {
  v1::RunSpec spec = DefaultRunSpec();
  spec.mutable_model()->set_architecture("external");
  spec.mutable_model()->set_vocab_size(32000);
  spec.mutable_model()->set_sequence_length(1024);
  spec.mutable_inner()->set_warmup_step_count(1000);
  spec.mutable_inner()->set_batch_size(512);
  spec.mutable_data()->set_path("tokens");
  spec.mutable_data()->set_data_shard_count(8);
  spec.mutable_outer()->set_weighting(v1::WEIGHTING_SAMPLES);
  const v1::OuterSpec outer = spec.outer();
  MakeExternal({}, &spec);
  v1::ModelSpec model;
  model.set_architecture("external");
  model.set_sequence_length(1 << 20);
  EXPECT_EQ(spec.model().DebugString(), model.DebugString());
  v1::InnerSpec inner;
  inner.set_warmup_step_count(1000);
  inner.set_batch_size(1);
  EXPECT_EQ(spec.inner().DebugString(), inner.DebugString());
  v1::DataSpec data;
  data.set_format(v1::DATA_FORMAT_EXTERNAL);
  data.set_data_shard_count(8);
  EXPECT_EQ(spec.data().DebugString(), data.DebugString());
  EXPECT_EQ(spec.outer().weighting(), v1::WEIGHTING_TOKENS);
  EXPECT_EQ(spec.outer().momentum(), outer.momentum());
}

TEST(ExternalRunTest, KeepsWhatTheFileItselfGives) {
  v1::RunSpec spec = DefaultRunSpec();
  spec.mutable_model()->set_sequence_length(128);
  spec.mutable_inner()->set_batch_size(32);
  spec.mutable_outer()->set_weighting(v1::WEIGHTING_SAMPLES);
  MakeExternal({"model.sequence_length", "inner.batch_size", "outer.weighting"},
               &spec);
  EXPECT_EQ(spec.model().sequence_length(), 128);
  EXPECT_EQ(spec.inner().batch_size(), 32);
  // The coordinator refuses it.
  EXPECT_EQ(spec.outer().weighting(), v1::WEIGHTING_SAMPLES);
}

TEST(ExternalRunTest, SaysWhyAKeyIsNotRead) {
  for (const char* key :
       {"model", "model.architecture", "model.tensors", "model.sequence_length",
        "inner", "inner.batch_size", "inner.warmup_step_count", "data",
        "data.format", "data.data_shard_count", "layout.fragment_count",
        "outer.learning_rate", "evaluation.every_round_count", "init.seed"}) {
    EXPECT_EQ(ExternalKeyFault(key), "");
  }
  EXPECT_THAT(ExternalKeyFault("model.vocab_size"),
              HasSubstr("'model.vocab_size' is not read: only the trainer"));
  EXPECT_THAT(ExternalKeyFault("inner.learning_rate"),
              HasSubstr("has its own optimizer; leave it out"));
  EXPECT_THAT(ExternalKeyFault("data.path"), HasSubstr("reads the data"));
  EXPECT_THAT(ExternalKeyFault("layout.layers_a_fragment"),
              HasSubstr("give layout.fragment_count"));
}

}  // namespace
}  // namespace atl::cli
