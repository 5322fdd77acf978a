// Signed requests to one S3 bucket. Thread-compatible.

#pragma once

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/object_store/aws_credentials.h"
#include "base/object_store/http_read.h"
#include "base/object_store/object_url.h"
#include "base/object_store/sigv4.h"

namespace atl {

// The server of a bucket, and how the bucket is named to it.
struct S3Place {
  std::string bucket;
  std::string region;
  HttpUrl endpoint;  // Its path comes before the key.

  // The path of `key`, decoded.
  std::string GetPath(absl::string_view key) const;
};

// With AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL: that server, and the bucket is
// the first part of the path. Else AWS of the region, and the bucket is a part
// of the host's name unless it has a dot.
//
// INVALID_ARGUMENT: the endpoint is malformed; names the variable.
absl::StatusOr<S3Place> FindS3Place(absl::string_view bucket,
                                    const Environment& environment);

struct PresignedUrl {
  std::string url;      // A secret.
  absl::Time end_time;  // From then on it is refused.
};

struct S3Call {
  std::string method;
  std::string key;
  QueryParameters query;
  HttpHeaders headers;
  absl::string_view body;
  bool is_cleanup = false;  // See HttpRequest.
};

class S3Session {
 public:
  S3Session(S3Place place, Environment environment,
            std::unique_ptr<HttpTransport> transport)
      : place_(std::move(place)),
        transport_(std::move(transport)),
        credentials_(FindAwsCredentials(std::move(environment), *transport_)) {}

  // Signs `call` as of now. Errors as AwsCredentialsSource's.
  absl::StatusOr<HttpRequest> MakeRequest(const S3Call& call);

  // Sends `call` until `check` accepts its answer of 2xx, within the retry
  // budget. Errors as ObjectStore's, and ALREADY_EXISTS for HTTP 412.
  absl::StatusOr<HttpAnswer> Send(
      const S3Call& call,
      absl::FunctionRef<absl::Status(const HttpAnswer&)> check =
          [](const HttpAnswer&) { return absl::OkStatus(); });

  // Sends `call` once, and ignores the answer.
  void SendOnce(const S3Call& call);

  // A URL that reads `key` without credentials, for `lifetime` (1 s to 7 days)
  // and at most as long as our credentials last.
  absl::StatusOr<PresignedUrl> PresignGet(absl::string_view key,
                                          absl::Duration lifetime);

  // "s3://BUCKET/KEY".
  std::string GetUrl(absl::string_view key) const;

  const S3Place& place() const { return place_; }
  HttpTransport& transport() { return *transport_; }

 private:
  const S3Place place_;
  const std::unique_ptr<HttpTransport> transport_;
  const std::unique_ptr<AwsCredentialsSource> credentials_;
};

}  // namespace atl
