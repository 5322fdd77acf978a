// Start time of a coordinator by the rounds of its run, with and without
// snapshots.
//
// usage: startup_benchmark DIRECTORY [ROUNDS [ISLANDS]]
//
// Writes a store of each kind below DIRECTORY, which must be empty. Opens each
// five times and prints the median time until the coordinator is ready to
// serve, and what the logs hold.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/obs/log.h"
#include "base/status/check.h"
#include "base/time/clock.h"
#include "coordinator/service/event_loop.h"
#include "coordinator/service/testing/long_run.h"
#include "coordinator/store/rocksdb_store.h"

namespace atl::coordinator {
namespace {

double Seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Measure(const std::string& directory, const CoordinatorOptions& options,
             int island_count, int64_t round_count) {
  {
    const auto store = RocksDbStore::Create(directory);
    CHECK_OK(store.status());
    CHECK_OK(WriteLongRun(options, island_count, round_count, **store));
  }
  std::vector<double> times;
  size_t record_count = 0;
  size_t snapshot_bytes = 0;
  for (int i = 0; i < 5; ++i) {
    const double begin = Seconds();
    const auto store = RocksDbStore::Open(directory);
    CHECK_OK(store.status());
    EventLoop::Spec spec;
    spec.store = store->get();
    spec.clock = &SystemClock();
    spec.coordinator = options;
    const auto loop = EventLoop::Start(spec);
    CHECK_OK(loop.status());
    times.push_back(Seconds() - begin);
    (*loop)->Stop();
    const auto snapshot = (*store)->ReadSnapshot("run");
    CHECK_OK(snapshot.status());
    const int64_t revision =
        snapshot->has_value() ? (*snapshot)->revision() : 0;
    snapshot_bytes = snapshot->has_value() ? (*snapshot)->ByteSizeLong() : 0;
    record_count = (*store)->Scan("run", revision, INT64_MAX)->size();
  }
  std::sort(times.begin(), times.end());
  std::printf("%8.1f ms  snapshot of %zu bytes, %zu records behind it  (%s)\n",
              times[2] * 1e3, snapshot_bytes, record_count, directory.c_str());
}

}  // namespace
}  // namespace atl::coordinator

int main(int argc, char** argv) {
  int64_t round_count = 10'000;
  int island_count = 4;
  if (argc < 2 || argc > 4 ||
      (argc > 2 && !absl::SimpleAtoi(argv[2], &round_count)) ||
      (argc > 3 && !absl::SimpleAtoi(argv[3], &island_count)) ||
      round_count < 1 || island_count < 1) {
    std::fprintf(stderr,
                 "usage: startup_benchmark DIRECTORY [ROUNDS [ISLANDS]]\n");
    return 2;
  }
  CHECK_OK(atl::SetMinimumLogSeverity("warning"));
  std::printf("start-up after %lld rounds of %d islands\n",
              static_cast<long long>(round_count), island_count);
  atl::coordinator::CoordinatorOptions options;
  atl::coordinator::Measure(absl::StrCat(argv[1], "/snapshots"), options,
                            island_count, round_count);
  options.snapshots.log_records_max = INT64_MAX;
  options.snapshots.log_bytes_max = INT64_MAX;
  atl::coordinator::Measure(absl::StrCat(argv[1], "/whole"), options,
                            island_count, round_count);
  return 0;
}
