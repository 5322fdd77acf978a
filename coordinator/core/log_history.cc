#include "coordinator/core/log_history.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/codec/sha256.h"
#include "base/status/cut_utf8.h"

namespace atl::coordinator {
namespace {

// A fault quotes at most this many bytes of a cluster_id that a peer sent.
constexpr size_t kClusterIdBytesMax = 64;

}  // namespace

// H(secret, H(secret, position)): the outer hash keeps a caller from extending
// what it was sent (as HMAC does, RFC 2104).
std::string ProvePosition(const std::string& secret,
                          const v1::LogPosition& position) {
  const auto hash = [&](absl::string_view text) {
    const codec::Sha256Digest digest =
        codec::ComputeSha256(absl::StrCat(secret, "/", text));
    return std::string(digest.begin(), digest.end());
  };
  return hash(hash(absl::StrCat(position.cluster_id(), "/",
                                position.start_id(), "/", position.index())));
}

void LogHistory::AddStart(const storage::v1::CoordinatorStarted& start) {
  if (start.start_id().empty()) return;
  cluster_id_ = start.cluster_id();
  secret_ = start.log_secret();
  starts_.push_back(start);
  if (start.supersedes()) superseded_end_ = start.log_index();
  if (start.has_new_secret()) other_secret_end_ = start.log_index();
  if (starts_.size() > kStartsMax) starts_.erase(FindOldest());
}

std::deque<storage::v1::CoordinatorStarted>::const_iterator
LogHistory::FindOldest() const {
  return std::find_if(starts_.begin(), starts_.end(), [&](const auto& one) {
    return one.log_index() != superseded_end_ &&
           one.log_index() != other_secret_end_;
  });
}

v1::LogPosition LogHistory::position(int64_t ahead) const {
  v1::LogPosition position;
  if (starts_.empty()) return position;
  position.set_cluster_id(cluster_id_);
  position.set_start_id(starts_.back().start_id());
  position.set_index(index_ + ahead);
  position.set_proof(ProvePosition(secret_, position));
  return position;
}

std::optional<v1::Fault> LogHistory::CheckCluster(
    const std::string& cluster_id) const {
  if (cluster_id.empty() || starts_.empty() || cluster_id == cluster_id_) {
    return std::nullopt;
  }
  v1::Fault fault;
  fault.set_code("OTHER_CLUSTER");
  fault.set_expected(absl::StrCat("cluster ", cluster_id_));
  fault.set_found(
      absl::StrCat("cluster ", CutUtf8(cluster_id, kClusterIdBytesMax)));
  return fault;
}

std::optional<v1::Fault> LogHistory::Check(const v1::LogPosition& seen) const {
  if (seen.cluster_id().empty() || starts_.empty()) return std::nullopt;
  if (seen.cluster_id() != cluster_id_) return CheckCluster(seen.cluster_id());
  v1::Fault fault;
  if (seen.index() >= other_secret_end_ &&
      seen.proof() != ProvePosition(secret_, seen)) {
    fault.set_code("OTHER_CLUSTER");
    // A new log under the old id, for example on an emptied disk.
    fault.set_expected(absl::StrCat("cluster ", cluster_id_));
    fault.set_found(
        absl::StrCat("cluster ", cluster_id_, " with another log"));
    return fault;
  }
  if (seen.index() < superseded_end_) return std::nullopt;
  int64_t end = index_;  // Last batch of the start that `seen` names.
  const auto start = std::find_if(
      starts_.begin(), starts_.end(),
      [&](const auto& one) { return one.start_id() == seen.start_id(); });
  if (start != starts_.end()) {
    const auto next = std::next(start);
    if (next != starts_.end()) end = next->log_index() - 1;
    if (seen.index() <= end) return std::nullopt;
  } else if (starts_.size() == kStartsMax &&
             seen.index() < FindOldest()->log_index()) {
    return std::nullopt;  // It may name a start that is no longer kept.
  }
  fault.set_code("LOG_BEHIND");
  fault.set_expected(
      absl::StrCat("batch ", seen.index(), " of start ", seen.start_id()));
  fault.set_found(start != starts_.end()
                      ? absl::StrCat("batch ", end, " as its last one")
                      : absl::StrCat("batch ", end, " of start ",
                                     starts_.back().start_id()));
  return fault;
}

}  // namespace atl::coordinator
