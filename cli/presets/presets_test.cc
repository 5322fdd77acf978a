#include "cli/presets/presets.h"

#include <cmath>
#include <utility>

#include "base/layout/fragment_schedule.h"
#include "base/layout/run_timing.h"
#include "cli/run_file/run_file.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

RunFile ReadPreset(const std::string& name, const std::string& more = "") {
  RunFileOptions options;
  options.find_preset = FindPreset;
  options.preset_names = PresetNames();
  options.default_run_id = name;
  absl::StatusOr<RunFile> run =
      ParseRunFile("preset = \"" + name + "\"\n" + more, options);
  EXPECT_TRUE(run.ok()) << run.status();
  return run.ok() ? *std::move(run) : RunFile();
}

TEST(PresetsTest, AreNamedAsTheFilesOfDeployConfig) {
  EXPECT_EQ(PresetNames(),
            "async, decoupled, diloco, eager, fedavg, fedopt, laptop, "
            "sparseloco, streaming, volunteers");
  EXPECT_FALSE(FindPreset("desktop").has_value());
}

TEST(PresetsTest, LaptopIsTheReferenceExperiment) {
  const v1::RunSpec spec = ReadPreset("laptop").spec;
  EXPECT_EQ(spec.schedule().timing(), v1::TIMING_STRICT);
  EXPECT_EQ(spec.schedule().round_count(), 30);
  EXPECT_EQ(spec.schedule().inner_step_count(), 20);
  EXPECT_EQ(spec.schedule().island_count_min(), 3);
  EXPECT_EQ(spec.server_count(), 2);
  EXPECT_EQ(spec.outer().optimizer(), v1::OUTER_OPTIMIZER_KIND_NESTEROV);
  EXPECT_EQ(spec.outer().learning_rate(), 0.9);
  EXPECT_EQ(spec.outer().momentum(), 0.5);
  EXPECT_EQ(spec.inner().learning_rate(), 2e-3);
  EXPECT_EQ(
      spec.inner().warmup_step_count(),
      spec.schedule().round_count() * spec.schedule().inner_step_count() / 10);
}

TEST(PresetsTest, DilocoHasThePapersOuterOptimizer) {
  const v1::RunSpec spec =
      ReadPreset("diloco", "[data]\npath = \"/tokens\"\n").spec;
  EXPECT_EQ(spec.outer().learning_rate(), 0.7);
  EXPECT_EQ(spec.outer().momentum(), 0.9);
  EXPECT_EQ(spec.schedule().inner_step_count(), 500);
  EXPECT_EQ(spec.data().path(), "/tokens");
}

TEST(PresetsTest, FedavgSamplesClientsWhoseDataIsLocal) {
  const RunFile run = ReadPreset("fedavg");
  EXPECT_EQ(run.spec.outer().optimizer(), v1::OUTER_OPTIMIZER_KIND_FEDAVG);
  EXPECT_LT(run.spec.schedule().sample_fraction(), 1);
  EXPECT_TRUE(run.spec.inner().reset_each_round());
  EXPECT_TRUE(run.has_fingerprint);
  EXPECT_EQ(run.spec.data().fingerprint(), "");
  // The sampled half can reach the quorum.
  EXPECT_LE(run.spec.schedule().min_quorum(),
            std::floor(run.spec.schedule().sample_fraction() *
                       run.spec.schedule().island_count_min()));
}

TEST(PresetsTest, FedoptDiffersFromFedavgInItsOuterStepAlone) {
  v1::RunSpec spec = ReadPreset("fedopt").spec;
  EXPECT_EQ(spec.outer().optimizer(), v1::OUTER_OPTIMIZER_KIND_FEDADAM);
  EXPECT_EQ(spec.outer().tau(), 1e-3);
  EXPECT_EQ(spec.outer().beta1(), 0.9);
  EXPECT_EQ(spec.outer().beta2(), 0.99);
  const v1::RunSpec fedavg = ReadPreset("fedavg").spec;
  *spec.mutable_outer() = fedavg.outer();
  EXPECT_EQ(spec.SerializeAsString(), fedavg.SerializeAsString());
}

TEST(PresetsTest, AsyncIsDelayedNesterovOverAsManyAsThereAreIslands) {
  const v1::RunSpec spec = ReadPreset("async").spec;
  EXPECT_TRUE(IsAsync(spec.schedule()));
  EXPECT_EQ(spec.outer().optimizer(),
            v1::OUTER_OPTIMIZER_KIND_DELAYED_NESTEROV);
  EXPECT_EQ(spec.outer().buffer_count(), spec.schedule().island_count_min());
  EXPECT_EQ(spec.schedule().inner_step_count(), 50);  // arXiv 2401.09135.
  EXPECT_EQ(spec.outer().momentum_share(), 0);
  EXPECT_EQ(
      spec.inner().warmup_step_count(),
      spec.schedule().round_count() * spec.schedule().inner_step_count() / 10);
}

TEST(PresetsTest, StreamingIsStaggeredBlendedAndLate) {
  const RunFile run = ReadPreset("streaming");
  const v1::ScheduleSpec& schedule = run.spec.schedule();
  EXPECT_EQ(schedule.fragment_schedule(), v1::FRAGMENT_SCHEDULE_STAGGERED);
  EXPECT_EQ(schedule.blend(), 0.5);
  EXPECT_EQ(run.fragment_pattern, "strided");
}

// arXiv 2501.18512.
TEST(PresetsTest, StreamingHasThePapersSettings) {
  const RunFile run = ReadPreset("streaming");
  EXPECT_EQ(run.spec.schedule().inner_step_count(), 100);
  EXPECT_EQ(run.spec.schedule().overlap_step_count(), 5);
  EXPECT_EQ(run.layers_a_fragment, 3);
  EXPECT_EQ(run.spec.layout().fragment_count(), 0);
  EXPECT_EQ(run.spec.exchange().up(), v1::CODEC_E3M0);
  EXPECT_EQ(run.spec.exchange().down(), v1::CODEC_E3M0);
  EXPECT_EQ(run.spec.outer().learning_rate(), 0.4);
  EXPECT_EQ(run.spec.outer().momentum(), 0.9);
  // Thirty rounds are too few for this momentum.
  EXPECT_GE(run.spec.schedule().round_count(), 100);
  EXPECT_EQ(run.spec.inner().warmup_step_count(),
            run.spec.schedule().round_count() *
                run.spec.schedule().inner_step_count() / 10);
}

TEST(PresetsTest, EagerIsStreamingBehindAWholeRound) {
  v1::RunSpec eager = ReadPreset("eager").spec;
  EXPECT_TRUE(eager.schedule().eager());
  EXPECT_EQ(eager.schedule().overlap_step_count(),
            eager.schedule().inner_step_count() - 1);
  const v1::RunSpec streaming = ReadPreset("streaming").spec;
  *eager.mutable_schedule() = streaming.schedule();
  // A smaller momentum keeps errors of the prediction from growing.
  EXPECT_LT(eager.outer().momentum(), streaming.outer().momentum());
  eager.mutable_outer()->set_momentum(streaming.outer().momentum());
  EXPECT_EQ(eager.SerializeAsString(), streaming.SerializeAsString());
}

TEST(PresetsTest, DecoupledIsElasticWithAQuorumAndRda) {
  const RunFile run = ReadPreset("decoupled");
  EXPECT_EQ(run.spec.schedule().timing(), v1::TIMING_ELASTIC);
  EXPECT_LT(run.spec.schedule().min_quorum(),
            run.spec.schedule().island_count_min());
  EXPECT_EQ(run.spec.schedule().overlap_step_count(), 2);
  // One fragment per step, for a model with as many layers.
  EXPECT_EQ(run.layers_a_fragment, 1);
  EXPECT_EQ(run.spec.layout().fragment_count(), 24);
  EXPECT_EQ(run.spec.schedule().inner_step_count(), 24);
  EXPECT_EQ(run.spec.outer().weighting(),
            v1::WEIGHTING_TOKENS_SQUARED_PER_STEP);
  EXPECT_EQ(run.spec.outer().merge().rule(), v1::MERGE_RULE_KIND_RDA);
  ASSERT_EQ(run.spec.outer().merge().mean_tensor_classes_size(), 1);
  EXPECT_EQ(run.spec.outer().merge().mean_tensor_classes(0),
            v1::TENSOR_CLASS_EMBEDDING);
  EXPECT_EQ(run.fragment_pattern, "balanced");
}

TEST(PresetsTest, SparselocoFeedsBackWhatItLeavesOutAndHasNoMomentum) {
  const v1::RunSpec spec = ReadPreset("sparseloco").spec;
  EXPECT_EQ(spec.exchange().up(), v1::CODEC_TOP_K);
  EXPECT_TRUE(spec.exchange().error_feedback());
  EXPECT_EQ(spec.exchange().error_feedback_decay(), 0.95);
  EXPECT_EQ(spec.outer().optimizer(), v1::OUTER_OPTIMIZER_KIND_SGD);
  EXPECT_EQ(spec.outer().learning_rate(), 1);
  EXPECT_EQ(spec.outer().momentum(), 0);
  EXPECT_EQ(spec.schedule().inner_step_count(), 30);
  // Error feedback needs more than thirty rounds.
  EXPECT_GE(spec.schedule().round_count(), 200);
  EXPECT_EQ(
      spec.inner().warmup_step_count(),
      spec.schedule().round_count() * spec.schedule().inner_step_count() / 10);
}

TEST(PresetsTest, VolunteersWaitForNoIslandAndBoundEach) {
  const v1::RunSpec spec =
      ReadPreset("volunteers",
                 "[data]\nurl = \"https://data.example.org/manifest.json\"\n"
                 "order = \"by_file\"\n")
          .spec;
  const v1::ScheduleSpec& schedule = spec.schedule();
  EXPECT_EQ(schedule.timing(), v1::TIMING_ELASTIC);
  EXPECT_FALSE(IsStreaming(schedule));
  EXPECT_LT(schedule.min_quorum(), schedule.island_count_min());
  // One hostile island of a quorum is less than half.
  EXPECT_GE(schedule.min_quorum(), 3);
  EXPECT_GT(schedule.grace_window().seconds(), 0);
  EXPECT_GT(schedule.round_deadline().seconds(),
            schedule.grace_window().seconds());
  EXPECT_EQ(schedule.sample_fraction(), 1);
  EXPECT_EQ(spec.exchange().up(), v1::CODEC_E3M0);
  EXPECT_EQ(spec.exchange().down(), v1::CODEC_BF16);
  // An island that leaves would lose its error.
  EXPECT_FALSE(spec.exchange().error_feedback());
  EXPECT_GE(spec.outer().enrolled_norm_factor(), 1);
  // A rule that weighs, so that tokens may have a share of the weight.
  EXPECT_EQ(spec.outer().merge().rule(), v1::MERGE_RULE_KIND_NORM_CLIP);
  EXPECT_EQ(spec.outer().weighting(), v1::WEIGHTING_TOKENS);
  EXPECT_GE(spec.data().data_shard_count(), schedule.island_count_min());
  EXPECT_EQ(spec.data().path(), "");
  EXPECT_EQ(spec.guard().on_norm(), v1::GUARD_ACTION_PAUSE);
}

}  // namespace
}  // namespace atl::cli
