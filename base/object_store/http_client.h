// HTTP requests, one at a time, over connections that are kept.
//
// Thread-compatible. HTTP/1.1 over TLS; plaintext to loopback hosts, or as a
// DialPolicy allows. No proxy, password file or cookie of the environment is
// used.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/host_port/proxy.h"
#include "base/object_store/dial_policy.h"
#include "base/object_store/object_url.h"
#include "base/time/clock.h"

namespace atl {

struct HttpClientOptions {
  // For URLs that a peer named: judges the address of each connection, also
  // after a redirect. nullopt: the URLs are our own.
  std::optional<DialPolicy> dial_policy;
  Proxy proxy;  // Requests that leave the machine go through it.
  // PEM certificates that are trusted besides the system's. Empty: none.
  std::string ca_pem;
  bool trusts_only_ca_pem = false;  // Not the system's. `ca_pem` is not empty.
  // Applies to a request without a sink.
  absl::Duration request_timeout = absl::Minutes(20);
  // At least kRateMin, or 0: no bound.
  int64_t receive_bytes_per_second = 0;
  int64_t send_bytes_per_second = 0;
  std::function<bool()> cancelled;  // Asked at least once a second.
  const Clock* clock = &SystemClock();
};

struct HttpRequest {
  std::string method;  // GET, HEAD, PUT, POST or DELETE.
  std::string url;     // As ParseHttpUrl accepts it; its path is sent as it is.
  HttpHeaders headers;
  absl::string_view body;  // For PUT and POST.
  std::string bearer_token;
  // Follows at most 5 redirects, to https:// only. Each host by itself is
  // dialled directly or through the proxy. `bearer_token` is not sent to
  // another host; `headers` are.
  bool follows_redirects = false;
  // To an address inside of the machine: without the proxy, and in plaintext
  // also to kContainerHosts.
  bool is_local = false;
  // Sent even if cancelled, and given up after 10 s.
  bool is_cleanup = false;
};

struct HttpAnswer {
  int code = 0;
  std::map<std::string, std::string> headers;  // By lower-case name.
  std::string body;        // An error's is cut at kErrorBytesMax.
  int redirect_count = 0;  // That were followed to this answer.

  // Empty if there is none.
  std::string header(const std::string& name) const;
  bool ok() const { return code >= 200 && code < 300; }
};

// Takes the next bytes of the body of an answer with a code of 2xx. May block.
// `head` has no body. An error ends the transfer.
using HttpSink = absl::FunctionRef<absl::Status(const HttpAnswer& head,
                                                absl::string_view bytes)>;

class HttpClient {
 public:
  static constexpr int64_t kRateMin = 64 << 10;
  static constexpr int64_t kHeaderBytesMax = 64 << 10;
  static constexpr int64_t kBodyBytesMax = 8 << 20;  // Without a sink.
  static constexpr int64_t kErrorBytesMax = 64 << 10;
  static constexpr absl::Duration kConnectTimeout = absl::Seconds(10);
  // A transfer to a sink ends if it moves less than 1 KiB/s in this time, the
  // sink's time not counted; any other if it moves nothing.
  static constexpr absl::Duration kStallTimeout = absl::Seconds(60);

  // INVALID_ARGUMENT: an option is wrong. Others: the CA file cannot be read.
  static absl::StatusOr<std::unique_ptr<HttpClient>> Create(
      const HttpClientOptions& options);
  virtual ~HttpClient() = default;

  // Sends a request once. Returns the answer, whatever its code.
  //
  // UNAVAILABLE: no whole answer; another attempt may succeed.
  // FAILED_PRECONDITION: the server's certificate is not trusted, its redirects
  // are not followed, or the policy refuses its address. RESOURCE_EXHAUSTED: the
  // answer exceeds a bound. CANCELLED. INVALID_ARGUMENT: the request is
  // malformed, or the proxy has a fault.
  virtual absl::StatusOr<HttpAnswer> Send(const HttpRequest& request) = 0;
  // The same. A body of 2xx goes to `sink`, in pieces of at most 512 KiB; the
  // sink's errors are returned as they are.
  virtual absl::StatusOr<HttpAnswer> Send(const HttpRequest& request,
                                          HttpSink sink) = 0;
};

}  // namespace atl
