#include "base/rpc/wait_notice.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace atl::rpc {
namespace {

constexpr absl::Duration kIntervalMax = absl::Minutes(5);

}  // namespace

bool WaitNotice::IsDue(absl::Duration waited) {
  if (waited < waited_) next_ = kFirst;
  waited_ = waited;
  if (waited < next_) return false;
  next_ = waited + std::min(2 * waited, kIntervalMax);
  return true;
}

std::string DescribeSilence(const absl::Status& last) {
  if (last.ok()) return "it does not answer";
  // gRPC's texts: it has no codes for these.
  const absl::string_view message = last.message();
  if (absl::StrContains(message, "DNS resolution failed")) {
    return "the name does not resolve here";
  }
  if (absl::StrContains(message, "Connection refused")) {
    return "it refuses connections";
  }
  return std::string(message);
}

}  // namespace atl::rpc
