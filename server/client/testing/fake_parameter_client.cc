#include "server/client/testing/fake_parameter_client.h"

#include <algorithm>

namespace atl::server {
namespace {

std::optional<absl::Status> TakeFront(std::deque<absl::Status>& errors) {
  if (errors.empty()) return std::nullopt;
  absl::Status status = errors.front();
  errors.pop_front();
  return status;
}

TransferOutcome OneShard(absl::Status status, int64_t payload_bytes) {
  return {status, {{0, status, 1, payload_bytes}}};
}

int64_t CountBytes(size_t element_count) {
  return static_cast<int64_t>(element_count * sizeof(float));
}

}  // namespace

void FakeParameterClient::SetVersion(int32_t fragment, int64_t version,
                                     std::vector<float> elements) {
  std::lock_guard<std::mutex> lock(mutex_);
  versions_[{fragment, version}] = std::move(elements);
  changed_.notify_all();
}

void FakeParameterClient::FailNextPush(absl::Status status) {
  std::lock_guard<std::mutex> lock(mutex_);
  push_errors_.push_back(std::move(status));
}

void FakeParameterClient::FailNextPull(absl::Status status) {
  std::lock_guard<std::mutex> lock(mutex_);
  pull_errors_.push_back(std::move(status));
}

std::vector<FakeParameterClient::Pushed> FakeParameterClient::pushed() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return pushed_;
}

std::map<int32_t, std::vector<float>> FakeParameterClient::imported() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return imported_;
}

ShardRoutes FakeParameterClient::routes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return routes_;
}

void FakeParameterClient::SetRoutes(ShardRoutes routes) {
  std::lock_guard<std::mutex> lock(mutex_);
  routes_ = std::move(routes);
}

void FakeParameterClient::SetIdentity(PushIdentity identity) {
  std::lock_guard<std::mutex> lock(mutex_);
  identity_ = std::move(identity);
}

TransferOutcome FakeParameterClient::Push(const v1::ContributionInfo& info,
                                          absl::Span<const char> encoded,
                                          const CallBounds& /*bounds*/) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (auto error = TakeFront(push_errors_)) return OneShard(*error, 0);
  pushed_.push_back({info, {encoded.begin(), encoded.end()}, identity_});
  const auto bytes = static_cast<int64_t>(encoded.size());
  counters_.sent_payload_bytes += bytes;
  return OneShard(absl::OkStatus(), bytes);
}

TransferOutcome FakeParameterClient::Pull(
    int32_t fragment, int64_t version,
    const std::optional<Digest128>& /*expected*/, absl::Span<float> out,
    const CallBounds& bounds) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (auto error = TakeFront(pull_errors_)) return OneShard(*error, 0);
  const auto there = [&] { return versions_.contains({fragment, version}); };
  const absl::Time deadline =
      std::min(bounds.deadline, absl::Now() + absl::Hours(1));
  changed_.wait_until(lock, bounds.stop, absl::ToChronoTime(deadline), there);
  if (!there()) {
    return OneShard(bounds.stop.stop_requested()
                        ? absl::CancelledError("stopped")
                        : absl::DeadlineExceededError("no such version"),
                    0);
  }
  const std::vector<float>& elements = versions_[{fragment, version}];
  if (elements.size() != out.size()) {
    return OneShard(absl::InvalidArgumentError("another shape"), 0);
  }
  std::copy(elements.begin(), elements.end(), out.begin());
  counters_.received_payload_bytes += CountBytes(elements.size());
  return OneShard(absl::OkStatus(), CountBytes(elements.size()));
}

TransferOutcome FakeParameterClient::Import(int32_t fragment,
                                            absl::Span<const float> elements,
                                            const CallBounds& bounds) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (auto error = TakeFront(push_errors_)) return OneShard(*error, 0);
    imported_[fragment].assign(elements.begin(), elements.end());
    counters_.sent_payload_bytes += CountBytes(elements.size());
  }
  if (bounds.on_progress) bounds.on_progress(CountBytes(elements.size()));
  return OneShard(absl::OkStatus(), CountBytes(elements.size()));
}

TransferCounters FakeParameterClient::counters() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return counters_;
}

}  // namespace atl::server
