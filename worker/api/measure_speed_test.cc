#include "worker/api/measure_speed.h"

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "worker/island/testing/tiny_run.h"
#include "worker/planner/model_spec.h"

namespace atl::worker {
namespace {

bool Never() { return false; }

// A llama with 1.1e9 parameters.
v1::RunSpec LargeRun() {
  v1::RunSpec run = TinyRun({});
  v1::ModelSpec& model = *run.mutable_model();
  model.set_vocab_size(32000);
  model.set_hidden_size(2048);
  model.set_intermediate_size(5632);
  model.set_layer_count(22);
  model.set_head_count(32);
  model.set_kv_head_count(4);
  model.set_sequence_length(2048);
  run.mutable_inner()->set_batch_size(8);
  return run;
}

TEST(MeasureSpeedTest, OperationsGrowWithTheModel) {
  // 22 layers of 9.44e6 and 34.6e6 parameters, and a head of 65.5e6:
  // 6 * 1.034e9, and 12 * 22 * 2048 * 2048 for the attention.
  const double dense = CountFlopsPerToken(LargeRun().model()).value();
  EXPECT_NEAR(dense, 7.314e9, 0.002e9);
  v1::ModelSpec experts = LargeRun().model();
  experts.set_architecture("mixtral");
  experts.set_expert_count(8);
  experts.set_experts_per_token(2);
  // A second expert of each layer, and the routers.
  EXPECT_NEAR(CountFlopsPerToken(experts).value() - dense,
              6.0 * 22 * 2048 * (3 * 5632 + 8), 1e6);
}

TEST(MeasureSpeedTest, TheSampleOfALargeModelIsSmall) {
  const auto sample = MakeSampleRun(LargeRun());
  ASSERT_TRUE(sample.ok()) << sample.status();
  EXPECT_EQ(sample->model().hidden_size(), 512);
  EXPECT_EQ(sample->model().head_count(), 8);
  EXPECT_EQ(sample->model().intermediate_size(), 1408);
  EXPECT_EQ(sample->inner().batch_size(), 1);
  EXPECT_LT(CountFlopsPerToken(sample->model()).value() * 128, 1e10);
  EXPECT_TRUE(MakeTrainerOptions(*sample, 1).ok());
}

TEST(MeasureSpeedTest, ASmallModelIsItsOwnSample) {
  const v1::RunSpec run = TinyRun({});
  EXPECT_EQ(MakeSampleRun(run)->model().hidden_size(),
            run.model().hidden_size());
  const auto speed =
      MeasureTokensPerSecond(run, 1, absl::ZeroDuration(), Never);
  ASSERT_TRUE(speed.ok()) << speed.status();
  EXPECT_GT(*speed, 0);
}

TEST(MeasureSpeedTest, ASmallModelTakesAHundredStepsAndNotItsTime) {
  int step_count = 0;
  const auto count = [&step_count] { return ++step_count > 1000; };
  EXPECT_TRUE(
      MeasureTokensPerSecond(TinyRun({}), 1, absl::Hours(1), count).ok());
  EXPECT_EQ(step_count, 100);
}

TEST(MeasureSpeedTest, AnExternalModelCannotBeMeasured) {
  v1::RunSpec run;
  run.mutable_model()->set_architecture("external");
  EXPECT_EQ(MeasureTokensPerSecond(run, 1, absl::ZeroDuration(), Never)
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(MeasureSpeedTest, StopsBeforeAStep) {
  EXPECT_EQ(MeasureTokensPerSecond(TinyRun({}), 1, absl::ZeroDuration(),
                                   [] { return true; })
                .status()
                .code(),
            absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace atl::worker
