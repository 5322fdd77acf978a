#include "base/metrics/exposition.h"

#include <limits>

#include "base/metrics/metrics.h"
#include "gtest/gtest.h"
#include "prometheus/counter.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"

namespace atl {
namespace {

using prometheus::MetricFamily;

std::string Text(const std::vector<MetricFamily>& families) {
  return Expose(families, ExpositionFormat::kPrometheusText);
}
std::string OpenText(const std::vector<MetricFamily>& families) {
  return Expose(families, ExpositionFormat::kOpenMetrics);
}

TEST(ExpositionTest, WritesCountersInBothFormats) {
  const auto family =
      MakeCounters("atoll_push_bytes_total", "Pushed bytes.",
                   {{{{"codec", "f32"}}, 1500}, {{{"codec", "int8"}}, 0.5}});
  EXPECT_EQ(Text({family}),
            "# TYPE atoll_push_bytes_total counter\n"
            "# HELP atoll_push_bytes_total Pushed bytes.\n"
            "atoll_push_bytes_total{codec=\"f32\"} 1500\n"
            "atoll_push_bytes_total{codec=\"int8\"} 0.5\n");
  EXPECT_EQ(OpenText({family}),
            "# TYPE atoll_push_bytes counter\n"
            "# UNIT atoll_push_bytes bytes\n"
            "# HELP atoll_push_bytes Pushed bytes.\n"
            "atoll_push_bytes_total{codec=\"f32\"} 1500\n"
            "atoll_push_bytes_total{codec=\"int8\"} 0.5\n"
            "# EOF\n");
}

TEST(ExpositionTest, WritesHistogramsWithCumulativeBuckets) {
  prometheus::Registry registry;
  auto& histogram = prometheus::BuildHistogram()
                        .Name("atoll_fsync_duration_seconds")
                        .Help("Time.")
                        .Register(registry)
                        .Add({}, prometheus::Histogram::BucketBoundaries{
                                     0.001, 1});
  histogram.Observe(0.0005);
  histogram.Observe(0.25);
  histogram.Observe(7);
  EXPECT_EQ(Text(registry.Collect()),
            "# TYPE atoll_fsync_duration_seconds histogram\n"
            "# HELP atoll_fsync_duration_seconds Time.\n"
            "atoll_fsync_duration_seconds_bucket{le=\"0.001\"} 1\n"
            "atoll_fsync_duration_seconds_bucket{le=\"1\"} 2\n"
            "atoll_fsync_duration_seconds_bucket{le=\"+Inf\"} 3\n"
            "atoll_fsync_duration_seconds_sum 7.2505\n"
            "atoll_fsync_duration_seconds_count 3\n");
}

TEST(ExpositionTest, EscapesLabelsAndHelp) {
  const auto family =
      MakeGauges("atoll_x", "a \\ \"b\"\nc", {{{{"state", "q\"\\\n"}}, 1}});
  EXPECT_EQ(Text({family}),
            "# TYPE atoll_x gauge\n"
            "# HELP atoll_x a \\\\ \"b\"\\nc\n"
            "atoll_x{state=\"q\\\"\\\\\\n\"} 1\n");
  EXPECT_NE(OpenText({family}).find("# HELP atoll_x a \\\\ \\\"b\\\"\\nc\n"),
            std::string::npos);
}

TEST(ExpositionTest, WritesNumbersThatReadBackExactly) {
  const double large = 1763935200.123456;
  const auto value = [](double number) {
    const std::string text = Text({MakeGauges("x", "", {{{}, number}})});
    const size_t begin = text.rfind(' ') + 1;
    return text.substr(begin, text.size() - begin - 1);
  };
  EXPECT_EQ(std::stod(value(large)), large);
  EXPECT_EQ(std::stod(value(1.0 / 3)), 1.0 / 3);
  EXPECT_EQ(value(9007199254740993.0), "9007199254740992");
  EXPECT_EQ(value(0), "0");
  EXPECT_EQ(value(std::numeric_limits<double>::quiet_NaN()), "NaN");
  EXPECT_EQ(value(std::numeric_limits<double>::infinity()), "+Inf");
  EXPECT_EQ(value(-std::numeric_limits<double>::infinity()), "-Inf");
}

TEST(ExpositionTest, LeavesOutAFamilyWithoutMetrics) {
  EXPECT_EQ(Text({MakeGauges("x", "nothing", {})}), "");
  EXPECT_EQ(OpenText({MakeGauges("x", "nothing", {})}), "# EOF\n");
}

TEST(ExpositionTest, ChoosesTheFormatThatTheClientPrefers) {
  const auto open = ExpositionFormat::kOpenMetrics;
  const auto text = ExpositionFormat::kPrometheusText;
  EXPECT_EQ(ChooseFormat(""), text);
  EXPECT_EQ(ChooseFormat("*/*"), text);
  EXPECT_EQ(ChooseFormat("text/html,application/xhtml+xml;q=0.9"), text);
  // Of Prometheus 2.42.
  EXPECT_EQ(ChooseFormat("application/openmetrics-text;version=1.0.0,"
                         "application/openmetrics-text;version=0.0.1;q=0.75,"
                         "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"),
            open);
  EXPECT_EQ(ChooseFormat("text/plain, application/openmetrics-text;q=0.2"),
            text);
  EXPECT_EQ(ChooseFormat("application/openmetrics-text;q=0"), text);
  EXPECT_EQ(ChooseFormat("application/openmetrics-text;q=x;;,=,"), open);
}

}  // namespace
}  // namespace atl
