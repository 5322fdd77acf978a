#include "cli/ca/secret_publisher.h"

#include <cstdint>
#include <memory>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/object_store/http_client.h"
#include "base/rpc/retry.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "nlohmann/json.hpp"

namespace atl::cli {
namespace {

constexpr int64_t kTokenBytesMax = 64 << 10;
constexpr int64_t kCaBytesMax = 1 << 20;
constexpr absl::Duration kRequestTimeout = absl::Seconds(10);

// Returns the API's reason for refusing a request.
std::string MessageOf(const std::string& body) {
  const nlohmann::json json = nlohmann::json::parse(body, nullptr, false);
  if (json.is_object() && json.contains("message") &&
      json["message"].is_string()) {
    return json["message"].get<std::string>();
  }
  return body.substr(0, 200);
}

absl::Status Refusal(const std::string& name, const HttpAnswer& answer) {
  const std::string text =
      absl::StrCat("secret ", name, ": the API answers ", answer.code, ": ",
                   MessageOf(answer.body));
  switch (answer.code) {
    case 401:
      return absl::UnauthenticatedError(text);
    case 403:
      return absl::PermissionDeniedError(text);
    case 404:
      return absl::NotFoundError(text);
    default:
      return answer.code == 429 || answer.code >= 500
                 ? absl::UnavailableError(text)
                 : absl::InvalidArgumentError(text);
  }
}

}  // namespace

std::string SecretJson(const std::string& name_space, const Secret& secret) {
  nlohmann::json json = {
      {"apiVersion", "v1"},
      {"kind", "Secret"},
      {"type", secret.type},
      {"metadata", {{"name", secret.name}, {"namespace", name_space}}},
      {"data", nlohmann::json::object()},
  };
  for (const auto& [key, content] : secret.data) {
    json["data"][key] = absl::Base64Escape(content);
  }
  if (!secret.labels.empty()) json["metadata"]["labels"] = secret.labels;
  return json.dump();
}

absl::StatusOr<bool> CreateSecret(const KubernetesApi& api,
                                  const std::string& name_space,
                                  const Secret& secret) {
  if (!absl::StartsWith(api.url, "https://")) {
    return absl::InvalidArgumentError(
        absl::StrCat("--api \"", api.url, "\" must begin with https://"));
  }
  ASSIGN_OR_RETURN(const std::string ca,
                   ReadFile(PosixFileSystem(), api.ca_file, kCaBytesMax));
  if (absl::StripAsciiWhitespace(ca).empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--api-ca ", api.ca_file,
        " is empty: in a pod, the cluster's controller manager gives no CA "
        "(--root-ca-file)"));
  }
  HttpClientOptions options;
  options.ca_pem = ca;
  options.trusts_only_ca_pem = true;
  options.request_timeout = kRequestTimeout;
  const absl::StatusOr<std::unique_ptr<HttpClient>> client =
      HttpClient::Create(options);
  RETURN_IF_ERROR(
      Annotate(client.status(), absl::StrCat("--api-ca ", api.ca_file)));
  const std::string body = SecretJson(name_space, secret);
  HttpRequest request;
  request.method = "POST";
  request.url =
      absl::StrCat(api.url, "/api/v1/namespaces/", name_space, "/secrets");
  request.headers = {{"Content-Type", "application/json"},
                     {"Accept", "application/json"}};
  request.body = body;
  const absl::Time deadline = absl::Now() + api.patience;
  rpc::Backoff backoff({}, std::random_device()());
  while (true) {
    // Kubernetes replaces the token from time to time.
    ASSIGN_OR_RETURN(
        const std::string token,
        ReadFile(PosixFileSystem(), api.token_file, kTokenBytesMax));
    request.bearer_token = std::string(absl::StripAsciiWhitespace(token));
    const absl::StatusOr<HttpAnswer> answer = (*client)->Send(request);
    absl::Status status = answer.status();
    if (answer.ok()) {
      if (answer->code == 201) return true;
      if (answer->code == 409) return false;
      status = Refusal(secret.name, *answer);
    } else if (absl::IsFailedPrecondition(status)) {  // Its certificate.
      return absl::InvalidArgumentError(
          absl::StrCat("--api-ca ", api.ca_file, ": ", status.message()));
    }
    const absl::Duration delay = backoff.Next(status);
    if (!absl::IsUnavailable(status) || absl::Now() + delay > deadline) {
      return status;
    }
    absl::SleepFor(delay);
  }
}

}  // namespace atl::cli
