// An island's families on its metrics port:
//
//   atoll_train_loss, atoll_validation_loss        nats a token
//   atoll_trained_tokens_total, atoll_tokens_per_second
//   atoll_push_bytes_total, atoll_pull_bytes_total  {codec}: of the run's
//                                                   uplink, downlink
//   atoll_round_duration_seconds                   {phase}, a histogram
//
// All have the label `run`. A loss is absent until it is known. Thread-safe,
// except Update().

#pragma once

#include <cstdint>
#include <string>

#include "atoll/v1/island_service.pb.h"
#include "atoll/v1/run.pb.h"
#include "base/metrics/metrics.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "worker/island/options.h"

namespace atl::worker {

class IslandMetrics {
 public:
  // `metrics` must outlive it. A later one for the same run continues its
  // counters.
  IslandMetrics(Metrics& metrics, std::string run_id,
                const v1::RunSpec& spec);

  // The newest progress; its counts start at 0 and never decrease.
  void Update(const IslandProgress& progress);
  void Add(const v1::SyncPhases& sync);

 private:
  const std::string run_id_;
  prometheus::Family<prometheus::Gauge>& train_loss_;
  prometheus::Family<prometheus::Gauge>& validation_loss_;
  prometheus::Family<prometheus::Histogram>& round_duration_;
  prometheus::Gauge& tokens_per_second_;
  prometheus::Counter& trained_tokens_;
  prometheus::Counter& push_bytes_;
  prometheus::Counter& pull_bytes_;
  // The part of the progress that the counters have.
  int64_t token_count_ = 0;
  int64_t sent_bytes_ = 0;
  int64_t received_bytes_ = 0;
};

}  // namespace atl::worker
