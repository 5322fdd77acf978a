#include "base/object_store/s3_store.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/object_store/answers.h"
#include "base/random_id/random_id.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"

namespace atl {
namespace {

constexpr size_t kPartCountMax = 10'000;
// Pages without an object, one after the other.
constexpr int kEmptyPageCountMax = 100;
// Pages of incomplete uploads that one call aborts.
constexpr int kUploadPageCountMax = 100;
// Names the writer of an object. A repeated request fails if the first one
// succeeded unnoticed: this tells whether the object is ours.
constexpr char kWriteIdHeader[] = "x-amz-meta-atoll-write-id";
constexpr char kSha256Header[] = "x-amz-meta-atoll-sha256";

class S3Writer : public ObjectWriter {
 public:
  S3Writer(S3Session& session, std::string key, WriteMode mode,
           int64_t part_bytes)
      : session_(session),
        key_(std::move(key)),
        mode_(mode),
        part_bytes_(part_bytes) {}

  ~S3Writer() override {
    if (upload_id_.empty()) return;
    session_.SendOnce({.method = "DELETE",
                       .key = key_,
                       .query = {{"uploadId", upload_id_}},
                       .is_cleanup = true});
  }

  void set_sha256(std::string sha256) override { sha256_ = std::move(sha256); }

  absl::Status Append(absl::string_view bytes) override {
    while (!bytes.empty()) {
      // A part is sent only once more bytes come: the last one is not empty.
      if (static_cast<int64_t>(part_.size()) == part_bytes_) {
        RETURN_IF_ERROR(SendPart());
      }
      const size_t count = std::min(
          bytes.size(), static_cast<size_t>(part_bytes_) - part_.size());
      part_.append(bytes.data(), count);
      bytes.remove_prefix(count);
    }
    return absl::OkStatus();
  }

  absl::Status Commit() override {
    absl::Status status;
    if (upload_id_.empty()) {
      status = session_
                   .Send({.method = "PUT",
                          .key = key_,
                          .headers = MakeHeaders(MakeMetadata()),
                          .body = part_})
                   .status();
    } else {
      RETURN_IF_ERROR(SendPart());
      status = Complete();
    }
    // The second is what a completed upload answers.
    if (absl::IsAlreadyExists(status) || absl::IsNotFound(status)) {
      if (IsOurs()) status = absl::OkStatus();
    }
    if (status.ok()) upload_id_.clear();
    return status;
  }

 private:
  HttpHeaders MakeMetadata() const {
    HttpHeaders headers = {{kWriteIdHeader, write_id_}};
    if (!sha256_.empty()) headers.emplace_back(kSha256Header, sha256_);
    return headers;
  }

  // `headers` and the condition of kCreate.
  HttpHeaders MakeHeaders(HttpHeaders headers) const {
    if (mode_ == WriteMode::kCreate) headers.emplace_back("If-None-Match", "*");
    return headers;
  }

  absl::Status Begin() {
    std::string id;
    RETURN_IF_ERROR(session_
                        .Send({.method = "POST",
                               .key = key_,
                               .query = {{"uploads", ""}},
                               .headers = MakeMetadata()},
                              [&id](const HttpAnswer& answer) -> absl::Status {
                                ASSIGN_OR_RETURN(id,
                                                 ParseUploadId(answer.body));
                                return absl::OkStatus();
                              })
                        .status());
    upload_id_ = std::move(id);
    return absl::OkStatus();
  }

  absl::Status SendPart() {
    if (etags_.size() == kPartCountMax) {
      return absl::ResourceExhaustedError(
          absl::StrCat(session_.GetUrl(key_), ": an object has at most ",
                       kPartCountMax, " parts of ", part_bytes_,
                       " bytes; write several objects, or longer "
                       "parts"));
    }
    if (upload_id_.empty()) RETURN_IF_ERROR(Begin());
    const S3Call call{.method = "PUT",
                      .key = key_,
                      .query = {{"partNumber", absl::StrCat(etags_.size() + 1)},
                                {"uploadId", upload_id_}},
                      .body = part_};
    ASSIGN_OR_RETURN(const HttpAnswer answer, session_.Send(call));
    etags_.push_back(answer.header("etag"));
    part_.clear();
    return absl::OkStatus();
  }

  absl::Status Complete() {
    const std::string body = MakePartList(etags_);
    return session_
        .Send({.method = "POST",
               .key = key_,
               .query = {{"uploadId", upload_id_}},
               .headers = MakeHeaders({}),
               .body = body},
              [this](const HttpAnswer& answer) {
                return CheckCompleted(answer, "complete",
                                      session_.transport().wall_clock.Now());
              })
        .status();
  }

  // True if the object is the one that this writer wrote.
  bool IsOurs() {
    const absl::StatusOr<HttpAnswer> answer =
        session_.Send({.method = "HEAD", .key = key_});
    return answer.ok() && answer->header(kWriteIdHeader) == write_id_;
  }

  S3Session& session_;
  const std::string key_;
  const WriteMode mode_;
  const int64_t part_bytes_;
  const std::string write_id_ = RandomId();
  std::string sha256_;
  std::string part_;                // The next part.
  std::string upload_id_;           // Empty: no upload is open.
  std::vector<std::string> etags_;  // The sent parts'.
};

class S3Store : public ObjectStore {
 public:
  S3Store(std::string prefix, std::unique_ptr<S3Session> session,
          int64_t part_bytes)
      : prefix_(std::move(prefix)),
        session_(std::move(session)),
        part_bytes_(part_bytes) {}

  absl::StatusOr<std::vector<ObjectInfo>> List(absl::string_view prefix,
                                               int64_t count_max) override {
    // "run" lists run/..., not run-2/...
    std::string directory = prefix_;
    if (!directory.empty() && !absl::EndsWith(directory, "/")) directory += "/";
    std::vector<ObjectInfo> found;
    std::string token;
    int empty_page_count = 0;
    do {
      ASSIGN_OR_RETURN(ListPage page,
                       GetPage(absl::StrCat(directory, prefix), token));
      token = page.continuation_token;
      empty_page_count = page.objects.empty() ? empty_page_count + 1 : 0;
      if (empty_page_count > kEmptyPageCountMax) {
        return Senseless(prefix, "sends empty pages only");
      }
      for (ObjectInfo& info : page.objects) {
        if (!absl::StartsWith(info.name, directory)) {
          return Senseless(prefix, "lists keys with another prefix");
        }
        info.name.erase(0, directory.size());
        if (info.name.empty()) continue;  // A mark of the directory itself.
        if (static_cast<int64_t>(found.size()) >= count_max) {
          return absl::ResourceExhaustedError(
              absl::StrCat(GetUrl(prefix), ": more than ", count_max,
                           " objects; name a prefix with fewer"));
        }
        found.push_back(std::move(info));
      }
    } while (!token.empty());
    std::sort(found.begin(), found.end(),
              [](const ObjectInfo& a, const ObjectInfo& b) {
                return a.name < b.name;
              });
    return found;
  }

  absl::StatusOr<ObjectInfo> Stat(absl::string_view name) override {
    ASSIGN_OR_RETURN(const std::string key, GetKey(name));
    ASSIGN_OR_RETURN(const HttpAnswer answer,
                     session_->Send({.method = "HEAD", .key = key}));
    const std::optional<int64_t> size_bytes =
        ParseContentLength(answer.header("content-length"));
    if (!size_bytes.has_value()) return Senseless(name, "tells no size");
    return ObjectInfo{std::string(name), *size_bytes, answer.header("etag"),
                      answer.header(kSha256Header)};
  }

  absl::Status Read(absl::string_view name, const ReadRange& range,
                    ObjectSink sink) override {
    ASSIGN_OR_RETURN(const std::string key, GetKey(name));
    return ReadOverHttp(
        session_->transport(), GetUrl(name), range,
        [&](HttpHeaders headers) {
          return session_->MakeRequest(
              {.method = "GET", .key = key, .headers = std::move(headers)});
        },
        sink);
  }

  absl::StatusOr<std::unique_ptr<ObjectWriter>> Write(absl::string_view name,
                                                      WriteMode mode) override {
    ASSIGN_OR_RETURN(const std::string key, GetKey(name));
    // Before a long upload. Only the condition at its end is exact.
    if (mode == WriteMode::kCreate && Stat(name).ok()) {
      return absl::AlreadyExistsError(
          absl::StrCat(GetUrl(name), " exists; choose another name"));
    }
    return std::make_unique<S3Writer>(*session_, key, mode, part_bytes_);
  }

  absl::Status Remove(absl::string_view name) override {
    ASSIGN_OR_RETURN(const std::string key, GetKey(name));
    return OkIfMissing(session_->Send({.method = "DELETE", .key = key}));
  }

  absl::Status RemoveUnfinished(absl::string_view prefix) override {
    ASSIGN_OR_RETURN(const std::string key, GetKey(prefix));
    for (int i = 0; i < kUploadPageCountMax; ++i) {
      UploadPage page;
      RETURN_IF_ERROR(session_
                          ->Send({.method = "GET",
                                  .query = {{"uploads", ""},
                                            {"encoding-type", "url"},
                                            {"prefix", key}}},
                                 [&page](const HttpAnswer& answer) {
                                   return Parse(answer, page);
                                 })
                          .status());
      for (const IncompleteUpload& upload : page.uploads) {
        if (!absl::StartsWith(upload.key, key)) {
          return Senseless(prefix, "lists uploads with another prefix");
        }
        RETURN_IF_ERROR(
            OkIfMissing(session_->Send({.method = "DELETE",
                                        .key = upload.key,
                                        .query = {{"uploadId", upload.id}}})));
      }
      // Those of a page are gone, so the next page is the first one.
      if (page.is_last || page.uploads.empty()) return absl::OkStatus();
    }
    return absl::ResourceExhaustedError(absl::StrCat(
        GetUrl(prefix), ": more than ", kUploadPageCountMax,
        " pages of incomplete uploads; try again, or give the bucket a "
        "lifecycle rule that aborts incomplete uploads"));
  }

  std::string GetUrl(absl::string_view name) const override {
    return session_->GetUrl(JoinObjectName(prefix_, name));
  }

 private:
  static absl::Status OkIfMissing(const absl::StatusOr<HttpAnswer>& answer) {
    return absl::IsNotFound(answer.status()) ? absl::OkStatus()
                                             : answer.status();
  }

  static absl::Status Parse(const HttpAnswer& answer, UploadPage& page) {
    ASSIGN_OR_RETURN(page, ParseUploadPage(answer.body));
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> GetKey(absl::string_view name) const {
    std::string key = JoinObjectName(prefix_, name);
    if (!key.empty() && key.size() <= 1024) return key;
    return absl::InvalidArgumentError(
        absl::StrCat(GetUrl(name), ": a key has 1 to 1024 bytes"));
  }

  absl::StatusOr<ListPage> GetPage(const std::string& prefix,
                                   const std::string& token) {
    S3Call call{
        .method = "GET",
        .query = {
            {"list-type", "2"}, {"encoding-type", "url"}, {"prefix", prefix}}};
    if (!token.empty()) call.query.emplace_back("continuation-token", token);
    ASSIGN_OR_RETURN(const HttpAnswer answer, session_->Send(call));
    absl::StatusOr<ListPage> page = ParseListPage(answer.body);
    if (!page.ok()) {
      return Annotate(page.status(),
                      absl::StrCat("list ", session_->GetUrl(prefix)));
    }
    return page;
  }

  absl::Status Senseless(absl::string_view name, absl::string_view what) const {
    return absl::DataLossError(
        absl::StrCat(GetUrl(name), ": the server ", what));
  }

  const std::string prefix_;
  const std::unique_ptr<S3Session> session_;
  const int64_t part_bytes_;
};

}  // namespace

std::unique_ptr<ObjectStore> MakeS3Store(std::string prefix,
                                         std::unique_ptr<S3Session> session,
                                         int64_t part_bytes) {
  return std::make_unique<S3Store>(std::move(prefix), std::move(session),
                                   part_bytes);
}

}  // namespace atl
