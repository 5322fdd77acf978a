// An HTTP client that shows a bearer token to a server that demands Atoll's: it
// answers 401 with `WWW-Authenticate: Bearer realm="atoll"`.
//
// Before that no request carries the token, so a public server never sees it.
// The demand must come without a redirect, and a request with a token follows
// none. So the token stays with the server that the URL names. Only https://.
//
// Thread-compatible.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/object_store/http_client.h"

namespace atl {

// The newest token; empty: there is none. Called at each request that needs it.
using BearerToken = std::function<std::string()>;

// True if an answer with this WWW-Authenticate header is of a server that knows
// Atoll's tokens.
bool IsAtollRealm(absl::string_view www_authenticate);

class BearerClient : public HttpClient {
 public:
  // All requests must be for one server.
  BearerClient(std::unique_ptr<HttpClient> client, BearerToken token)
      : client_(std::move(client)), token_(std::move(token)) {}

  absl::StatusOr<HttpAnswer> Send(const HttpRequest& request) override;
  absl::StatusOr<HttpAnswer> Send(const HttpRequest& request,
                                  HttpSink sink) override;

 private:
  template <typename... Sink>
  absl::StatusOr<HttpAnswer> SendWith(HttpRequest request, Sink... sink);
  void AddToken(HttpRequest& request) const;

  const std::unique_ptr<HttpClient> client_;
  const BearerToken token_;
  bool is_demanded_ = false;
};

}  // namespace atl
