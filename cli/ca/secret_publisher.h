// Creates Secrets through the API of Kubernetes.

#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace atl::cli {

// The API server's address, and the account's token for it.
struct KubernetesApi {
  std::string url;         // "https://10.0.0.1:443"
  std::string token_file;  // The service account's.
  std::string ca_file;     // CA of the API's certificate.
  // Connection errors are retried for so long.
  absl::Duration patience = absl::Minutes(1);
};

struct Secret {
  std::string name;
  std::string type;                         // "kubernetes.io/tls", "Opaque".
  std::map<std::string, std::string> data;  // Content by key.
  std::map<std::string, std::string> labels;
};

// The body of the request that creates `secret`. Pure.
std::string SecretJson(const std::string& name_space, const Secret& secret);

// Creates `secret` in the namespace. True: made; false: there is one of this
// name, which is left as it is.
// INVALID_ARGUMENT: the URL is not HTTPS, or the API does not take the request.
// PERMISSION_DENIED: the account may not create Secrets. NOT_FOUND: there is no
// such namespace, or a file cannot be read. FAILED_PRECONDITION: the file of the
// API's CA is empty. UNAVAILABLE: the API did not
// answer. Messages have what the API said.
absl::StatusOr<bool> CreateSecret(const KubernetesApi& api,
                                  const std::string& name_space,
                                  const Secret& secret);

}  // namespace atl::cli
