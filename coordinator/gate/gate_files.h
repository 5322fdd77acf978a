// The files of a gate: its own certificate, and the island CA with which it
// signs. Read again whenever they change.
//
// Thread-safe.

#pragma once

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/rpc/certificates/authority.h"
#include "base/rpc/certificates/tls.h"
#include "base/rpc/certificates/tls_source.h"
#include "base/rpc/tls_stream/tls_stream.h"
#include "base/sync/mutex.h"

namespace atl::coordinator {

// One state of the files.
struct GateMaterial {
  std::shared_ptr<const rpc::TlsContext> context;  // The gate's side of TLS.
  std::string root_pem;  // The end of the gate's chain.
  std::string pin;       // The root's.
  rpc::KeyAndCertificate island_ca;
};

class GateFiles {
 public:
  // Reads `tls`, and island-ca.crt and island-ca.key of `ca_directory`.
  // Errors as rpc::TlsSource::Open. INVALID_ARGUMENT also: the chain of the
  // certificate does not end with a root, or the island CA cannot sign.
  static absl::StatusOr<std::unique_ptr<GateFiles>> Open(
      const rpc::TlsFiles& tls, const std::string& ca_directory);

  // The newest state that fits; files that do not fit are logged once.
  std::shared_ptr<const GateMaterial> Get();

 private:
  using Read = std::shared_ptr<const rpc::TlsMaterial>;

  GateFiles() = default;
  static absl::StatusOr<std::shared_ptr<const GateMaterial>> Make(
      const rpc::TlsMaterial& own, const rpc::TlsMaterial& island_ca);

  std::unique_ptr<rpc::TlsSource> own_;
  std::unique_ptr<rpc::TlsSource> island_ca_;
  Mutex mutex_;
  // What material_ was made of, or could not be.
  Read own_read_ ABSL_GUARDED_BY(mutex_);
  Read island_ca_read_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const GateMaterial> material_ ABSL_GUARDED_BY(mutex_);
};

// The keys in `ca_directory` that a gate's machine must not have: whoever
// breaks into the gate would have them. Empty: none.
std::string FindForbiddenKeys(const std::string& ca_directory);

}  // namespace atl::coordinator
