#include "base/metrics/metrics.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "base/obs/version.h"
#include "gtest/gtest.h"
#include "prometheus/counter.h"

namespace atl {
namespace {

class Source : public prometheus::Collectable {
 public:
  explicit Source(prometheus::MetricFamily family)
      : family_(std::move(family)) {}
  std::vector<prometheus::MetricFamily> Collect() const override {
    return {family_};
  }

 private:
  const prometheus::MetricFamily family_;
};

// The family `name` of `metrics`; empty if there is none.
prometheus::MetricFamily Find(const Metrics& metrics, absl::string_view name) {
  for (const auto& family : metrics.Collect()) {
    if (family.name == name) return family;
  }
  return {};
}

TEST(MetricsTest, IsNotReadyUntilToldAndSaysWhatItWaitsFor) {
  Metrics metrics;
  EXPECT_EQ(metrics.ready(), absl::UnavailableError("starting"));
  EXPECT_EQ(Find(metrics, "atoll_ready").metric.at(0).gauge.value, 0);
  metrics.SetReady(absl::OkStatus());
  EXPECT_TRUE(metrics.ready().ok());
  EXPECT_EQ(Find(metrics, "atoll_ready").metric.at(0).gauge.value, 1);
  metrics.SetFault(absl::UnavailableError("deaf"));
  EXPECT_EQ(metrics.ready().message(), "deaf");
  metrics.SetFault(absl::OkStatus());
  EXPECT_TRUE(metrics.ready().ok());
  metrics.SetReady(absl::UnavailableError("drains"));
  EXPECT_EQ(metrics.ready().message(), "drains");
  EXPECT_EQ(Find(metrics, "atoll_ready").metric.at(0).gauge.value, 0);
}

TEST(MetricsTest, HasTheProcessAndItsVersion) {
  const Metrics metrics;
  EXPECT_EQ(Find(metrics, "process_threads").metric.size(), 1u);
  const auto info = Find(metrics, "atoll_build_info");
  ASSERT_EQ(info.metric.size(), 1u);
  EXPECT_EQ(info.metric[0].gauge.value, 1);
  EXPECT_EQ(info.metric[0].label, (std::vector<prometheus::ClientMetric::Label>{
                                      {"version", kProgramVersion}}));
}

TEST(MetricsTest, CollectsTheRegistryAndSourcesSortedByName) {
  Metrics metrics;
  prometheus::BuildCounter()
      .Name("turns_total")
      .Help("Turns.")
      .Register(metrics.registry())
      .Add({})
      .Increment(3);
  const auto source =
      std::make_shared<Source>(MakeGauges("a_gauge", "A.", {{{}, 2}}));
  metrics.Add(source);
  EXPECT_EQ(Find(metrics, "turns_total").metric.at(0).counter.value, 3);
  EXPECT_EQ(Find(metrics, "a_gauge").metric.at(0).gauge.value, 2);
  const auto families = metrics.Collect();
  EXPECT_TRUE(std::is_sorted(
      families.begin(), families.end(),
      [](const auto& a, const auto& b) { return a.name < b.name; }));
}

TEST(MetricsTest, TwoFamiliesOfOneNameBecomeOne) {
  Metrics metrics;
  const auto first = std::make_shared<Source>(
      MakeCounters("x_total", "X.", {{{{"codec", "f32"}}, 1}}));
  const auto second = std::make_shared<Source>(
      MakeCounters("x_total", "X.", {{{{"codec", "bf16"}}, 2}}));
  const auto other_type =
      std::make_shared<Source>(MakeGauges("x_total", "X.", {{{}, 3}}));
  metrics.Add(first);
  metrics.Add(second);
  metrics.Add(other_type);
  const auto families = metrics.Collect();
  EXPECT_EQ(std::count_if(families.begin(), families.end(),
                          [](const auto& f) { return f.name == "x_total"; }),
            1);
  EXPECT_EQ(Find(metrics, "x_total").metric.size(), 2u);
}

TEST(MetricsTest, ASourceThatIsGoneAndAnEmptyFamilyAreNotShown) {
  Metrics metrics;
  auto gone = std::make_shared<Source>(MakeGauges("gone", "G.", {{{}, 1}}));
  const auto empty = std::make_shared<Source>(MakeGauges("empty", "E.", {}));
  metrics.Add(gone);
  metrics.Add(empty);
  EXPECT_EQ(Find(metrics, "gone").name, "gone");
  gone.reset();
  EXPECT_EQ(Find(metrics, "gone").name, "");
  EXPECT_EQ(Find(metrics, "empty").name, "");
}

}  // namespace
}  // namespace atl
