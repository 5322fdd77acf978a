#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

#include "coordinator/client/coordinator_cost.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::benchmarks {
namespace {

using coordinator::CoordinatorLoad;
using coordinator::CostOfCoordinator;
using coordinator::kCostMib;

// A quarter more, as WithMarginMib of cli/kubernetes.
int64_t LimitMib(const CoordinatorLoad& load) {
  return CostOfCoordinator(load).memory_bytes() / 4 * 5 / kCostMib;
}

// The memory limit of `coordinator:` in a file of the chart, in MiB; -1: it has
// none.
int64_t ChartLimitMib(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  bool is_inside = false;
  while (std::getline(file, line)) {
    if (!line.empty() && line[0] != ' ' && line[0] != '#') {
      is_inside = line.rfind("coordinator:", 0) == 0;
    }
    const size_t found = line.find("limits:");
    if (!is_inside || found == std::string::npos) continue;
    const size_t memory = line.find("memory: ", found);
    if (memory == std::string::npos) return -1;
    std::istringstream words(line.substr(memory + 8));
    int64_t count = 0;
    std::string unit;
    words >> count >> unit;
    return unit.rfind("Gi", 0) == 0 ? count * 1024 : count;
  }
  return -1;
}

// A row of `round` in tests/benchmarks/results/control.md.
struct MeasuredRow {
  CoordinatorLoad load;
  double rss_mib = 0;
};

TEST(CostModelTest, IsAboveWhatTheBenchmarkMeasuredAndNotFarAbove) {
  const MeasuredRow rows[] = {
      {{.island_count = 50, .fragment_count = 8, .server_count = 2}, 58},
      {{.island_count = 300, .server_count = 2}, 90},
      {{.island_count = 1000, .server_count = 2}, 194},
      {{.run_count = 5, .island_count = 1000, .server_count = 2}, 187},
      {{.island_count = 300, .server_count = 2, .tls = false}, 58},
      {{.island_count = 1000, .server_count = 2, .tls = false}, 105},
      {{.island_count = 1000,
        .fragment_count = 24,
        .server_count = 2,
        .tls = false},
       232},
      {{.island_count = 1000,
        .fragment_count = 24,
        .server_count = 8,
        .tls = false},
       312},
  };
  for (const MeasuredRow& row : rows) {
    const double mib =
        static_cast<double>(CostOfCoordinator(row.load).memory_bytes()) /
        kCostMib;
    EXPECT_GE(mib, row.rss_mib) << row.load.island_count;
    EXPECT_LE(mib, 2 * row.rss_mib) << row.load.island_count;
  }
}

TEST(CostModelTest, TheChartsLimitHoldsAThousandIslands) {
  const CoordinatorLoad load = {.island_count = 1000,
                                .fragment_count = 24,
                                .server_count = 8,
                                .tls = true};
  EXPECT_GE(ChartLimitMib("deploy/kubernetes/atoll/values.yaml"),
            LimitMib(load));
}

TEST(CostModelTest, TheProductionLimitHoldsFiveSuchRuns) {
  const CoordinatorLoad load = {.run_count = 5,
                                .island_count = 5000,
                                .fragment_count = 24,
                                .server_count = 8,
                                .tls = true};
  EXPECT_GE(ChartLimitMib("deploy/kubernetes/atoll/production.yaml"),
            LimitMib(load));
}

TEST(CostModelTest, DiskGrowsWithTheRoundsThatAreKept) {
  CoordinatorLoad load = {.island_count = 100, .kept_round_count = 1000};
  const int64_t before = CostOfCoordinator(load).disk_bytes;
  load.kept_round_count *= 2;
  EXPECT_EQ(CostOfCoordinator(load).disk_bytes - before,
            3 * 1000 * (512 + 100 * 320));
}

}  // namespace
}  // namespace atl::benchmarks
