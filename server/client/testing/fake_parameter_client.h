// A ParameterClient in memory, for tests of its callers: one version store
// instead of shards, for exports and imports. Thread-compatible.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "server/client/parameter_client.h"

namespace atl::server {

class FakeParameterClient : public ParameterClient {
 public:
  // Sets what Pull returns.
  void SetVersion(int32_t fragment, int64_t version,
                  std::vector<float> elements) {
    versions_[{fragment, version}] = std::move(elements);
  }
  const std::map<int32_t, std::vector<float>>& imported() const {
    return imported_;
  }

  void SetRoutes(ShardRoutes) override {}
  void SetIdentity(PushIdentity) override {}
  TransferOutcome Push(const v1::ContributionInfo& info,
                       absl::Span<const char> encoded,
                       const CallBounds& bounds) override;
  TransferOutcome Pull(int32_t fragment, int64_t version,
                       const std::optional<Digest128>& expected,
                       absl::Span<float> out,
                       const CallBounds& bounds) override;
  TransferOutcome PullReplica(int32_t fragment, int64_t version,
                              int64_t from_version, absl::Span<float> out,
                              const CallBounds& bounds) override;
  TransferOutcome Import(int32_t fragment, absl::Span<const float> elements,
                         const CallBounds& bounds) override;
  TransferCounters counters() const override { return counters_; }

 private:
  std::map<std::pair<int32_t, int64_t>, std::vector<float>> versions_;
  std::map<int32_t, std::vector<float>> imported_;
  TransferCounters counters_;
};

}  // namespace atl::server
