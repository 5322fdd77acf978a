#include "base/object_store/https_store.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/object_store/answers.h"
#include "base/status/status_macros.h"

namespace atl {
namespace {

class HttpsStore : public ObjectStore {
 public:
  HttpsStore(const HttpUrl& url, std::unique_ptr<HttpTransport> transport)
      : url_(url), transport_(std::move(transport)) {}

  absl::StatusOr<std::vector<ObjectInfo>> List(absl::string_view prefix,
                                               int64_t count_max) override {
    return absl::UnimplementedError(
        absl::StrCat(GetUrl(prefix),
                     ": https:// has no list; name each object, or use "
                     "s3://"));
  }

  // Reads the first byte: HEAD is not what a presigned URL allows, and servers
  // answer it with other headers.
  absl::StatusOr<ObjectInfo> Stat(absl::string_view name) override {
    RETURN_IF_ERROR(CheckRelativeName(name));
    ObjectInfo info{std::string(name)};
    const std::string context = absl::StrCat("GET ", GetUrl(name));
    RETURN_IF_ERROR(transport_->retrier.Run([&]() -> absl::Status {
      std::optional<HttpAnswer> head;
      absl::StatusOr<HttpAnswer> answer = transport_->client->Send(
          MakeRequest(name, {{"Range", "bytes=0-0"}}),
          [&head](const HttpAnswer& begun, absl::string_view) {
            head = begun;
            return absl::CancelledError("the head is enough");
          });
      if (head.has_value()) answer = *std::move(head);
      RETURN_IF_ERROR(answer.status());
      const std::optional<int64_t> size_bytes = GetSize(*answer);
      if (size_bytes.has_value()) {
        info.size_bytes = *size_bytes;
        info.etag = answer->header("etag");
        return absl::OkStatus();
      }
      if (answer->ok()) {
        return absl::UnimplementedError(absl::StrCat(
            context, ": the server does not say how long the object is"));
      }
      return ToStatus(*answer, context, transport_->wall_clock.Now());
    }));
    return info;
  }

  absl::Status Read(absl::string_view name, const ReadRange& range,
                    ObjectSink sink) override {
    RETURN_IF_ERROR(CheckRelativeName(name));
    return ReadOverHttp(
        *transport_, GetUrl(name), range,
        [&](HttpHeaders headers) -> absl::StatusOr<HttpRequest> {
          return MakeRequest(name, std::move(headers));
        },
        sink);
  }

  absl::StatusOr<std::unique_ptr<ObjectWriter>> Write(absl::string_view name,
                                                      WriteMode mode) override {
    return absl::UnimplementedError(absl::StrCat(
        GetUrl(name), ": https:// is read only; write to s3:// or file://"));
  }

  std::string GetUrl(absl::string_view name) const override {
    return absl::StrCat(url_.origin(),
                        JoinObjectName(url_.path.empty() ? "/" : url_.path,
                                       PercentEncode(name, true)));
  }

 private:
  HttpRequest MakeRequest(absl::string_view name, HttpHeaders headers) const {
    return {.method = "GET",
            .url = absl::StrCat(GetUrl(name), url_.query.empty() ? "" : "?",
                                url_.query),
            .headers = std::move(headers),
            .follows_redirects = true};
  }

  // The size of the object, of an answer about its first byte.
  static std::optional<int64_t> GetSize(const HttpAnswer& answer) {
    const std::string header = answer.header("content-range");
    if (answer.code == 206) {
      const std::optional<ContentRange> range = ParseContentRange(header);
      if (range.has_value() && range->begin == 0) return range->size_bytes;
    }
    if (answer.code == 416 && header == "bytes */0") return 0;
    if (answer.code == 200) {
      return ParseContentLength(answer.header("content-length"));
    }
    return std::nullopt;
  }

  const HttpUrl url_;
  const std::unique_ptr<HttpTransport> transport_;
};

}  // namespace

std::unique_ptr<ObjectStore> MakeHttpsStore(
    const HttpUrl& url, BearerToken bearer_token,
    std::unique_ptr<HttpTransport> transport) {
  transport->client = std::make_unique<BearerClient>(
      std::move(transport->client), std::move(bearer_token));
  return std::make_unique<HttpsStore>(url, std::move(transport));
}

}  // namespace atl
