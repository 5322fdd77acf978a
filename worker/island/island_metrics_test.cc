#include "worker/island/island_metrics.h"

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/time/proto_time.h"
#include "gtest/gtest.h"

namespace atl::worker {
namespace {

// Values by "name{label=value,...}"; a histogram's is its count.
std::map<std::string, double> Values(Metrics& metrics) {
  std::map<std::string, double> values;
  for (const prometheus::MetricFamily& family :
       metrics.registry().Collect()) {
    for (const prometheus::ClientMetric& metric : family.metric) {
      std::map<std::string, std::string> labels;
      for (const auto& label : metric.label) labels[label.name] = label.value;
      std::string name = family.name;
      for (const auto& [label, value] : labels) {
        absl::StrAppend(&name, name == family.name ? "{" : ",", label, "=",
                        value);
      }
      values[name + "}"] =
          family.type == prometheus::MetricType::Counter ? metric.counter.value
          : family.type == prometheus::MetricType::Gauge
              ? metric.gauge.value
              : static_cast<double>(metric.histogram.sample_count);
    }
  }
  return values;
}

class IslandMetricsTest : public testing::Test {
 protected:
  IslandMetricsTest() {
    spec_.mutable_exchange()->set_up(v1::CODEC_INT8);
    progress_.loss = 2.5;
    progress_.token_count = 100;
    progress_.tokens_per_second = 50;
    progress_.sent_bytes = 10;
    progress_.received_bytes = 40;
  }

  Metrics metrics_;
  v1::RunSpec spec_;
  IslandProgress progress_;
};

TEST_F(IslandMetricsTest, ALossIsAbsentUntilItIsKnown) {
  IslandMetrics island(metrics_, "r", spec_);
  IslandProgress unknown;
  unknown.token_count = 100;
  island.Update(unknown);
  std::map<std::string, double> values = Values(metrics_);
  EXPECT_FALSE(values.contains("atoll_train_loss{run=r}"));
  EXPECT_FALSE(values.contains("atoll_validation_loss{run=r}"));
  progress_.evaluation.emplace().set_loss(3.5);
  island.Update(progress_);
  values = Values(metrics_);
  EXPECT_EQ(values["atoll_train_loss{run=r}"], 2.5);
  EXPECT_EQ(values["atoll_validation_loss{run=r}"], 3.5);
}

TEST_F(IslandMetricsTest, CountersGrowOverTheAttemptsOfAProcess) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    IslandMetrics island(metrics_, "r", spec_);
    island.Update(progress_);
    island.Update(progress_);
  }
  std::map<std::string, double> values = Values(metrics_);
  EXPECT_EQ(values["atoll_trained_tokens_total{run=r}"], 200);
  EXPECT_EQ(values["atoll_push_bytes_total{codec=int8,run=r}"], 20);
  EXPECT_EQ(values["atoll_pull_bytes_total{codec=f32,run=r}"], 80);
  EXPECT_EQ(values["atoll_tokens_per_second{run=r}"], 50);
}

TEST_F(IslandMetricsTest, EachPhaseIsObservedUnderItsName) {
  IslandMetrics island(metrics_, "r", spec_);
  v1::SyncPhases sync;
  for (const v1::Phase phase : {v1::PHASE_TRAIN, v1::PHASE_WAIT}) {
    v1::PhaseTime* const time = sync.add_phases();
    time->set_phase(phase);
    *time->mutable_duration() = ToProto(absl::Seconds(3));
  }
  island.Add(sync);
  island.Add(sync);
  std::map<std::string, double> values = Values(metrics_);
  EXPECT_EQ(values["atoll_round_duration_seconds{phase=train,run=r}"], 2);
  EXPECT_EQ(values["atoll_round_duration_seconds{phase=wait,run=r}"], 2);
  EXPECT_FALSE(
      values.contains("atoll_round_duration_seconds{phase=push,run=r}"));
}

}  // namespace
}  // namespace atl::worker
