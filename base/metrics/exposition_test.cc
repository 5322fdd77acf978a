#include "base/metrics/exposition.h"

#include <clocale>
#include <cmath>
#include <limits>
#include <locale>
#include <utility>

#include "gtest/gtest.h"

namespace atl {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

MetricFamily MakeFamily(const char* name, MetricType type, double value) {
  MetricFamily family;
  family.name = name;
  family.help = "Help.";
  family.type = type;
  ClientMetric& metric = family.metric.emplace_back();
  metric.counter.value = metric.gauge.value = value;
  return family;
}

MetricFamily MakeHistogram() {
  MetricFamily family = MakeFamily("wait_seconds", MetricType::Histogram, 0);
  ClientMetric& metric = family.metric[0];
  metric.label = {{"phase", "push"}};
  metric.histogram = {3, 7.5, {{1, 0.1}, {2, 1}}};
  return family;
}

std::string Text(const MetricFamily& family) {
  return Expose({family}, ExpositionFormat::kPrometheusText);
}

std::string OpenMetrics(const MetricFamily& family) {
  return Expose({family}, ExpositionFormat::kOpenMetrics);
}

// --- Texts -------------------------------------------------------------------

TEST(ExpositionTest, ACountersFamilyLosesItsTotalInOpenMetricsAlone) {
  const auto family = MakeFamily("sent_bytes_total", MetricType::Counter, 3);
  EXPECT_EQ(Text(family),
            "# HELP sent_bytes_total Help.\n"
            "# TYPE sent_bytes_total counter\n"
            "sent_bytes_total 3\n");
  EXPECT_EQ(OpenMetrics(family),
            "# HELP sent_bytes Help.\n"
            "# TYPE sent_bytes counter\n"
            "# UNIT sent_bytes bytes\n"
            "sent_bytes_total 3\n"
            "# EOF\n");
}

TEST(ExpositionTest, EveryCountersSampleEndsInTotalInOpenMetrics) {
  EXPECT_EQ(OpenMetrics(MakeFamily("turns", MetricType::Counter, 1)),
            "# HELP turns Help.\n# TYPE turns counter\nturns_total 1\n# EOF\n");
}

TEST(ExpositionTest, AHistogramEndsWithItsInfiniteBucketCountAndSum) {
  const std::string samples =
      "wait_seconds_bucket{phase=\"push\",le=\"0.1\"} 1\n"
      "wait_seconds_bucket{phase=\"push\",le=\"1.0\"} 2\n"
      "wait_seconds_bucket{phase=\"push\",le=\"+Inf\"} 3\n"
      "wait_seconds_count{phase=\"push\"} 3\n"
      "wait_seconds_sum{phase=\"push\"} 7.5\n";
  const std::string head =
      "# HELP wait_seconds Help.\n# TYPE wait_seconds histogram\n";
  EXPECT_EQ(Text(MakeHistogram()), head + samples);
  EXPECT_EQ(OpenMetrics(MakeHistogram()),
            head + "# UNIT wait_seconds seconds\n" + samples + "# EOF\n");

  MetricFamily infinite = MakeHistogram();
  infinite.metric[0].histogram.bucket.push_back(
      {3, std::numeric_limits<double>::infinity()});
  EXPECT_EQ(Text(infinite), head + samples);
}

TEST(ExpositionTest, EscapesHelpAndLabels) {
  MetricFamily family = MakeFamily("x", MetricType::Gauge, 1);
  family.help = "a\\b\n\"c\"";
  family.metric[0].label = {{"run", "a\\b\n\"c\""}, {"state", "ready"}};
  const std::string sample = R"(x{run="a\\b\n\"c\"",state="ready"} 1)"
                             "\n";
  EXPECT_EQ(Text(family), "# HELP x a\\\\b\\n\"c\"\n# TYPE x gauge\n" + sample);
  EXPECT_EQ(
      OpenMetrics(family),
      "# HELP x a\\\\b\\n\\\"c\\\"\n# TYPE x gauge\n" + sample + "# EOF\n");
}

TEST(ExpositionTest, NothingIsOnlyTheEndInOpenMetrics) {
  EXPECT_EQ(Expose({}, ExpositionFormat::kOpenMetrics), "# EOF\n");
  EXPECT_EQ(Expose({}, ExpositionFormat::kPrometheusText), "");
}

TEST(ExpositionTest, NumbersReadBackExactly) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const auto& [value, text] : std::vector<std::pair<double, std::string>>{
           {0, "0"},
           {-2.5, "-2.5"},
           {1234567, "1234567"},
           {0.1 + 0.2, "0.30000000000000004"},
           {1732400000.123, "1732400000.123"},
           {9007199254740993, "9007199254740992"},
           {5e-324, "5e-324"},
           {infinity, "+Inf"},
           {-infinity, "-Inf"},
           {std::nan(""), "NaN"}}) {
    EXPECT_EQ(Text(MakeFamily("x", MetricType::Gauge, value)),
              "# HELP x Help.\n# TYPE x gauge\nx " + text + "\n");
  }
}

// Writes 1234.5 as "1.234,5", like a German locale.
class Commas : public std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

TEST(ExpositionTest, IgnoresTheLocale) {
  const std::string before = Text(MakeHistogram());
  const std::locale saved =
      std::locale::global(std::locale(std::locale::classic(), new Commas));
  EXPECT_EQ(Text(MakeHistogram()), before);
  std::locale::global(saved);
}

// --- Choosing ----------------------------------------------------------------

TEST(ExpositionTest, ChoosesWhatTheScraperPrefers) {
  const auto is_open_metrics = [](absl::string_view accept) {
    return ChooseFormat(accept) == ExpositionFormat::kOpenMetrics;
  };
  // As Prometheus 2.42 and 3 send it.
  EXPECT_TRUE(
      is_open_metrics("application/openmetrics-text;version=1.0.0,"
                      "application/openmetrics-text;version=0.0.1;q=0.75,"
                      "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"));
  EXPECT_TRUE(is_open_metrics(
      "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
      "text/plain;version=0.0.4;q=0.4,*/*;q=0.2"));
  EXPECT_TRUE(is_open_metrics("Application/OpenMetrics-Text"));
  EXPECT_FALSE(is_open_metrics(""));
  EXPECT_FALSE(is_open_metrics("*/*"));
  EXPECT_FALSE(is_open_metrics("text/plain"));
  EXPECT_FALSE(is_open_metrics(
      "text/plain, application/openmetrics-text; q=0.9; version=1.0.0"));
  EXPECT_FALSE(is_open_metrics("application/openmetrics-text; q=0"));
  EXPECT_FALSE(is_open_metrics("application/openmetrics-text; q=much"));
  EXPECT_FALSE(is_open_metrics("application/openmetrics-text; version=2.0.0"));
  EXPECT_FALSE(is_open_metrics(",;=,;;q"));
}

}  // namespace
}  // namespace atl
