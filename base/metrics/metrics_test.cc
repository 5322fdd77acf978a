#include "base/metrics/metrics.h"

#include <unistd.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "prometheus/counter.h"

namespace atl {
namespace {

using prometheus::MetricFamily;

class Source : public prometheus::Collectable {
 public:
  explicit Source(std::string label) : label_(std::move(label)) {}

  std::vector<MetricFamily> Collect() const override {
    return {MakeGauges("atoll_source", "A source.", {{{{"name", label_}}, 1}})};
  }

 private:
  const std::string label_;
};

std::map<std::string, MetricFamily> ByName(const Metrics& metrics) {
  std::map<std::string, MetricFamily> by_name;
  for (MetricFamily& family : metrics.Collect()) {
    EXPECT_EQ(by_name.count(family.name), 0u) << family.name;
    by_name[family.name] = family;
  }
  return by_name;
}

TEST(MetricsTest, KnowsItsProcess) {
  const Metrics metrics;
  auto families = ByName(metrics);
  const auto gauge = [&](const std::string& name) {
    EXPECT_EQ(families[name].metric.size(), 1u) << name;
    return families[name].metric.empty()
               ? -1
               : families[name].metric[0].gauge.value;
  };
  EXPECT_GE(gauge("process_resident_memory_bytes"), 1 << 20);
  EXPECT_GE(gauge("process_virtual_memory_bytes"),
            gauge("process_resident_memory_bytes"));
  EXPECT_GE(gauge("process_threads"), 1);
  EXPECT_GE(gauge("process_open_fds"), 3);
  EXPECT_GE(gauge("process_max_fds"), gauge("process_open_fds"));
  EXPECT_NEAR(gauge("process_start_time_seconds"),
              static_cast<double>(time(nullptr)), 86400);
  EXPECT_EQ(gauge("atoll_build_info"), 1);
}

TEST(MetricsTest, CountsProcessorTime) {
  const Metrics metrics;
  const auto seconds = [&] {
    return ByName(metrics)["process_cpu_seconds_total"].metric[0].counter.value;
  };
  const double before = seconds();
  while (seconds() < before + 0.02) {
  }
}

TEST(MetricsTest, BecomesReady) {
  Metrics metrics;
  const auto ready = [&] {
    return ByName(metrics)["atoll_ready"].metric[0].gauge.value;
  };
  EXPECT_EQ(metrics.ready(), absl::UnavailableError("starting"));
  EXPECT_EQ(ready(), 0);
  metrics.SetReady(absl::OkStatus());
  EXPECT_EQ(ready(), 1);
  metrics.SetReady(absl::UnavailableError("the disk fails"));
  EXPECT_EQ(ready(), 0);
}

TEST(MetricsTest, JoinsSourcesThatShareAFamily) {
  Metrics metrics;
  auto first = std::make_shared<Source>("a");
  auto second = std::make_shared<Source>("b");
  metrics.Add(first);
  metrics.Add(second);
  EXPECT_EQ(ByName(metrics)["atoll_source"].metric.size(), 2u);
  second.reset();
  EXPECT_EQ(ByName(metrics)["atoll_source"].metric.size(), 1u);
}

TEST(MetricsTest, HasWhatPartsRegister) {
  Metrics metrics;
  prometheus::BuildCounter()
      .Name("atoll_commits_total")
      .Register(metrics.registry())
      .Add({{"run", "spring"}})
      .Increment(3);
  auto families = ByName(metrics);
  ASSERT_EQ(families["atoll_commits_total"].metric.size(), 1u);
  EXPECT_EQ(families["atoll_commits_total"].metric[0].counter.value, 3);
}

}  // namespace
}  // namespace atl
