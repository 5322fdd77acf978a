#include "cli/run_file/external_run.h"

#include "cli/run_file/defaults.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

using ::testing::HasSubstr;

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
