#include "base/object_store/s3_session.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/host_port/host_port.h"
#include "base/object_store/answers.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"

namespace atl {

std::string S3Place::GetPath(absl::string_view key) const {
  // The endpoint's path is encoded; the signature encodes the whole path.
  return absl::StrCat(PercentDecode(endpoint.path).value_or(endpoint.path), "/",
                      key);
}

absl::StatusOr<S3Place> FindS3Place(absl::string_view bucket,
                                    const Environment& environment) {
  S3Place place{.bucket = std::string(bucket),
                .region = GetAwsRegion(environment)};
  for (const char* name : {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}) {
    const std::string url = GetVariable(environment, name);
    if (url.empty()) continue;
    const absl::StatusOr<HttpUrl> endpoint = ParseHttpUrl(url);
    if (!endpoint.ok()) return Annotate(endpoint.status(), name);
    place.endpoint = *endpoint;
    if (absl::EndsWith(place.endpoint.path, "/")) {
      place.endpoint.path.pop_back();
    }
    absl::StrAppend(&place.endpoint.path, "/", bucket);
    return place;
  }
  const std::string host =
      absl::StrCat("s3.", place.region, ".amazonaws.com",
                   absl::StartsWith(place.region, "cn-") ? ".cn" : "");
  // A certificate for *.s3.REGION.amazonaws.com has no further dot.
  const bool is_path_style = absl::StrContains(bucket, ".");
  ASSIGN_OR_RETURN(
      place.endpoint,
      ParseHttpUrl(is_path_style
                       ? absl::StrCat("https://", host, "/", bucket)
                       : absl::StrCat("https://", bucket, ".", host)));
  return place;
}

absl::StatusOr<HttpRequest> S3Session::MakeRequest(const S3Call& call) {
  ASSIGN_OR_RETURN(const AwsCredentials credentials, credentials_->Get());
  const S3Request request{call.method,
                          place_.endpoint.authority(),
                          place_.GetPath(call.key),
                          call.query,
                          call.headers,
                          call.body};
  return HttpRequest{
      .method = call.method,
      .url = absl::StrCat(place_.endpoint.origin(), GetTarget(request)),
      .headers = SignHeaders(request, credentials, place_.region,
                             transport_->wall_clock.Now()),
      .body = call.body,
      .is_cleanup = call.is_cleanup};
}

absl::StatusOr<HttpAnswer> S3Session::Send(
    const S3Call& call,
    absl::FunctionRef<absl::Status(const HttpAnswer&)> check) {
  HttpAnswer answer;
  const std::string context = absl::StrCat(call.method, " ", GetUrl(call.key));
  RETURN_IF_ERROR(transport_->retrier.Run([&]() -> absl::Status {
    ASSIGN_OR_RETURN(const HttpRequest request, MakeRequest(call));
    ASSIGN_OR_RETURN(answer, transport_->client->Send(request));
    if (answer.ok()) return Annotate(check(answer), context);
    return ToStatus(answer, context, transport_->wall_clock.Now());
  }));
  return answer;
}

void S3Session::SendOnce(const S3Call& call) {
  const absl::StatusOr<HttpRequest> request = MakeRequest(call);
  if (request.ok()) transport_->client->Send(*request).status().IgnoreError();
}

absl::StatusOr<PresignedUrl> S3Session::PresignGet(absl::string_view key,
                                                   absl::Duration lifetime) {
  ASSIGN_OR_RETURN(const AwsCredentials credentials, credentials_->Get());
  const S3Request request{.method = "GET",
                          .host = place_.endpoint.authority(),
                          .path = place_.GetPath(key)};
  const absl::Time now = transport_->wall_clock.Now();
  return PresignedUrl{
      absl::StrCat(place_.endpoint.origin(),
                   Presign(request, credentials, place_.region, now, lifetime)),
      std::min(now + lifetime, credentials.expire_time)};
}

std::string S3Session::GetUrl(absl::string_view key) const {
  return absl::StrCat("s3://", place_.bucket, "/", key);
}

}  // namespace atl
