#include "coordinator/gate/gate_files.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/obs/log.h"
#include "base/rpc/certificates/public_key.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"

namespace atl::coordinator {

absl::StatusOr<std::unique_ptr<GateFiles>> GateFiles::Open(
    const rpc::TlsFiles& tls, const std::string& ca_directory) {
  auto files = std::unique_ptr<GateFiles>(new GateFiles);
  ASSIGN_OR_RETURN(files->own_,
                   rpc::TlsSource::Open(tls, rpc::KeyUse::kServer, "the gate"));
  const std::string cert = ca_directory + "/island-ca.crt";
  absl::StatusOr<std::unique_ptr<rpc::TlsSource>> island_ca =
      rpc::TlsSource::Open({cert, ca_directory + "/island-ca.key", cert},
                           std::nullopt, "the gate's island CA");
  RETURN_IF_ERROR(
      Annotate(island_ca.status(), "--ca-dir: the island CA, as if for TLS"));
  files->island_ca_ = *std::move(island_ca);
  MutexLock lock(&files->mutex_);
  files->own_read_ = files->own_->Get();
  files->island_ca_read_ = files->island_ca_->Get();
  ASSIGN_OR_RETURN(files->material_,
                   Make(*files->own_read_, *files->island_ca_read_));
  return files;
}

std::shared_ptr<const GateMaterial> GateFiles::Get() {
  Read own = own_->Get();
  Read island_ca = island_ca_->Get();
  MutexLock lock(&mutex_);
  if (own == own_read_ && island_ca == island_ca_read_) return material_;
  absl::StatusOr<std::shared_ptr<const GateMaterial>> made =
      Make(*own, *island_ca);
  own_read_ = std::move(own);
  island_ca_read_ = std::move(island_ca);
  if (made.ok()) {
    material_ = *std::move(made);
  } else {
    LOG(WARNING) << "the gate keeps its old files: " << made.status().message();
  }
  return material_;
}

absl::StatusOr<std::shared_ptr<const GateMaterial>> GateFiles::Make(
    const rpc::TlsMaterial& own, const rpc::TlsMaterial& island_ca) {
  auto made = std::make_shared<GateMaterial>();
  const absl::StatusOr<std::string> root = rpc::FindRoot(own.cert_pem);
  if (!root.ok()) {
    return absl::InvalidArgumentError(
        "--tls-cert: the certificate's chain must end with the root CA, which "
        "join strings pin; `atoll ca issue --role gate` writes it so");
  }
  made->root_pem = *root;
  ASSIGN_OR_RETURN(const rpc::PublicKey root_key, rpc::ReadPublicKey(*root));
  made->pin = rpc::ToPin(root_key);
  ASSIGN_OR_RETURN(made->context,
                   rpc::TlsContext::MakeServer(own.cert_pem, own.key_pem));
  made->island_ca = {island_ca.key_pem, island_ca.cert_pem};
  // A CA that cannot sign is found now, not after a token is consumed.
  const absl::Time now = absl::Now();
  RETURN_IF_ERROR(
      Annotate(rpc::IssueCertificate(made->island_ca, {.common_name = "trial",
                                                       .client_auth = true,
                                                       .begin = now,
                                                       .end = now})
                   .status(),
               "--ca-dir: island-ca.crt"));
  return made;
}

std::string FindForbiddenKeys(const std::string& ca_directory) {
  std::string found;
  for (const char* name : {"root.key", "ca.key", "service-ca.key"}) {
    std::error_code error;
    if (!std::filesystem::exists(absl::StrCat(ca_directory, "/", name),
                                 error)) {
      continue;
    }
    absl::StrAppend(&found, found.empty() ? "" : ", ", name);
  }
  return found;
}

}  // namespace atl::coordinator
