#include "base/rpc/server_credentials.h"

#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/rpc/certificates/tls.h"
#include "base/sync/mutex.h"
#include "grpc/grpc_security.h"

namespace atl::rpc {
namespace {

// gRPC replaces the old certificate under its lock, but a handshake reads it
// just after that lock (ssl_security_connector.cc, add_handshakers). A
// replacement waits for so long, with the lock: then no such handshake is
// left. It happens once for each new certificate.
constexpr absl::Duration kReplaceAfter = absl::Milliseconds(50);

// The state of a port's credentials; gRPC's object owns it.
class Port {
 public:
  explicit Port(std::shared_ptr<CallerCheck> check)
      : check_(std::move(check)) {}

  // gRPC's callback, at the start of every handshake.
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* port, grpc_ssl_server_certificate_config** config) {
    return static_cast<Port*>(port)->Fetch(config);
  }

  static void Destroy(void* port) {
    const std::unique_ptr<Port> owned(static_cast<Port*>(port));
  }

 private:
  grpc_ssl_certificate_config_reload_status Fetch(
      grpc_ssl_server_certificate_config** config) {
    MutexLock lock(&mutex_);
    std::shared_ptr<const TlsMaterial> material = check_->Refresh();
    if (material == used_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    if (used_ != nullptr) absl::SleepFor(kReplaceAfter);
    const grpc_ssl_pem_key_cert_pair pair = {material->key_pem.c_str(),
                                             material->cert_pem.c_str()};
    *config = grpc_ssl_server_certificate_config_create(
        absl::StrCat(material->ca_pem, "\n", material->island_ca_pem).c_str(),
        &pair, 1);
    used_ = std::move(material);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const std::shared_ptr<CallerCheck> check_;
  Mutex mutex_;
  // The TLS files that gRPC uses; null before its first Fetch.
  std::shared_ptr<const TlsMaterial> used_ ABSL_GUARDED_BY(mutex_);
};

class Credentials : public grpc::ServerCredentials {
 public:
  // Takes over `credentials`.
  explicit Credentials(grpc_server_credentials* credentials)
      : credentials_(credentials) {}
  ~Credentials() override { grpc_server_credentials_release(credentials_); }

  // Not supported: with a processor one header of a peer ends the process
  // (CVE-2023-1428).
  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address,
                      grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  grpc_server_credentials* const credentials_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(
    std::shared_ptr<CallerCheck> check) {
  auto port = std::make_unique<Port>(std::move(check));
  grpc_server_credentials* const credentials =
      grpc_ssl_server_credentials_create_with_options(
          grpc_ssl_server_credentials_create_options_using_config_fetcher(
              GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY,
              &Port::Fetch, port.get()));
  // A processor without a function processes nothing, but owns the port as
  // long as gRPC has the credentials.
  grpc_server_credentials_set_auth_metadata_processor(
      credentials, {nullptr, &Port::Destroy, port.release()});
  return std::make_shared<Credentials>(credentials);
}

}  // namespace atl::rpc
