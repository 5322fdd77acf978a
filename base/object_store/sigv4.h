// AWS Signature Version 4 for S3: which headers or URL prove a request.
//
// Source: "Authenticating Requests (AWS Signature Version 4)", Amazon S3 API
// Reference. S3 does not normalise paths: "//" and ".." stay.
//
// Pure: the caller passes the time. Thread-safe.

#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/object_store/object_url.h"

namespace atl {

struct AwsCredentials {
  std::string access_key_id;
  std::string secret_access_key;
  std::string session_token;  // Empty: none.
  absl::Time expire_time = absl::InfiniteFuture();
};

// A request before it is signed. All texts are decoded.
struct S3Request {
  std::string method;  // "GET".
  std::string host;    // As in the Host header: a port that is not the default.
  std::string path;    // Begins with "/".
  QueryParameters query;
  // Sent and signed besides Host and x-amz-*. Each name once, in any case.
  HttpHeaders headers;
  absl::string_view body;
};

// The path and query to send: encoded as the signature has them.
std::string GetTarget(const S3Request& request);

// The headers to send besides Host: `request.headers`, x-amz-date,
// x-amz-content-sha256, x-amz-security-token and Authorization.
HttpHeaders SignHeaders(const S3Request& request,
                        const AwsCredentials& credentials,
                        absl::string_view region, absl::Time now);

// The path and query of a URL that anyone may use until `now` + `lifetime` (1 s
// to 7 days). Its payload is not signed, so it must be sent over https://. It
// also ends when `credentials` do. `request.headers` must be sent with it.
std::string Presign(const S3Request& request, const AwsCredentials& credentials,
                    absl::string_view region, absl::Time now,
                    absl::Duration lifetime);

}  // namespace atl
