#include "base/metrics/process_metrics.h"

#include <unistd.h>

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace atl {
namespace {

constexpr char kStat[] =
    "12 (a ) b) S 1 2 3 4 5 6 7 8 9 10 250 50 13 14 20 0 7 0 1000 4096 3 18\n";

TEST(ProcessMetricsTest, ReadsAStatWhoseNameHasParentheses) {
  const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  ProcessUsage usage;
  ASSERT_TRUE(ParseProcessStat(kStat, 500, usage));
  EXPECT_EQ(usage.cpu_seconds, 300 / ticks);
  EXPECT_EQ(usage.start_time_seconds, 500 + 1000 / ticks);
  EXPECT_EQ(usage.virtual_memory_bytes, 4096);
  EXPECT_EQ(usage.resident_memory_bytes,
            3 * static_cast<double>(sysconf(_SC_PAGESIZE)));
  EXPECT_EQ(usage.thread_count, 7);
}

TEST(ProcessMetricsTest, RefusesAStatThatLacksFieldsOrNumbers) {
  ProcessUsage usage;
  usage.thread_count = 77;
  std::string text = kStat;
  EXPECT_FALSE(ParseProcessStat("", 0, usage));
  EXPECT_FALSE(ParseProcessStat("12 (a) S 1", 0, usage));
  text.replace(text.find("250"), 3, "abc");
  EXPECT_FALSE(ParseProcessStat(text, 0, usage));
  EXPECT_EQ(usage.thread_count, 77);
}

TEST(ProcessMetricsTest, ThisProcessHasAllFamiliesWithPositiveValues) {
  std::set<std::string> names;
  for (const auto& family : CollectProcessMetrics()) {
    names.insert(family.name);
    ASSERT_EQ(family.metric.size(), 1u);
    if (family.type == prometheus::MetricType::Gauge) {
      EXPECT_GT(family.metric[0].gauge.value, 0) << family.name;
    }
  }
  EXPECT_EQ(names, (std::set<std::string>{
                       "process_cpu_seconds_total", "process_max_fds",
                       "process_open_fds", "process_resident_memory_bytes",
                       "process_start_time_seconds", "process_threads",
                       "process_virtual_memory_bytes"}));
}

}  // namespace
}  // namespace atl
