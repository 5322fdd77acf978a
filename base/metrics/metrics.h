// The metrics of one process, and whether it is ready.
//
// A program makes one Metrics in main and hands it to the parts that record.
// Each part creates its families once, in registry(), and increments them where
// something happens. Values that exist elsewhere (a count of islands, free disk
// space) come from a Collectable, which is asked at each scrape.
//
// Names and units follow Prometheus: base units, `_total` for counters. Labels
// of our own families are run, phase, outcome, codec, state, server and port;
// never an island: labels must be few.
//
// Thread-safe.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/sync/mutex.h"
#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"
#include "prometheus/registry.h"

namespace atl {

class Metrics {
 public:
  // Has the process's own families already: process_cpu_seconds_total,
  // process_resident_memory_bytes, process_virtual_memory_bytes,
  // process_open_fds, process_max_fds, process_start_time_seconds,
  // process_threads, atoll_build_info{version} and atoll_ready.
  Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  prometheus::Registry& registry() { return registry_; }

  // Asks `source` at each scrape, until it is destroyed. `source` must answer
  // within a second, also while a disk is stuck.
  void Add(std::weak_ptr<prometheus::Collectable> source);

  // OK once the program serves; the message says what it waits for. Initially
  // UNAVAILABLE, "starting".
  void SetReady(absl::Status ready);
  // A fault that makes the program not ready, whatever SetReady says; OK: none.
  void SetFault(absl::Status fault);
  absl::Status ready() const;

  // All families, sorted by name. Two families of one name become one.
  std::vector<prometheus::MetricFamily> Collect() const;

 private:
  prometheus::Registry registry_;

  mutable Mutex mutex_;
  std::vector<std::weak_ptr<prometheus::Collectable>> sources_
      ABSL_GUARDED_BY(mutex_);
  absl::Status ready_ ABSL_GUARDED_BY(mutex_);
  absl::Status fault_ ABSL_GUARDED_BY(mutex_);
};

// --- For collectables --------------------------------------------------------

// One family whose metrics all have a value.
struct Sample {
  std::vector<prometheus::ClientMetric::Label> labels;
  double value = 0;
};
prometheus::MetricFamily MakeGauges(std::string name, std::string help,
                                    std::vector<Sample> samples);
prometheus::MetricFamily MakeCounters(std::string name, std::string help,
                                      std::vector<Sample> samples);

}  // namespace atl
