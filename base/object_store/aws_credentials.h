// Finds credentials for S3 where the AWS SDKs find them. Thread-compatible.
//
// The first of these that is set:
//
//   1. AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY [, AWS_SESSION_TOKEN]
//   2. AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN [, AWS_ROLE_SESSION_NAME]:
//      STS AssumeRoleWithWebIdentity, at AWS_ENDPOINT_URL_STS,
//      AWS_ENDPOINT_URL, or AWS of the region
//   3. the profile AWS_PROFILE ("default") of AWS_SHARED_CREDENTIALS_FILE
//      (HOME/.aws/credentials), if it has keys
//   4. AWS_CONTAINER_CREDENTIALS_FULL_URI, with
//      AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE or ..._TOKEN: https://, loopback
//      or a link-local address of containers

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/object_store/http_read.h"
#include "base/object_store/sigv4.h"

namespace atl {

// The value of an environment variable. `main` passes the process's.
using Environment =
    std::function<std::optional<std::string>(absl::string_view name)>;

// The value of `name`; `otherwise` if it is not set, or empty.
std::string GetVariable(const Environment& environment, absl::string_view name,
                        absl::string_view otherwise = "");

// AWS_REGION, AWS_DEFAULT_REGION, else us-east-1.
std::string GetAwsRegion(const Environment& environment);

// True if one of the places above is set, or the default profile's file exists.
// Sends nothing.
bool HasAwsCredentials(const Environment& environment);

class AwsCredentialsSource {
 public:
  virtual ~AwsCredentialsSource() = default;

  // Valid credentials. Fetches them at the first call, and again from five
  // minutes before they expire.
  //
  // UNAUTHENTICATED: none are set; lists the places. NOT_FOUND: a named file or
  // profile is missing. PERMISSION_DENIED: the server refuses.
  // INVALID_ARGUMENT: a variable is wrong. DATA_LOSS: the answer makes no
  // sense. UNAVAILABLE: no success within the retry budget.
  virtual absl::StatusOr<AwsCredentials> Get() = 0;
};

// `transport` must outlive the source.
std::unique_ptr<AwsCredentialsSource> FindAwsCredentials(
    Environment environment, HttpTransport& transport);

}  // namespace atl
