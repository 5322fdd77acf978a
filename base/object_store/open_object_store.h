// Opens the store of a URL.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/host_port/proxy.h"
#include "base/io/file_system.h"
#include "base/io/posix_file_system.h"
#include "base/object_store/aws_credentials.h"
#include "base/object_store/bearer_client.h"
#include "base/object_store/dial_policy.h"
#include "base/object_store/object_store.h"
#include "base/object_store/retrier.h"
#include "base/object_store/s3_session.h"
#include "base/object_store/s3_store.h"
#include "base/time/clock.h"

namespace atl {

struct ObjectStoreOptions {
  // AWS_* and HOME, for s3://. Empty: nothing is set.
  Environment environment;
  BearerToken bearer_token;  // For https://. Empty: none.
  Proxy proxy;               // Requests that leave the machine go through it.
  // For a URL that a peer named. It opens no file, and https:// and http:// dial
  // what the policy allows. An s3:// URL dials what `environment` says.
  std::optional<DialPolicy> dial_policy;
  // PEM certificates that are trusted besides the system's. Empty: none.
  std::string ca_pem;
  // The store's limits: at least 64 KiB/s, or 0: no bound.
  int64_t receive_bytes_per_second = 0;
  int64_t send_bytes_per_second = 0;
  int64_t s3_part_bytes = kS3PartBytes;  // 5 MiB to 5 GiB.
  RetryBudget retry_budget;
  Waiting waiting;
  // The time for signatures. Null: the machine's clock as it is set.
  const Clock* wall_clock = nullptr;
  FileSystem* file_system = &PosixFileSystem();  // For file://.
};

// Opens the store of `url` (object_url.h). Sends nothing.
//
// INVALID_ARGUMENT: the URL or an option is wrong. FAILED_PRECONDITION: a peer
// named a file. Others: the system's certificates cannot be read.
absl::StatusOr<std::unique_ptr<ObjectStore>> OpenObjectStore(
    absl::string_view url, const ObjectStoreOptions& options);

// Makes URLs that read objects of an S3 bucket without credentials.
// Thread-compatible.
class ObjectPresigner {
 public:
  // Signs URLs of the objects below `prefix` in the session's bucket.
  ObjectPresigner(std::string prefix, std::unique_ptr<S3Session> session)
      : prefix_(std::move(prefix)), session_(std::move(session)) {}

  // An https:// URL that reads `name`, relative to the presigner's URL, for
  // `lifetime` (1 s to 7 days), at most as long as our credentials last.
  //
  // INVALID_ARGUMENT: the name has a part that is empty, "." or "..". Others as
  // AwsCredentialsSource::Get.
  absl::StatusOr<PresignedUrl> Presign(absl::string_view name,
                                       absl::Duration lifetime);

 private:
  const std::string prefix_;
  const std::unique_ptr<S3Session> session_;
};

// `url` is s3://BUCKET[/PREFIX]. Keeps credentials until they expire.
//
// INVALID_ARGUMENT: it is not, or an option is wrong.
absl::StatusOr<std::unique_ptr<ObjectPresigner>> OpenObjectPresigner(
    absl::string_view url, const ObjectStoreOptions& options);

}  // namespace atl
