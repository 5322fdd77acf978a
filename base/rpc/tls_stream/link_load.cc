#include "base/rpc/tls_stream/link_load.h"

#include <string>

#include "base/status/status_macros.h"
#include "base/time/clock.h"

namespace atl::rpc {
namespace {

// With its length it fills a record of TLS.
constexpr int64_t kMessageBytes = static_cast<int64_t>(kTlsMessageBytesMax) - 4;

}  // namespace

absl::Status SendLoad(TlsStream& stream, absl::Duration time,
                      int64_t bytes_max) {
  const std::string message(kMessageBytes, '\0');
  const absl::Time end = SystemClock().Now() + time;
  for (int64_t sent = 0;
       sent + kMessageBytes <= bytes_max && SystemClock().Now() < end;
       sent += kMessageBytes) {
    RETURN_IF_ERROR(stream.Send(message));
  }
  return stream.Send("");
}

absl::StatusOr<LinkLoad> ReceiveLoad(TlsStream& stream, int64_t bytes_max) {
  LinkLoad load;
  absl::Time begin = absl::InfiniteFuture();
  while (true) {
    ASSIGN_OR_RETURN(const std::string message, stream.Receive());
    const absl::Time now = SystemClock().Now();
    if (message.empty()) return load;
    if (begin == absl::InfiniteFuture()) begin = now;
    load.bytes += static_cast<int64_t>(message.size());
    load.span = now - begin;
    // Small messages cost more than they count: time bounds them, too.
    if (load.bytes > bytes_max || load.span > 2 * kLinkLoadTime) {
      return absl::InvalidArgumentError("a probe of the link sends too much");
    }
  }
}

}  // namespace atl::rpc
