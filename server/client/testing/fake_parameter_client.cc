#include "server/client/testing/fake_parameter_client.h"

#include <algorithm>

namespace atl::server {
namespace {

TransferOutcome OneShard(absl::Status status, int64_t payload_bytes) {
  return {status, {{0, status, 1, payload_bytes}}};
}

int64_t CountBytes(size_t element_count) {
  return static_cast<int64_t>(element_count * sizeof(float));
}

}  // namespace

TransferOutcome FakeParameterClient::Push(const v1::ContributionInfo&,
                                          absl::Span<const char>,
                                          const CallBounds&) {
  return OneShard(absl::UnimplementedError("no contributions here"), 0);
}

TransferOutcome FakeParameterClient::Pull(
    int32_t fragment, int64_t version,
    const std::optional<Digest128>& /*expected*/, absl::Span<float> out,
    const CallBounds&) {
  const auto found = versions_.find({fragment, version});
  if (found == versions_.end()) {
    return OneShard(absl::OutOfRangeError("no such version"), 0);
  }
  const std::vector<float>& elements = found->second;
  if (elements.size() != out.size()) {
    return OneShard(absl::InvalidArgumentError("another shape"), 0);
  }
  std::copy(elements.begin(), elements.end(), out.begin());
  counters_.received_payload_bytes += CountBytes(elements.size());
  return OneShard(absl::OkStatus(), CountBytes(elements.size()));
}

TransferOutcome FakeParameterClient::PullReplica(int32_t, int64_t, int64_t,
                                                 absl::Span<float>,
                                                 const CallBounds&) {
  return OneShard(absl::UnimplementedError("no replicas here"), 0);
}

TransferOutcome FakeParameterClient::Import(int32_t fragment,
                                            absl::Span<const float> elements,
                                            const CallBounds& bounds) {
  imported_[fragment].assign(elements.begin(), elements.end());
  counters_.sent_payload_bytes += CountBytes(elements.size());
  if (bounds.on_progress) bounds.on_progress(CountBytes(elements.size()));
  return OneShard(absl::OkStatus(), CountBytes(elements.size()));
}

}  // namespace atl::server
