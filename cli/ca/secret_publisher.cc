#include "cli/ca/secret_publisher.h"

#include <curl/curl.h>

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
#include "base/rpc/retry.h"
#include "base/status/status_macros.h"
#include "nlohmann/json.hpp"

namespace atl::cli {
namespace {

constexpr int64_t kTokenBytesMax = 64 << 10;
constexpr int64_t kCaBytesMax = 1 << 20;
constexpr size_t kAnswerBytesMax = 64 << 10;
constexpr long kConnectTimeoutMs = 5'000;
constexpr long kTimeoutMs = 10'000;

struct CurlFree {
  void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

struct Answer {
  long code = 0;
  std::string body;
};

size_t Receive(char* bytes, size_t size, size_t count, void* body) {
  auto& text = *static_cast<std::string*>(body);
  // Too long an answer is cut: only its beginning is shown.
  if (text.size() < kAnswerBytesMax) text.append(bytes, size * count);
  return size * count;
}

// One POST. UNAVAILABLE: no answer.
absl::StatusOr<Answer> Post(const std::string& url, const std::string& token,
                            const std::string& ca_file,
                            const std::string& body) {
  const std::unique_ptr<CURL, CurlFree> curl(curl_easy_init());
  if (curl == nullptr) return absl::InternalError("libcurl does not start");
  std::unique_ptr<curl_slist, CurlFree> headers(
      curl_slist_append(nullptr, ("Authorization: Bearer " + token).c_str()));
  curl_slist_append(headers.get(), "Content-Type: application/json");
  curl_slist_append(headers.get(), "Accept: application/json");
  Answer answer;
  char error[CURL_ERROR_SIZE] = {};
  const auto set = [&](CURLoption option, auto value) {
    curl_easy_setopt(curl.get(), option, value);
  };
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "https");
  set(CURLOPT_CAINFO, ca_file.c_str());
  set(CURLOPT_CAPATH, static_cast<const char*>(nullptr));
  set(CURLOPT_PROXY, "");  // Not the environment's.
  set(CURLOPT_HTTPHEADER, headers.get());
  set(CURLOPT_POSTFIELDSIZE, static_cast<long>(body.size()));
  set(CURLOPT_POSTFIELDS, body.c_str());
  set(CURLOPT_CONNECTTIMEOUT_MS, kConnectTimeoutMs);
  set(CURLOPT_TIMEOUT_MS, kTimeoutMs);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_WRITEFUNCTION, &Receive);
  set(CURLOPT_WRITEDATA, &answer.body);
  set(CURLOPT_ERRORBUFFER, error);
  const CURLcode code = curl_easy_perform(curl.get());
  if (code == CURLE_PEER_FAILED_VERIFICATION ||
      code == CURLE_SSL_CACERT_BADFILE) {
    return absl::InvalidArgumentError(
        absl::StrCat("--api-ca ", ca_file, ": ", error));
  }
  if (code != CURLE_OK) {
    return absl::UnavailableError(absl::StrCat(
        url, ": ", error[0] != 0 ? error : curl_easy_strerror(code)));
  }
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &answer.code);
  return answer;
}

// Returns the API's reason for refusing a request.
std::string MessageOf(const std::string& body) {
  const nlohmann::json json = nlohmann::json::parse(body, nullptr, false);
  if (json.is_object() && json.contains("message") &&
      json["message"].is_string()) {
    return json["message"].get<std::string>();
  }
  return body.substr(0, 200);
}

absl::Status Refusal(const std::string& name, const Answer& answer) {
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
  const std::string url = absl::StrCat(api.url, "/api/v1/namespaces/",
                                       name_space, "/secrets");
  const std::string body = SecretJson(name_space, secret);
  const absl::Time deadline = absl::Now() + api.patience;
  rpc::Backoff backoff({}, std::random_device()());
  while (true) {
    // Kubernetes replaces the token from time to time.
    ASSIGN_OR_RETURN(
        const std::string token,
        ReadFile(PosixFileSystem(), api.token_file, kTokenBytesMax));
    const absl::StatusOr<Answer> answer =
        Post(url, std::string(absl::StripAsciiWhitespace(token)), api.ca_file,
             body);
    absl::Status status = answer.status();
    if (answer.ok()) {
      if (answer->code == 201) return true;
      if (answer->code == 409) return false;
      status = Refusal(secret.name, *answer);
    }
    const absl::Duration delay = backoff.Next(status);
    if (!absl::IsUnavailable(status) || absl::Now() + delay > deadline) {
      return status;
    }
    absl::SleepFor(delay);
  }
}

}  // namespace atl::cli
