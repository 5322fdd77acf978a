#include "base/rpc/call.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "base/status/annotate.h"

namespace atl::rpc {

std::string ToHex(absl::string_view bytes) {
  return absl::BytesToHexString(bytes);
}

SlowWatch::SlowWatch(std::function<void()> on_slow, absl::Duration after) {
  if (!on_slow) return;
  thread_ = std::thread([this, on_slow = std::move(on_slow), after] {
    {
      MutexLock lock(&mutex_);
      if (changed_.AwaitWithTimeout(&mutex_, after,
                                    [this] { return ended_; })) {
        return;
      }
    }
    on_slow();
  });
}

SlowWatch::~SlowWatch() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(&mutex_);
    ended_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void Prepare(const CallOptions& options, grpc::ClientContext& context) {
  context.set_deadline(absl::ToChronoTime(absl::Now() + options.timeout));
  context.set_wait_for_ready(options.waits_for_connection);
  if (!options.session.empty()) {
    context.AddMetadata(kSessionMetadata, options.session);
  }
}

absl::Status NamePeer(const absl::Status& status, absl::string_view peer) {
  // gRPC's own answer, from a port without this service, has no message.
  if (absl::IsUnimplemented(status) && status.message().empty()) {
    return absl::UnimplementedError(absl::StrCat(
        peer.empty() ? "the other side" : peer,
        " does not know this method: it is another program, or an older one"));
  }
  if (peer.empty() || (status.code() != absl::StatusCode::kUnavailable &&
                       status.code() != absl::StatusCode::kDeadlineExceeded)) {
    return status;
  }
  return Annotate(status, peer);
}

}  // namespace atl::rpc
