#include "cli/enrol/call_gate.h"

#include <memory>

#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "cli/output/error.h"
#include "coordinator/client/gate_client.h"

namespace atl::cli {

GateCall MakeGateCall(const Proxy& proxy) {
  return [proxy](const GatePeer& peer, const v1::GateRequest& request)
             -> absl::StatusOr<v1::GateResponse> {
    coordinator::GateClientOptions options;
    options.address = peer.address;
    options.pin = peer.pin;
    options.key_pem = peer.key_pem;
    options.cert_pem = peer.cert_pem;
    options.stop_fd = peer.stop_fd;
    options.proxy = proxy;
    ASSIGN_OR_RETURN(const std::unique_ptr<coordinator::GateClient> client,
                     coordinator::GateClient::Make(options));
    absl::StatusOr<v1::GateResponse> response = client->Call(request);
    if (!absl::IsUnavailable(response.status()) ||
        atl::GetReason(response.status()).has_value()) {
      return response;
    }
    return WithHint(response.status(),
                    "Is the gate running, and reachable from here? Its address "
                    "is in the join string.");
  };
}

}  // namespace atl::cli
