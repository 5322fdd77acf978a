// Reads answers of HTTP servers, S3 and STS: errors, lists, credentials.
// Pure. Thread-safe. Any bytes are safe to parse.
//
// Errors of every parser: DATA_LOSS: the text is not such an answer.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/object_store/http_client.h"
#include "base/object_store/object_store.h"
#include "base/object_store/sigv4.h"

namespace atl {

// The error that an answer means. Its message has `context`, the HTTP status,
// the server's own code and text, and what to do. Requires: !answer.ok().
//
//   404 NOT_FOUND             401, 403, bad tokens PERMISSION_DENIED
//   401 of a server that knows Atoll's tokens: UNAUTHENTICATED
//   416 OUT_OF_RANGE          409 ABORTED               507 RESOURCE_EXHAUSTED
//   412 ALREADY_EXISTS, of a conditional PUT
//   501, 505 UNIMPLEMENTED    408, 429, other 5xx UNAVAILABLE, with a RetryInfo
//                             if the server says when to return
//   any other FAILED_PRECONDITION
absl::Status ToStatus(const HttpAnswer& answer, absl::string_view context,
                      absl::Time now);

// "Content-Range: bytes 5-9/20" is {5, 10, 20}.
struct ContentRange {
  int64_t begin = 0;
  int64_t end = 0;  // > begin.
  int64_t size_bytes = 0;
};
std::optional<ContentRange> ParseContentRange(absl::string_view header);

// The number of a Content-Length header.
std::optional<int64_t> ParseContentLength(absl::string_view header);

struct ListPage {
  std::vector<ObjectInfo> objects;  // Names are whole keys.
  std::string continuation_token;   // Empty: the last page.
};
// A ListObjectsV2 answer.
absl::StatusOr<ListPage> ParseListPage(absl::string_view xml);

// The id in an InitiateMultipartUpload answer.
absl::StatusOr<std::string> ParseUploadId(absl::string_view xml);

struct IncompleteUpload {
  std::string key;
  std::string id;
};
struct UploadPage {
  std::vector<IncompleteUpload> uploads;
  bool is_last = true;
};
// A ListMultipartUploads answer.
absl::StatusOr<UploadPage> ParseUploadPage(absl::string_view xml);

// The answer of CompleteMultipartUpload: S3 sends 200 before it knows the
// result. An error in it is as ToStatus makes of an answer with the code that
// belongs to it, UNAVAILABLE if that is not known.
absl::Status CheckCompleted(const HttpAnswer& answer, absl::string_view context,
                            absl::Time now);

// The body of CompleteMultipartUpload; part numbers begin at 1.
std::string MakePartList(const std::vector<std::string>& etags);

// An AssumeRoleWithWebIdentity answer.
absl::StatusOr<AwsCredentials> ParseStsCredentials(absl::string_view xml);

// The JSON of a container's credentials endpoint.
absl::StatusOr<AwsCredentials> ParseContainerCredentials(
    absl::string_view json);

}  // namespace atl
