// The metrics of a parameter server: bytes by codec, shards by state, and how
// long merges take. Thread-safe; each count is one atomic addition.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "base/metrics/metrics.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"

namespace atl::server {

// The first that fits is a shard's state.
enum class ShardState {
  kRecovering,  // Its directory is found, and it is not open yet.
  kStopped,     // It has a fault, or could not be opened.
  kBlocked,     // An action fails and is tried again.
  kServing,
};
inline constexpr size_t kShardStateCount = 4;

class ServerMetrics {
 public:
  // Makes the families in `metrics`, which must outlive this.
  explicit ServerMetrics(Metrics& metrics);
  ServerMetrics(const ServerMetrics&) = delete;
  ServerMetrics& operator=(const ServerMetrics&) = delete;

  // Payload bytes of chunks, repeats included: atoll_push_bytes_total{codec},
  // imports too, and atoll_pull_bytes_total{codec}. `codec` is a v1::Codec.
  // Other numbers count as f32.
  void AddPushed(int32_t codec, int64_t bytes) { Add(pushed_, codec, bytes); }
  void AddPulled(int32_t codec, int64_t bytes) { Add(pulled_, codec, bytes); }

  // A merge that ended well: atoll_merge_duration_seconds.
  void ObserveMerge(absl::Duration duration) {
    merges_.Observe(absl::ToDoubleSeconds(duration));
  }

  // Shards by ShardState: atoll_server_shards{state}.
  using ShardCounts = std::array<int, kShardStateCount>;
  void SetShards(const ShardCounts& counts);

 private:
  using ByCodec = std::vector<prometheus::Counter*>;  // By its number.

  static void Add(const ByCodec& counters, int32_t codec, int64_t bytes);

  const ByCodec pushed_;
  const ByCodec pulled_;
  const std::array<prometheus::Gauge*, kShardStateCount> shards_;
  prometheus::Histogram& merges_;
};

}  // namespace atl::server
