#include "server/metrics/server_metrics.h"

#include <string>

#include "base/codec/codec.h"
#include "prometheus/registry.h"

namespace atl::server {
namespace {

// Seconds: 1 ms to ten minutes.
const prometheus::Histogram::BucketBoundaries& MergeBuckets() {
  static const auto* const buckets =
      new prometheus::Histogram::BucketBoundaries{
          0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 600};
  return *buckets;
}

std::vector<prometheus::Counter*> MakeByCodec(Metrics& metrics,
                                              const std::string& name,
                                              const std::string& help) {
  prometheus::Family<prometheus::Counter>& family =
      prometheus::BuildCounter().Name(name).Help(help).Register(
          metrics.registry());
  std::vector<prometheus::Counter*> counters;
  for (const codec::CodecId id : codec::AllCodecs()) {
    counters.resize(static_cast<size_t>(id) + 1, nullptr);
    counters.back() =
        &family.Add({{"codec", std::string(codec::CodecName(id))}});
  }
  return counters;
}

std::array<prometheus::Gauge*, kShardStateCount> MakeShardGauges(
    Metrics& metrics) {
  prometheus::Family<prometheus::Gauge>& family =
      prometheus::BuildGauge()
          .Name("atoll_server_shards")
          .Help("Shards of this server by state.")
          .Register(metrics.registry());
  // In the order of ShardState.
  return {&family.Add({{"state", "recovering"}}),
          &family.Add({{"state", "stopped"}}),
          &family.Add({{"state", "blocked"}}),
          &family.Add({{"state", "serving"}})};
}

}  // namespace

ServerMetrics::ServerMetrics(Metrics& metrics)
    : pushed_(MakeByCodec(metrics, "atoll_push_bytes_total",
                          "Payload bytes that islands pushed here.")),
      pulled_(MakeByCodec(metrics, "atoll_pull_bytes_total",
                          "Payload bytes that were pulled from here.")),
      shards_(MakeShardGauges(metrics)),
      merges_(prometheus::BuildHistogram()
                  .Name("atoll_merge_duration_seconds")
                  .Help("Time in which a shard merged a fragment's round.")
                  .Register(metrics.registry())
                  .Add({}, MergeBuckets())) {}

void ServerMetrics::SetShards(const ShardCounts& counts) {
  for (size_t i = 0; i < counts.size(); ++i) shards_[i]->Set(counts[i]);
}

void ServerMetrics::Add(const ByCodec& counters, int32_t codec, int64_t bytes) {
  constexpr auto kF32 = static_cast<size_t>(codec::CodecId::kF32);
  auto index = static_cast<size_t>(codec);
  if (index >= counters.size() || counters[index] == nullptr) index = kF32;
  counters[index]->Increment(static_cast<double>(bytes));
}

}  // namespace atl::server
