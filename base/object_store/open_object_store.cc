#include "base/object_store/open_object_store.h"

#include <random>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/object_store/file_store.h"
#include "base/object_store/http_client.h"
#include "base/object_store/http_read.h"
#include "base/object_store/https_store.h"
#include "base/object_store/object_url.h"
#include "base/status/status_macros.h"

namespace atl {
namespace {

// SystemClock() never jumps. So it is wrong after the machine slept or its
// clock was set, and servers refuse signatures that are 15 minutes off.
class WallClock : public Clock {
 public:
  absl::Time Now() const override { return absl::Now(); }
};

const Clock& GetWallClock(const ObjectStoreOptions& options) {
  static const WallClock* const clock = new WallClock;
  return options.wall_clock == nullptr ? *clock : *options.wall_clock;
}

absl::StatusOr<std::unique_ptr<HttpTransport>> MakeTransport(
    const ObjectStoreOptions& options, std::optional<DialPolicy> dial_policy) {
  const HttpClientOptions client_options{
      .dial_policy = std::move(dial_policy),
      .proxy = options.proxy,
      .ca_pem = options.ca_pem,
      .receive_bytes_per_second = options.receive_bytes_per_second,
      .send_bytes_per_second = options.send_bytes_per_second,
      .cancelled = options.waiting.cancelled,
      .clock = options.waiting.clock};
  ASSIGN_OR_RETURN(std::unique_ptr<HttpClient> client,
                   HttpClient::Create(client_options));
  return std::make_unique<HttpTransport>(HttpTransport{
      std::move(client),
      Retrier(options.retry_budget, options.waiting, std::random_device()()),
      GetWallClock(options)});
}

absl::StatusOr<std::unique_ptr<S3Session>> OpenSession(
    absl::string_view bucket, const ObjectStoreOptions& options) {
  ASSIGN_OR_RETURN(S3Place place, FindS3Place(bucket, options.environment));
  ASSIGN_OR_RETURN(std::unique_ptr<HttpTransport> transport,
                   MakeTransport(options, /*dial_policy=*/std::nullopt));
  return std::make_unique<S3Session>(std::move(place), options.environment,
                                     std::move(transport));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ObjectStore>> OpenObjectStore(
    absl::string_view url, const ObjectStoreOptions& options) {
  const bool is_peers = options.dial_policy.has_value();
  ASSIGN_OR_RETURN(const ObjectUrl parsed,
                   ParseObjectUrl(url, is_peers ? PlaintextHosts::kAny
                                                : PlaintextHosts::kLoopback));
  if (parsed.store == ObjectUrl::Store::kFile) {
    if (is_peers) {
      return absl::FailedPreconditionError(
          "a file:// URL, and a run may not choose what this machine opens");
    }
    return MakeFileStore(parsed.path, *options.file_system);
  }
  if (parsed.store == ObjectUrl::Store::kHttp) {
    ASSIGN_OR_RETURN(std::unique_ptr<HttpTransport> transport,
                     MakeTransport(options, options.dial_policy));
    return MakeHttpsStore(parsed.http, options.bearer_token,
                          std::move(transport));
  }
  constexpr int64_t kMiB = 1 << 20;
  if (options.s3_part_bytes < 5 * kMiB ||
      options.s3_part_bytes > 5 * 1024 * kMiB) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parts of ", options.s3_part_bytes, " bytes: S3 takes 5 MiB to 5 GiB"));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<S3Session> session,
                   OpenSession(parsed.bucket, options));
  return MakeS3Store(parsed.path, std::move(session), options.s3_part_bytes);
}

absl::StatusOr<PresignedUrl> ObjectPresigner::Presign(absl::string_view name,
                                                      absl::Duration lifetime) {
  RETURN_IF_ERROR(CheckRelativeName(name));
  return session_->PresignGet(JoinObjectName(prefix_, name), lifetime);
}

absl::StatusOr<std::unique_ptr<ObjectPresigner>> OpenObjectPresigner(
    absl::string_view url, const ObjectStoreOptions& options) {
  ASSIGN_OR_RETURN(const ObjectUrl parsed, ParseObjectUrl(url));
  if (parsed.store != ObjectUrl::Store::kS3) {
    return absl::InvalidArgumentError(
        absl::StrCat(RedactUrl(url), ": only an s3:// URL can be presigned"));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<S3Session> session,
                   OpenSession(parsed.bucket, options));
  return std::make_unique<ObjectPresigner>(parsed.path, std::move(session));
}

}  // namespace atl
