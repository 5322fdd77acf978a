#include "coordinator/client/gate_client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/identity/join_string.h"
#include "base/net/http_proxy.h"
#include "base/net/socket.h"
#include "base/rpc/certificates/public_key.h"
#include "base/rpc/certificates/tls.h"
#include "base/rpc/server_check.h"
#include "base/status/annotate.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "base/time/clock.h"
#include "base/time/proto_time.h"

namespace atl::coordinator {
namespace {

// Its limits are of a minute, and a measurement takes some seconds.
constexpr absl::Duration kBusyWait = absl::Seconds(10);

absl::Status WrongPin(const HostPort& gate, const std::string& seen,
                      const std::string& wanted) {
  return Refuse(
      absl::StatusCode::kUnauthenticated, "WRONG_PIN",
      absl::StrCat("the gate at ", JoinHostPort(gate.host, gate.port),
                   " shows the root with pin ", seen, ", the join string has ",
                   wanted,
                   ": ask whoever sent it for a new one; do not continue"));
}

// The pin of the last certificate, where the root should be.
std::string LastPin(const std::string& chain_pem) {
  const size_t last = chain_pem.rfind("-----BEGIN ");
  const absl::StatusOr<rpc::PublicKey> key = rpc::ReadPublicKey(
      last == std::string::npos ? "" : chain_pem.substr(last));
  return key.ok() ? rpc::ToPin(*key) : "of an unreadable key";
}

}  // namespace

absl::Status FromGateError(const v1::GateError& error) {
  auto code = static_cast<absl::StatusCode>(error.code());
  const bool is_known =
      error.code() > 0 &&
      error.code() <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  if (!is_known) code = absl::StatusCode::kInternal;
  const absl::Status status(code, error.message());
  if (error.reason().empty()) return status;
  const absl::Status with_reason = WithReason(status, {error.reason(), {}});
  return error.reason() == "BUSY" ? WithRetryDelay(with_reason, kBusyWait)
                                  : with_reason;
}

absl::StatusOr<std::unique_ptr<GateClient>> GateClient::Make(
    const GateClientOptions& options) {
  auto made = std::unique_ptr<GateClient>(new GateClient(options));
  ASSIGN_OR_RETURN(made->gate_, ParseHostPort(options.address));
  if (made->gate_.port == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", options.address, "\": port 0 cannot be dialled"));
  }
  if (!IsPin(options.pin)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", options.pin, "\" is no pin: base64url of 32 bytes"));
  }
  ASSIGN_OR_RETURN(made->context_, rpc::TlsContext::MakeClient(
                                       options.cert_pem, options.key_pem));
  return made;
}

absl::StatusOr<v1::GateResponse> GateClient::Call(
    const v1::GateRequest& request) const {
  ASSIGN_OR_RETURN(v1::GateResponse response, Ask(request));
  if (response.has_error()) return FromGateError(response.error());
  return response;
}

absl::StatusOr<v1::GateResponse> GateClient::Ask(
    const v1::GateRequest& request, std::string* root_pem) const {
  ASSIGN_OR_RETURN(const std::unique_ptr<rpc::TlsStream> stream,
                   Connect(root_pem));
  return Exchange(*stream, request);
}

absl::StatusOr<rpc::LinkLoad> GateClient::ProbeLink(
    const v1::LinkProbe& probe) const {
  ASSIGN_OR_RETURN(const std::unique_ptr<rpc::TlsStream> stream, Connect());
  v1::GateRequest request;
  *request.mutable_probe() = probe;
  ASSIGN_OR_RETURN(v1::GateResponse response, Exchange(*stream, request));
  if (response.has_error()) return FromGateError(response.error());
  if (probe.direction() == v1::LINK_DIRECTION_DOWN) {
    return rpc::ReceiveLoad(*stream, rpc::kLinkLoadBytesMax);
  }
  RETURN_IF_ERROR(
      rpc::SendLoad(*stream, rpc::kLinkLoadTime, rpc::kLinkLoadBytesMax));
  ASSIGN_OR_RETURN(response, Receive(*stream));
  return rpc::LinkLoad{response.link().bytes(),
                       FromProto(response.link().span_duration())};
}

absl::StatusOr<v1::GateResponse> GateClient::Exchange(
    rpc::TlsStream& stream, const v1::GateRequest& request) const {
  RETURN_IF_ERROR(Annotate(stream.Send(request.SerializeAsString()),
                           absl::StrCat("the gate at ", options_.address)));
  return Receive(stream);
}

absl::StatusOr<v1::GateResponse> GateClient::Receive(
    rpc::TlsStream& stream) const {
  const std::string who = absl::StrCat("the gate at ", options_.address);
  const absl::StatusOr<std::string> bytes = stream.Receive();
  RETURN_IF_ERROR(Annotate(bytes.status(), who));
  v1::GateResponse response;
  if (!response.ParseFromString(*bytes) ||
      response.body_case() == v1::GateResponse::BODY_NOT_SET) {
    return absl::InternalError(absl::StrCat(
        who, " answers what this program does not know: upgrade it"));
  }
  return response;
}

absl::StatusOr<std::unique_ptr<rpc::TlsStream>> GateClient::Connect(
    std::string* root_pem) const {
  const std::string who = absl::StrCat("the gate at ", options_.address);
  const net::WaitLimits limits = {SystemClock().Now() + options_.timeout,
                                  options_.stop_fd};
  absl::StatusOr<UniqueFd> fd = net::Dial(gate_, options_.proxy, limits);
  RETURN_IF_ERROR(Annotate(fd.status(), who));
  net::BoundUnsentBytes(fd->get());
  absl::StatusOr<std::string> root = std::string();
  absl::StatusOr<std::unique_ptr<rpc::TlsStream>> stream =
      rpc::TlsStream::Connect(
          *context_, *std::move(fd), gate_.host,
          [&](const std::string& chain_pem) {
            root = CheckGate(chain_pem);
            return root.status();
          },
          limits);
  RETURN_IF_ERROR(root.status());  // It names the gate.
  RETURN_IF_ERROR(Annotate(stream.status(), who));
  if (root_pem != nullptr) *root_pem = *std::move(root);
  return stream;
}

absl::StatusOr<std::string> GateClient::CheckGate(
    const std::string& chain_pem) const {
  const absl::StatusOr<std::string> root =
      rpc::FindPinned(chain_pem, options_.pin);
  if (!root.ok()) return WrongPin(gate_, LastPin(chain_pem), options_.pin);
  const absl::Time now = absl::Now();
  const absl::Status status =
      rpc::CheckServerCertificate(chain_pem, *root, gate_, Role::kGate, now,
                                  "the root with the join string's pin");
  const bool is_valid_now = rpc::CheckValidity(chain_pem, now).ok() &&
                            rpc::CheckValidity(*root, now).ok();
  if (status.ok()) return *root;
  if (is_valid_now) return status;
  return Refuse(absl::StatusCode::kUnauthenticated, "NOT_VALID_NOW",
                absl::StrCat(status.message(), "; this machine's clock shows ",
                             absl::FormatTime(absl::RFC3339_sec, now,
                                              absl::UTCTimeZone()),
                             ": set it if it is wrong, and try again"));
}

}  // namespace atl::coordinator
