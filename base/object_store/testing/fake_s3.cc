#include "base/object_store/testing/fake_s3.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/codec/sha256.h"
#include "base/host_port/host_port.h"
#include "base/object_store/xml.h"

namespace atl {
namespace {

constexpr absl::Duration kSkewMax = absl::Minutes(15);
constexpr char kMetadataPrefix[] = "x-amz-meta-";

ServerAnswer MakeError(int code, absl::string_view name) {
  return {code,
          {{"Content-Type", "application/xml"}},
          absl::StrCat("<?xml version=\"1.0\"?><Error><Code>", name,
                       "</Code><Message>the fake says ", name,
                       "</Message></Error>")};
}

std::string Hash(absl::string_view bytes) {
  return codec::ToHex(codec::ComputeSha256(bytes));
}

std::string Hmac(const std::string& key, absl::string_view text) {
  unsigned char out[EVP_MAX_MD_SIZE];
  unsigned out_bytes = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), out,
       &out_bytes);
  return std::string(reinterpret_cast<char*>(out), out_bytes);
}

// The canonical query of a query as it came, without the signature.
std::string Canonicalize(absl::string_view query) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const absl::string_view part :
       absl::StrSplit(query, '&', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (pair.first != "X-Amz-Signature") pairs.push_back(pair);
  }
  std::sort(pairs.begin(), pairs.end());
  return absl::StrJoin(pairs, "&", absl::PairFormatter("="));
}

// "a=b, c=d" by names.
std::map<std::string, std::string> ParseFields(absl::string_view text) {
  std::map<std::string, std::string> fields;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<std::string, std::string> pair = absl::StrSplit(
        absl::StripAsciiWhitespace(part), absl::MaxSplits('=', 1));
    fields.insert(pair);
  }
  return fields;
}

// "20260102T030405Z".
bool ParseDate(std::string text, absl::Time* time) {
  if (text.size() != 16) return false;
  for (const size_t at : {4, 7}) text.insert(at, "-");
  for (const size_t at : {13, 16}) text.insert(at, ":");
  return absl::ParseTime(absl::RFC3339_full, text, time, nullptr);
}

}  // namespace

FakeS3::FakeS3(const Clock& clock, FakeS3Options options)
    : clock_(clock),
      options_(std::move(options)),
      server_(
          [this](const ServerRequest& request) { return Answer(request); }) {}

void FakeS3::Put(const std::string& key, const std::string& bytes) {
  MutexLock lock(&mutex_);
  Store(key, bytes, {});
}

std::optional<std::string> FakeS3::Get(const std::string& key) const {
  MutexLock lock(&mutex_);
  const auto found = objects_.find(key);
  if (found == objects_.end()) return std::nullopt;
  return found->second.bytes;
}

int FakeS3::upload_count() const {
  MutexLock lock(&mutex_);
  return static_cast<int>(uploads_.size());
}

void FakeS3::SetFault(Fault fault) {
  MutexLock lock(&mutex_);
  fault_ = std::move(fault);
}

void FakeS3::SetSpoiler(Spoiler spoiler) {
  MutexLock lock(&mutex_);
  spoiler_ = std::move(spoiler);
}

std::string FakeS3::Call::header(const std::string& name) const {
  const auto found = request.headers.find(name);
  return found == request.headers.end() ? "" : found->second;
}

FakeS3::Metadata FakeS3::Call::metadata() const {
  Metadata metadata;
  for (const auto& [name, value] : request.headers) {
    if (absl::StartsWith(name, kMetadataPrefix)) {
      metadata.emplace_back(name, value);
    }
  }
  return metadata;
}

ServerAnswer FakeS3::Answer(const ServerRequest& request) {
  MutexLock lock(&mutex_);
  if (fault_) {
    const std::optional<ServerAnswer> fault = fault_(request);
    if (fault.has_value()) return *fault;
  }
  const std::pair<std::string, std::string> target =
      absl::StrSplit(request.target, absl::MaxSplits('?', 1));
  Call call{request};
  const std::string bucket = absl::StrCat("/", options_.bucket, "/");
  const std::string path = PercentDecode(target.first).value_or("");
  // A path that is encoded in another way has another signature.
  if (PercentEncode(path, true) != target.first) {
    return MakeError(403, "SignatureDoesNotMatch");
  }
  if (!absl::StartsWith(path, bucket)) return MakeError(404, "NoSuchBucket");
  call.key = path.substr(bucket.size());
  for (const absl::string_view part :
       absl::StrSplit(target.second, '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    call.query[PercentDecode(pair.first).value_or("")] =
        PercentDecode(pair.second).value_or("");
  }
  const std::optional<ServerAnswer> refusal = CheckSignature(call);
  if (refusal.has_value()) return *refusal;
  ServerAnswer answer = Serve(call);
  if (spoiler_) spoiler_(request, answer);
  return answer;
}

std::optional<ServerAnswer> FakeS3::CheckSignature(const Call& call) const {
  const auto query = [&call](const std::string& name) {
    const auto found = call.query.find(name);
    return found == call.query.end() ? "" : found->second;
  };
  const bool is_presigned = !query("X-Amz-Signature").empty();
  std::map<std::string, std::string> fields;
  if (!is_presigned) {
    std::string header = call.header("authorization");
    if (header.empty()) return MakeError(403, "AccessDenied");
    if (!absl::StartsWith(header, "AWS4-HMAC-SHA256 ")) {
      return MakeError(400, "AuthorizationHeaderMalformed");
    }
    fields = ParseFields(header.substr(17));
    const std::string hash = call.header("x-amz-content-sha256");
    if (hash != Hash(call.request.body)) {
      return MakeError(400, "XAmzContentSHA256Mismatch");
    }
  }
  const std::string scope =
      is_presigned ? query("X-Amz-Credential") : fields["Credential"];
  const std::string names =
      is_presigned ? query("X-Amz-SignedHeaders") : fields["SignedHeaders"];
  const std::string time =
      is_presigned ? query("X-Amz-Date") : call.header("x-amz-date");
  const std::string token = is_presigned ? query("X-Amz-Security-Token")
                                         : call.header("x-amz-security-token");
  const std::vector<std::string> scopes = absl::StrSplit(scope, '/');
  if (scopes.size() != 5 || scopes[0] != options_.credentials.access_key_id) {
    return MakeError(403, "InvalidAccessKeyId");
  }
  if (token != options_.credentials.session_token) {
    return MakeError(400, "InvalidToken");
  }
  if (scopes[2] != options_.region) {
    return MakeError(400, "AuthorizationHeaderMalformed");
  }
  absl::Time signed_time;
  if (!ParseDate(time, &signed_time)) return MakeError(403, "AccessDenied");
  int64_t lifetime_s = 0;
  if (is_presigned &&
      (!absl::SimpleAtoi(query("X-Amz-Expires"), &lifetime_s) ||
       clock_.Now() > signed_time + absl::Seconds(lifetime_s))) {
    return MakeError(403, "AccessDenied");  // As S3: "Request has expired".
  }
  if (!is_presigned &&
      absl::AbsDuration(clock_.Now() - signed_time) > kSkewMax) {
    return MakeError(403, "RequestTimeTooSkewed");
  }
  const std::pair<std::string, std::string> target =
      absl::StrSplit(call.request.target, absl::MaxSplits('?', 1));
  std::string canonical = absl::StrCat(call.request.method, "\n", target.first,
                                       "\n", Canonicalize(target.second), "\n");
  bool has_host = false;
  for (const std::string& name :
       std::vector<std::string>(absl::StrSplit(names, ';'))) {
    has_host |= name == "host";
    absl::StrAppend(&canonical, name, ":", call.header(name), "\n");
  }
  absl::StrAppend(
      &canonical, "\n", names, "\n",
      is_presigned ? "UNSIGNED-PAYLOAD" : call.header("x-amz-content-sha256"));
  std::string key = "AWS4" + options_.credentials.secret_access_key;
  for (size_t i = 1; i < scopes.size(); ++i) key = Hmac(key, scopes[i]);
  const std::string scope_text =
      absl::StrJoin(scopes.begin() + 1, scopes.end(), "/");
  const std::string signature = absl::BytesToHexString(
      Hmac(key, absl::StrCat("AWS4-HMAC-SHA256\n", time, "\n", scope_text, "\n",
                             Hash(canonical))));
  const std::string given =
      is_presigned ? query("X-Amz-Signature") : fields["Signature"];
  if (!has_host || signature != given) {
    return MakeError(403, "SignatureDoesNotMatch");
  }
  return std::nullopt;
}

ServerAnswer FakeS3::Serve(const Call& call) {
  const std::string& method = call.request.method;
  if (call.query.count("uploads") + call.query.count("uploadId") > 0) {
    return ServeUpload(call);
  }
  if (call.key.empty()) return List(call);
  const auto found = objects_.find(call.key);
  if (method == "PUT") {
    if (MustNotWrite(call)) return MakeError(412, "PreconditionFailed");
    Store(call.key, call.request.body, call.metadata());
    return {200, {{"ETag", objects_[call.key].etag}}};
  }
  if (method == "DELETE") {
    objects_.erase(call.key);
    return {204};
  }
  if (found == objects_.end()) return MakeError(404, "NoSuchKey");
  if (method == "GET" || method == "HEAD") return Read(call, found->second);
  return MakeError(405, "MethodNotAllowed");
}

ServerAnswer FakeS3::ServeUpload(const Call& call) {
  const std::string& method = call.request.method;
  if (call.query.count("uploads") > 0 && method == "GET") {
    return ListUploads(call);
  }
  if (call.query.count("uploads") > 0 && method == "POST") {
    const std::string id = absl::StrCat("id/+= ", ++version_);
    uploads_[id] = {call.key, call.metadata()};
    return {
        200,
        {},
        absl::StrCat("<InitiateMultipartUploadResult xmlns=\"s3\"><UploadId>",
                     id, "</UploadId></InitiateMultipartUploadResult>")};
  }
  const std::string id = call.query.at("uploadId");
  const auto upload = uploads_.find(id);
  if (upload == uploads_.end()) return MakeError(404, "NoSuchUpload");
  if (method == "DELETE") {
    uploads_.erase(upload);
    return {204};
  }
  if (method == "POST") return Complete(call, id);
  int number = 0;
  if (method != "PUT" || call.query.count("partNumber") == 0 ||
      !absl::SimpleAtoi(call.query.at("partNumber"), &number) || number < 1) {
    return MakeError(400, "InvalidArgument");
  }
  upload->second.parts[number] = call.request.body;
  return {200, {{"ETag", absl::StrCat("\"", Hash(call.request.body), "\"")}}};
}

bool FakeS3::MustNotWrite(const Call& call) {
  return call.header("if-none-match") == "*" &&
         !options_.ignores_if_none_match && objects_.count(call.key) > 0;
}

ServerAnswer FakeS3::ListUploads(const Call& call) {
  const auto prefix = call.query.find("prefix");
  std::string uploads;
  int count = 0;
  bool is_truncated = false;
  for (const auto& [id, upload] : uploads_) {
    if (prefix == call.query.end() ||
        !absl::StartsWith(upload.key, prefix->second)) {
      continue;
    }
    is_truncated = count == options_.page_key_count;
    if (is_truncated) break;
    ++count;
    absl::StrAppend(&uploads, "<Upload><Key>", PercentEncode(upload.key, true),
                    "</Key><UploadId>", id, "</UploadId></Upload>");
  }
  return {200,
          {},
          absl::StrCat("<ListMultipartUploadsResult>",
                       "<EncodingType>url</EncodingType><IsTruncated>",
                       is_truncated ? "true" : "false", "</IsTruncated>",
                       uploads, "</ListMultipartUploadsResult>")};
}

ServerAnswer FakeS3::Complete(const Call& call, const std::string& id) {
  const absl::StatusOr<XmlElement> list = ParseXml(call.request.body);
  if (!list.ok()) return MakeError(400, "MalformedXML");
  std::string bytes;
  int last = 0;
  for (const XmlElement& part : list->children) {
    int number = 0;
    if (!absl::SimpleAtoi(part.GetText("PartNumber"), &number) ||
        number <= last || uploads_[id].parts.count(number) == 0 ||
        part.GetText("ETag") !=
            absl::StrCat("\"", Hash(uploads_[id].parts[number]), "\"")) {
      return MakeError(400, "InvalidPart");
    }
    last = number;
    bytes += uploads_[id].parts[number];
  }
  if (MustNotWrite(call)) return MakeError(412, "PreconditionFailed");
  Store(call.key, bytes, uploads_[id].metadata);
  uploads_.erase(id);
  return {200, {}, "<CompleteMultipartUploadResult/>"};
}

ServerAnswer FakeS3::List(const Call& call) {
  const auto get = [&call](const std::string& name) {
    const auto found = call.query.find(name);
    return found == call.query.end() ? "" : found->second;
  };
  if (get("list-type") != "2" || get("encoding-type") != "url") {
    return MakeError(400, "InvalidArgument");
  }
  const std::string after =
      PercentDecode(absl::StripPrefix(get("continuation-token"), "+/after "))
          .value_or("");
  std::string contents;
  std::string last;
  int count = 0;
  bool is_truncated = false;
  for (const auto& [key, object] : objects_) {
    if (!absl::StartsWith(key, get("prefix")) || key <= after) continue;
    is_truncated = count == options_.page_key_count;
    if (is_truncated) break;
    ++count;
    last = key;
    absl::StrAppend(
        &contents, "<Contents><Key>", PercentEncode(key, true), "</Key><Size>",
        object.bytes.size(), "</Size><ETag>", "&quot;",
        absl::StripPrefix(absl::StripSuffix(object.etag, "\""), "\""),
        "&quot;</ETag></Contents>");
  }
  const std::string next =
      is_truncated
          ? absl::StrCat("<NextContinuationToken>+/after ",
                         PercentEncode(last, true), "</NextContinuationToken>")
          : "";
  return {
      200,
      {},
      absl::StrCat("<ListBucketResult><EncodingType>url</EncodingType>",
                   "<IsTruncated>", is_truncated ? "true" : "false",
                   "</IsTruncated>", next, contents, "</ListBucketResult>")};
}

ServerAnswer FakeS3::Read(const Call& call, const Object& object) {
  const std::string if_match = call.header("if-match");
  if (!if_match.empty() && if_match != object.etag) {
    return MakeError(412, "PreconditionFailed");
  }
  ServerAnswer answer{200, {{"ETag", object.etag}}, object.bytes};
  for (const auto& header : object.metadata) answer.headers.push_back(header);
  const std::string range = call.header("range");
  if (range.empty()) return answer;
  const std::vector<std::string> ends =
      absl::StrSplit(absl::StripPrefix(range, "bytes="), '-');
  const auto size = static_cast<int64_t>(object.bytes.size());
  int64_t begin = 0;
  int64_t last = size - 1;
  if (ends.size() != 2 || !absl::SimpleAtoi(ends[0], &begin) ||
      (!ends[1].empty() && !absl::SimpleAtoi(ends[1], &last))) {
    return MakeError(400, "InvalidArgument");
  }
  last = std::min(last, size - 1);
  if (begin > last) return MakeError(416, "InvalidRange");
  answer.code = 206;
  answer.body = object.bytes.substr(begin, last - begin + 1);
  answer.headers.emplace_back(
      "Content-Range", absl::StrCat("bytes ", begin, "-", last, "/", size));
  return answer;
}

void FakeS3::Store(const std::string& key, const std::string& bytes,
                   const Metadata& metadata) {
  objects_[key] = {
      bytes,
      absl::StrCat("\"", Hash(bytes).substr(0, 32), "-", ++version_, "\""),
      metadata};
}

}  // namespace atl
