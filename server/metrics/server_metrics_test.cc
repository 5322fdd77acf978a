#include "server/metrics/server_metrics.h"

#include <map>
#include <string>

#include "atoll/v1/run.pb.h"
#include "gtest/gtest.h"

namespace atl::server {
namespace {

class ServerMetricsTest : public testing::Test {
 protected:
  // The values of a family by the value of their only label.
  std::map<std::string, double> Read(const std::string& name) {
    std::map<std::string, double> values;
    for (const auto& family : metrics_.Collect()) {
      if (family.name != name) continue;
      for (const auto& metric : family.metric) {
        const std::string label =
            metric.label.empty() ? "" : metric.label[0].value;
        values[label] = family.type == prometheus::MetricType::Histogram
                            ? static_cast<double>(metric.histogram.sample_count)
                        : family.type == prometheus::MetricType::Counter
                            ? metric.counter.value
                            : metric.gauge.value;
      }
    }
    return values;
  }

  Metrics metrics_;
  ServerMetrics recorded_{metrics_};
};

TEST_F(ServerMetricsTest, BytesCountByTheCodecsName) {
  recorded_.AddPushed(v1::CODEC_INT8, 100);
  recorded_.AddPushed(v1::CODEC_INT8, 20);
  recorded_.AddPulled(v1::CODEC_F32, 7);
  EXPECT_EQ(Read("atoll_push_bytes_total")["int8"], 120);
  EXPECT_EQ(Read("atoll_push_bytes_total")["f32"], 0);
  EXPECT_EQ(Read("atoll_pull_bytes_total")["f32"], 7);
}

TEST_F(ServerMetricsTest, EveryCodecHasACounterFromTheStart) {
  EXPECT_EQ(Read("atoll_push_bytes_total").size(), 7);
  EXPECT_EQ(Read("atoll_pull_bytes_total").size(), 7);
}

TEST_F(ServerMetricsTest, AnUnknownCodecCountsAsF32) {
  recorded_.AddPushed(v1::CODEC_UNSPECIFIED, 5);
  recorded_.AddPushed(-1, 5);
  recorded_.AddPushed(1000, 5);
  EXPECT_EQ(Read("atoll_push_bytes_total")["f32"], 15);
}

TEST_F(ServerMetricsTest, ShardsCountByState) {
  recorded_.SetShards({1, 2, 3, 4});
  EXPECT_EQ(
      Read("atoll_server_shards"),
      (std::map<std::string, double>{
          {"recovering", 1}, {"stopped", 2}, {"blocked", 3}, {"serving", 4}}));
}

TEST_F(ServerMetricsTest, AMergeIsObserved) {
  recorded_.ObserveMerge(absl::Milliseconds(3));
  EXPECT_EQ(Read("atoll_merge_duration_seconds")[""], 1);
}

}  // namespace
}  // namespace atl::server
