#include "worker/data/serve/data_answer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/obs/log.h"
#include "base/rpc/certificates/data_token.h"

namespace atl::worker {
namespace {

// Tells islands to show their data token (base/object_store/bearer_client.h).
constexpr char kChallenge[] = "Bearer realm=\"atoll\"";

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

bool ParseNumber(absl::string_view text, int64_t& number) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), absl::ascii_isdigit) &&
         absl::SimpleAtoi(text, &number);
}

// The range that a header asks for; its end is at most `size_bytes`. nullopt:
// not one of the forms that are served.
std::optional<Range> ParseRange(absl::string_view header, int64_t size_bytes) {
  if (!absl::ConsumePrefix(&header, "bytes=")) return std::nullopt;
  const std::vector<absl::string_view> parts = absl::StrSplit(header, '-');
  Range range{0, size_bytes};
  if (parts.size() != 2 || !ParseNumber(parts[0], range.begin)) {
    return std::nullopt;
  }
  if (parts[1].empty()) return range;
  int64_t last = 0;
  if (!ParseNumber(parts[1], last) || last < range.begin) return std::nullopt;
  range.end = std::min(last, size_bytes - 1) + 1;
  return range;
}

DataAnswer Text(int code, absl::string_view text, HttpHeaders headers = {}) {
  headers.emplace_back("Content-Type", "text/plain; charset=utf-8");
  return {.code = code,
          .headers = std::move(headers),
          .text = absl::StrCat(text, "\n")};
}

DataAnswer Refuse(const absl::Status& status) {
  const bool is_denied = absl::IsPermissionDenied(status);
  return Text(
      is_denied ? 403 : 401, status.message(),
      {{"WWW-Authenticate",
        is_denied ? absl::StrCat(kChallenge, ", error=\"insufficient_scope\"")
                  : std::string(kChallenge)}});
}

DataAnswer SendFile(ServedFile file, const DataRequest& request) {
  if (!request.if_match.empty() && request.if_match != "*" &&
      request.if_match != file.etag) {
    return Text(412, "the file has another etag");
  }
  DataAnswer answer;
  answer.headers = {{"Content-Type", "application/octet-stream"},
                    {"Accept-Ranges", "bytes"},
                    {"ETag", file.etag}};
  answer.end = file.size_bytes;
  const bool is_current =
      request.if_range.empty() || request.if_range == file.etag;
  const std::optional<Range> range =
      is_current ? ParseRange(request.range, file.size_bytes) : std::nullopt;
  if (range.has_value() && range->begin >= file.size_bytes) {
    return Text(416, "the file ends before the range",
                {{"Content-Range", absl::StrCat("bytes */", file.size_bytes)}});
  }
  if (range.has_value()) {
    answer.code = 206;
    answer.begin = range->begin;
    answer.end = range->end;
    answer.headers.emplace_back(
        "Content-Range", absl::StrCat("bytes ", range->begin, "-",
                                      range->end - 1, "/", file.size_bytes));
  }
  answer.file = std::move(file);
  return answer;
}

DataAnswer AnswerCaller(const DataRequest& request, const ServedFiles& files) {
  absl::StatusOr<ServedFile> file =
      files.Find(absl::StripPrefix(request.path, "/"));
  if (file.ok()) return SendFile(*std::move(file), request);
  if (absl::IsNotFound(file.status())) {
    return Text(404, "the manifest names no such file");
  }
  LOG(WARNING) << "cannot serve a file: " << file.status().message();
  return absl::IsUnavailable(file.status())
             ? Text(503, "too many open files; try again")
             : Text(500, "the file cannot be read; tell the operator");
}

}  // namespace

absl::StatusOr<std::string> CheckDataAccess(const DataAccess& access,
                                            const std::string& authorization,
                                            absl::Time now) {
  const absl::string_view text = authorization;
  if (!absl::StartsWithIgnoreCase(text, "bearer ")) {
    return absl::UnauthenticatedError(
        "this data is for enrolled islands: join with a join string (`atoll "
        "join -`), or give a copy of the data with --data");
  }
  const absl::StatusOr<rpc::DataToken> token = rpc::VerifyDataToken(
      absl::StripAsciiWhitespace(text.substr(7)), access.island_ca_pem, now);
  if (!token.ok()) {
    return absl::UnauthenticatedError(absl::StrCat(
        token.status().message(),
        "; check this machine's clock; if it is right, tell the operator"));
  }
  const std::vector<std::string>& runs = access.run_uids;
  if (runs.empty() ||
      std::find(runs.begin(), runs.end(), token->run_uid) != runs.end()) {
    return absl::StrCat(token->run_uid, "/", static_cast<int>(token->role), "/",
                        token->name);
  }
  return absl::PermissionDeniedError(
      absl::StrCat("the data token is for run ", token->run_uid,
                   ", and this data is for another one; tell the operator"));
}

DataAnswer AnswerDataRequest(const DataRequest& request,
                             const ServedFiles& files, const DataAccess& access,
                             absl::Time now) {
  if (request.method != "GET" && request.method != "HEAD") {
    return Text(405, "only GET and HEAD", {{"Allow", "GET, HEAD"}});
  }
  absl::StatusOr<std::string> caller =
      CheckDataAccess(access, request.authorization, now);
  if (!caller.ok()) return Refuse(caller.status());
  DataAnswer answer = AnswerCaller(request, files);
  answer.caller = *std::move(caller);
  return answer;
}

}  // namespace atl::worker
