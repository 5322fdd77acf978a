#include "base/object_store/bearer_client.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace atl {

bool IsAtollRealm(absl::string_view www_authenticate) {
  return absl::StartsWithIgnoreCase(www_authenticate, "bearer realm=\"atoll\"");
}

absl::StatusOr<HttpAnswer> BearerClient::Send(const HttpRequest& request) {
  return SendWith(request);
}

absl::StatusOr<HttpAnswer> BearerClient::Send(const HttpRequest& request,
                                              HttpSink sink) {
  return SendWith(request, sink);
}

template <typename... Sink>
absl::StatusOr<HttpAnswer> BearerClient::SendWith(HttpRequest request,
                                                  Sink... sink) {
  if (!absl::StartsWith(request.url, "https://")) {
    return client_->Send(request, sink...);
  }
  if (is_demanded_) AddToken(request);
  absl::StatusOr<HttpAnswer> answer = client_->Send(request, sink...);
  if (is_demanded_ || !answer.ok() || answer->code != 401 ||
      answer->redirect_count > 0 ||
      !IsAtollRealm(answer->header("www-authenticate"))) {
    return answer;
  }
  is_demanded_ = true;
  AddToken(request);
  if (request.bearer_token.empty()) return answer;
  return client_->Send(request, sink...);
}

void BearerClient::AddToken(HttpRequest& request) const {
  request.bearer_token =
      std::string(absl::StripAsciiWhitespace(token_ ? token_() : ""));
  if (!request.bearer_token.empty()) request.follows_redirects = false;
}

}  // namespace atl
