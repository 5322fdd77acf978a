#include "cli/enrol/testing/fake_gate.h"

#include "absl/strings/str_cat.h"
#include "base/rpc/certificates/certificate_request.h"
#include "base/rpc/certificates/public_key.h"

namespace atl::cli {

FakeGate::FakeGate()
    : authority_(rpc::MakeAuthority("island CA", absl::Now() - absl::Hours(1),
                                    absl::Now() + absl::Hours(100))
                     .value()) {}

absl::StatusOr<v1::GateResponse> FakeGate::Call(
    const GatePeer& peer, const v1::GateRequest& request) {
  requests.push_back(request);
  peers.push_back(peer);
  if (!error.ok()) return error;
  if (request.has_enrol()) {
    key_der_ =
        rpc::ReadCertificateRequest(request.enrol().certificate_request())
            .value()
            .der;
  }
  rpc::CertificateSpec spec;
  spec.common_name = "atoll:island:e-attic";
  spec.client_auth = true;
  spec.begin = begin;
  spec.end = end;
  v1::GateResponse response;
  v1::Enrolled& enrolled = *response.mutable_enrolled();
  enrolled.mutable_identity()->set_name("e-attic");
  enrolled.set_certificate_chain_pem(
      rpc::IssueCertificateForKey(authority_, spec, key_der_).value());
  enrolled.set_root_pem(authority_.cert_pem);
  enrolled.set_coordinator_address(coordinator_address);
  enrolled.add_server_addresses("s0.example.org:7401");
  enrolled.set_data_token(absl::StrCat("token-", requests.size()));
  return response;
}

GateCall FakeGate::AsCall() {
  return [this](const GatePeer& peer, const v1::GateRequest& request) {
    return Call(peer, request);
  };
}

std::string FakeGate::pin() const {
  return rpc::ToPin(rpc::ReadPublicKey(authority_.cert_pem).value());
}

}  // namespace atl::cli
