#include "base/object_store/http_read.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/object_store/answers.h"
#include "base/status/status_macros.h"

namespace atl {
namespace {

// One read, over all its attempts.
class RangeReader {
 public:
  RangeReader(HttpTransport& transport, std::string url, const ReadRange& range,
              MakeGetRequest make_request, ObjectSink sink)
      : transport_(transport),
        url_(std::move(url)),
        range_(range),
        make_request_(make_request),
        sink_(sink),
        position_(range.offset),
        etag_(range.etag) {}

  absl::Status Run() {
    RETURN_IF_ERROR(transport_.retrier.Run([this] { return Attempt(); },
                                           [this] { return position_; }));
    return sink_status_;
  }

 private:
  // OK: all is read, or the sink failed.
  absl::Status Attempt() {
    is_checked_ = false;
    ASSIGN_OR_RETURN(const HttpRequest request, make_request_(MakeHeaders()));
    const absl::StatusOr<HttpAnswer> answer = transport_.client->Send(
        request, [this](const HttpAnswer& head, absl::string_view bytes) {
          return Receive(head, bytes);
        });
    if (!sink_status_.ok()) return absl::OkStatus();
    RETURN_IF_ERROR(answer.status());
    if (answer->code == 412) return Replaced();
    if (!answer->ok()) {
      return ToStatus(*answer, absl::StrCat("GET ", url_),
                      transport_.wall_clock.Now());
    }
    RETURN_IF_ERROR(CheckHead(*answer));  // If there was no body.
    if (end_.has_value() && position_ != *end_) {
      return absl::UnavailableError(absl::StrCat("GET ", url_,
                                                 ": the answer ended at byte ",
                                                 position_, " of ", *end_));
    }
    return absl::OkStatus();
  }

  HttpHeaders MakeHeaders() const {
    HttpHeaders headers;
    if (position_ > 0 || range_.length.has_value()) {
      const std::string last =
          range_.length.has_value()
              ? absl::StrCat(range_.offset + *range_.length - 1)
              : "";
      headers.emplace_back("Range",
                           absl::StrCat("bytes=", position_, "-", last));
    }
    // A weak etag never matches.
    if (!etag_.empty() && !absl::StartsWith(etag_, "W/")) {
      headers.emplace_back("If-Match", etag_);
    }
    return headers;
  }

  absl::Status Receive(const HttpAnswer& head, absl::string_view bytes) {
    RETURN_IF_ERROR(CheckHead(head));
    const auto byte_count = static_cast<int64_t>(bytes.size());
    if (end_.has_value() && byte_count > *end_ - position_) {
      return Senseless("sends more bytes than it announced");
    }
    position_ += byte_count;
    sink_status_ = sink_(bytes);
    return sink_status_;
  }

  // Checks an answer of 2xx before its first byte is passed on: these are the
  // bytes that were asked for, of the same object.
  absl::Status CheckHead(const HttpAnswer& head) {
    if (is_checked_) return absl::OkStatus();
    const std::string etag = head.header("etag");
    if (!etag_.empty() && etag != etag_) return Replaced();
    std::optional<int64_t> size_bytes;
    if (head.code == 206) {
      const std::optional<ContentRange> got =
          ParseContentRange(head.header("content-range"));
      if (!got.has_value() || got->begin != position_) {
        return Senseless("sends another range than it was asked for");
      }
      size_bytes = got->size_bytes;
    } else if (head.code == 200 && position_ == 0) {
      size_bytes = ParseContentLength(head.header("content-length"));
    } else if (head.code == 200) {
      return NoRanges();
    } else {
      return Senseless(absl::StrCat("sends HTTP ", head.code));
    }
    if (size_bytes_.has_value() && size_bytes != size_bytes_) return Replaced();
    if (size_bytes.has_value()) {
      ASSIGN_OR_RETURN(end_, GetRangeEnd(range_, *size_bytes, url_));
      if (head.code == 200 && *end_ != *size_bytes) return NoRanges();
    } else if (range_.length.has_value()) {
      return NoRanges();
    } else if (head.header("transfer-encoding") != "chunked") {
      return Senseless("does not say how long the object is");
    }
    etag_ = etag;
    size_bytes_ = size_bytes;
    is_checked_ = true;
    return absl::OkStatus();
  }

  absl::Status Replaced() const {
    return absl::AbortedError(
        absl::StrCat("GET ", url_,
                     ": the object was replaced or has another etag; read it "
                     "again from its beginning"));
  }

  absl::Status NoRanges() const {
    return absl::UnimplementedError(
        absl::StrCat("GET ", url_,
                     ": the server does not send ranges; copy the data to "
                     "a server that does"));
  }

  absl::Status Senseless(absl::string_view what) const {
    return absl::DataLossError(
        absl::StrCat("GET ", url_, ": the server ", what));
  }

  HttpTransport& transport_;
  const std::string url_;
  const ReadRange& range_;
  const MakeGetRequest make_request_;
  const ObjectSink sink_;
  int64_t position_;                   // The next byte's.
  std::string etag_;                   // Empty: none is known.
  std::optional<int64_t> size_bytes_;  // The object's.
  std::optional<int64_t> end_;         // The range's.
  bool is_checked_ = false;            // This attempt's answer.
  absl::Status sink_status_;
};

}  // namespace

absl::Status ReadOverHttp(HttpTransport& transport, std::string url,
                          const ReadRange& range, MakeGetRequest make_request,
                          ObjectSink sink) {
  constexpr int64_t kSizeMax = int64_t{1} << 61;  // No sum overflows.
  if (range.offset < 0 || range.offset > kSizeMax ||
      range.length.value_or(0) < 0 || range.length.value_or(0) > kSizeMax) {
    return GetRangeEnd(range, 0, url).status();
  }
  if (range.length == 0) return absl::OkStatus();
  return RangeReader(transport, std::move(url), range, make_request, sink)
      .Run();
}

}  // namespace atl
