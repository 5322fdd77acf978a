// How a stranger, or an enrolled island, asks a gate.
//
// Before a byte of a request is sent, the gate must prove that the root CA
// stands behind it which the join string pins: its chain has the root, the root
// signed it, it is valid now, and it is a gate's certificate for the dialled
// host. The gate sees our certificate only after that, too.
//
// Thread-safe.

#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "atoll/v1/enrolment.pb.h"
#include "base/host_port/host_port.h"
#include "base/host_port/proxy.h"
#include "base/rpc/tls_stream/link_load.h"
#include "base/rpc/tls_stream/tls_stream.h"

namespace atl::coordinator {

struct GateClientOptions {
  std::string address;  // host:port of the gate.
  std::string pin;      // The root's: base/identity/join_string.h.
  // The certificate to renew, with its key; PEM. Both may be empty.
  std::string cert_pem;
  std::string key_pem;
  Proxy proxy;
  absl::Duration timeout = absl::Seconds(10);  // A call's, in all.
  int stop_fd = -1;  // A waker (base/io/unique_fd.h) that ends calls; -1: none.
};

class GateClient {
 public:
  // INVALID_ARGUMENT: the address or the pin is malformed, or the key does not
  // fit.
  static absl::StatusOr<std::unique_ptr<GateClient>> Make(
      const GateClientOptions& options);

  // Asks once, over a connection of its own. Never returns a GateError: that is
  // an error with its code, reason and message.
  //
  // UNAUTHENTICATED, WRONG_PIN: the gate has another root.
  // UNAUTHENTICATED, NOT_VALID_NOW: the gate's certificate is not valid at the
  // time that this machine's clock shows. The message has both.
  // UNAUTHENTICATED: the gate's certificate is refused for another reason. The
  // message says which.
  // UNAVAILABLE, NOT_FOUND, DEADLINE_EXCEEDED: the gate, or the proxy, cannot
  // be reached, or gives no answer. The message names it.
  // CANCELLED: stopped.
  // INTERNAL: the answer is no GateResponse.
  absl::StatusOr<v1::GateResponse> Call(const v1::GateRequest& request) const;

  // The same, but a GateError is an answer too: it has the gate's time.
  // `root_pem`, if not null, gets the root that the pin names.
  absl::StatusOr<v1::GateResponse> Ask(const v1::GateRequest& request,
                                       std::string* root_pem = nullptr) const;

  // Measures the link, which takes some seconds. Errors as Call;
  // RESOURCE_EXHAUSTED, BUSY, with a RetryInfo: the gate measures other links
  // now.
  absl::StatusOr<rpc::LinkLoad> ProbeLink(const v1::LinkProbe& probe) const;

 private:
  explicit GateClient(const GateClientOptions& options) : options_(options) {}

  // A stream to the gate, which was checked.
  absl::StatusOr<std::unique_ptr<rpc::TlsStream>> Connect(
      std::string* root_pem = nullptr) const;
  absl::StatusOr<v1::GateResponse> Exchange(rpc::TlsStream& stream,
                                            const v1::GateRequest& request) const;
  absl::StatusOr<v1::GateResponse> Receive(rpc::TlsStream& stream) const;
  // The root.
  absl::StatusOr<std::string> CheckGate(const std::string& chain_pem) const;

  const GateClientOptions options_;
  HostPort gate_;
  std::shared_ptr<const rpc::TlsContext> context_;
};

// OK, or the error for which `error` stands. A code that is not known is
// INTERNAL.
absl::Status FromGateError(const v1::GateError& error);

}  // namespace atl::coordinator
