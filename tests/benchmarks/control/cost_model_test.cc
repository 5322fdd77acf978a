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
int64_t WithMarginMib(int64_t bytes) { return bytes / 4 * 5 / kCostMib; }

int64_t MemoryMib(const CoordinatorLoad& load) {
  return WithMarginMib(CostOfCoordinator(load).memory_bytes());
}

// The quantity after `name`, in the line of `coordinator:` that has `key`, in a
// file of the chart, in MiB; -1: it has none.
int64_t ChartMib(const std::string& path, const std::string& key,
                 const std::string& name) {
  std::ifstream file(path);
  std::string line;
  bool is_inside = false;
  while (std::getline(file, line)) {
    if (!line.empty() && line[0] != ' ' && line[0] != '#') {
      is_inside = line.rfind("coordinator:", 0) == 0;
    }
    const size_t found = line.find(key);
    if (!is_inside || found == std::string::npos) continue;
    const size_t at = line.find(name, found);
    if (at == std::string::npos) return -1;
    std::istringstream words(line.substr(at + name.size()));
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

// Memory and disk of the coordinator in a file of the chart hold `load`.
void ExpectHolds(const std::string& path, const CoordinatorLoad& load) {
  EXPECT_GE(ChartMib(path, "limits:", "memory: "), MemoryMib(load));
  EXPECT_GE(ChartMib(path, "size:", "size: "),
            WithMarginMib(CostOfCoordinator(load).disk_bytes));
}

TEST(CostModelTest, TheChartHoldsAThousandIslands) {
  CoordinatorLoad load = {.island_count = 1000,
                          .fragment_count = 24,
                          .server_count = 8,
                          .kept_round_count = 10000};
  ExpectHolds("deploy/kubernetes/atoll/values.yaml", load);
  // As BOUNDS.md says.
  load.run_count = 2;
  load.island_count = 1800;
  EXPECT_LE(MemoryMib(load), 1024);
  load.island_count = 1900;
  EXPECT_GT(MemoryMib(load), 1024);
}

TEST(CostModelTest, TheProductionChartHoldsFiveSuchRuns) {
  ExpectHolds("deploy/kubernetes/atoll/production.yaml",
              {.run_count = 5,
               .island_count = 5000,
               .fragment_count = 24,
               .server_count = 8,
               .kept_round_count = 10000});
}

TEST(CostModelTest, DiskGrowsWithTheRoundsThatAreKept) {
  CoordinatorLoad load = {.island_count = 1000,
                          .fragment_count = 24,
                          .server_count = 8};
  const int64_t before = CostOfCoordinator(load).disk_bytes;
  load.kept_round_count = 1;
  const int64_t bytes = CostOfCoordinator(load).disk_bytes - before;
  // control.md: a round's rows, and what a round adds to all files.
  EXPECT_GE(bytes, 24 * 57000);
  EXPECT_GE(bytes, 1400000);
  EXPECT_LE(bytes, 2 * 1400000);
}

}  // namespace
}  // namespace atl::benchmarks
