// A small S3 on loopback, for tests: one bucket, path style. It refuses a wrong
// signature, a wrong payload hash, a time that is 15 minutes off and an expired
// presigned URL, each computed from the bytes that came. Thread-safe.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/object_store/object_url.h"
#include "base/object_store/sigv4.h"
#include "base/object_store/testing/http_server.h"
#include "base/sync/mutex.h"
#include "base/time/clock.h"

namespace atl {

struct FakeS3Options {
  std::string bucket = "bucket";
  std::string region = "us-east-1";
  AwsCredentials credentials = {"AKIDEXAMPLE", "secret/key+1"};
  int page_key_count = 2;  // Keys, or uploads, of a page of a list.
  bool ignores_if_none_match = false;  // As old servers do.
};

class FakeS3 {
 public:
  // `clock` must outlive the server.
  explicit FakeS3(const Clock& clock, FakeS3Options options = {});

  std::string origin() const { return server_.origin(); }
  std::vector<ServerRequest> requests() const { return server_.requests(); }

  void Put(const std::string& key, const std::string& bytes);
  std::optional<std::string> Get(const std::string& key) const;
  // Multipart uploads that are neither completed nor aborted.
  int upload_count() const;

  // Answers instead of the server, before anything is checked or done.
  using Fault =
      std::function<std::optional<ServerAnswer>(const ServerRequest&)>;
  void SetFault(Fault fault);
  // Changes answers after the work is done.
  using Spoiler = std::function<void(const ServerRequest&, ServerAnswer&)>;
  void SetSpoiler(Spoiler spoiler);

 private:
  // Headers that a client adds to an object and gets back.
  using Metadata = std::vector<std::pair<std::string, std::string>>;
  struct Object {
    std::string bytes;
    std::string etag;
    Metadata metadata;
  };
  struct Upload {
    std::string key;
    Metadata metadata;
    std::map<int, std::string> parts;
  };
  // A request with its target taken apart, decoded.
  struct Call {
    const ServerRequest& request;
    std::string key;
    std::map<std::string, std::string> query;

    std::string header(const std::string& name) const;
    Metadata metadata() const;
  };

  ServerAnswer Answer(const ServerRequest& request);
  // None: the request is proven.
  std::optional<ServerAnswer> CheckSignature(const Call& call) const;
  ServerAnswer Serve(const Call& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ServerAnswer ServeUpload(const Call& call)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ServerAnswer ListUploads(const Call& call)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // True if the condition of a write does not hold.
  bool MustNotWrite(const Call& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ServerAnswer Complete(const Call& call, const std::string& id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ServerAnswer List(const Call& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ServerAnswer Read(const Call& call, const Object& object);
  void Store(const std::string& key, const std::string& bytes,
             const Metadata& metadata) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock& clock_;
  const FakeS3Options options_;
  mutable Mutex mutex_;
  std::map<std::string, Object> objects_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Upload> uploads_ ABSL_GUARDED_BY(mutex_);
  int version_ ABSL_GUARDED_BY(mutex_) = 0;
  Fault fault_ ABSL_GUARDED_BY(mutex_);
  Spoiler spoiler_ ABSL_GUARDED_BY(mutex_);
  HttpServer server_;  // Last: its threads use the others.
};

}  // namespace atl
