// A ParameterClient in memory, for tests of its callers: one version store
// instead of shards. Thread-safe.

#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/client/parameter_client.h"

namespace atl::server {

class FakeParameterClient : public ParameterClient {
 public:
  struct Pushed {
    v1::ContributionInfo info;
    std::vector<char> encoded;
    PushIdentity identity;
  };

  // Sets what Pull returns; Pull waits for it, within its bounds.
  void SetVersion(int32_t fragment, int64_t version,
                  std::vector<float> elements);

  // The next call of Push or Pull, in order, ends with this instead.
  void FailNextPush(absl::Status status);
  void FailNextPull(absl::Status status);

  // Repeats included.
  std::vector<Pushed> pushed() const;
  std::map<int32_t, std::vector<float>> imported() const;
  ShardRoutes routes() const;

  void SetRoutes(ShardRoutes routes) override;
  void SetIdentity(PushIdentity identity) override;
  TransferOutcome Push(const v1::ContributionInfo& info,
                       absl::Span<const char> encoded,
                       const CallBounds& bounds) override;
  TransferOutcome Pull(int32_t fragment, int64_t version,
                       const std::optional<Digest128>& expected,
                       absl::Span<float> out,
                       const CallBounds& bounds) override;
  // The replica is what SetVersion gave.
  TransferOutcome PullReplica(int32_t fragment, int64_t version,
                              int64_t from_version, absl::Span<float> out,
                              const CallBounds& bounds) override {
    return Pull(fragment, version, std::nullopt, out, bounds);
  }
  TransferOutcome Import(int32_t fragment, absl::Span<const float> elements,
                         const CallBounds& bounds) override;
  TransferCounters counters() const override;

 private:
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  // Guarded by mutex_.
  ShardRoutes routes_;
  PushIdentity identity_;
  std::map<std::pair<int32_t, int64_t>, std::vector<float>> versions_;
  std::deque<absl::Status> push_errors_;
  std::deque<absl::Status> pull_errors_;
  std::vector<Pushed> pushed_;
  std::map<int32_t, std::vector<float>> imported_;
  TransferCounters counters_;
};

}  // namespace atl::server
