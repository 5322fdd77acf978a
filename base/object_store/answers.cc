#include "base/object_store/answers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/host_port/host_port.h"
#include "base/object_store/bearer_client.h"
#include "base/object_store/xml.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "nlohmann/json.hpp"

namespace atl {
namespace {

constexpr size_t kServerTextBytesMax = 300;

// The <Error> of S3 or STS. Empty texts if the body has none.
struct ServerError {
  std::string code;
  std::string message;
};

ServerError ParseServerError(absl::string_view body) {
  if (!absl::StrContains(body, "<Error")) return {};
  const absl::StatusOr<XmlElement> root = ParseXml(body);
  if (!root.ok()) return {};
  const XmlElement* error = &*root;
  if (root->name == "ErrorResponse") error = root->Find("Error");
  if (error == nullptr || error->name != "Error") return {};
  return {error->GetText("Code"), error->GetText("Message")};
}

// A server's text as one short printable line.
std::string Show(absl::string_view text) {
  return absl::CHexEscape(
      absl::StripAsciiWhitespace(text).substr(0, kServerTextBytesMax));
}

// A hint on what to do about an error; empty if there is none.
std::string GetHint(const HttpAnswer& answer, const ServerError& error) {
  const std::string& code = error.code;
  const std::string region = answer.header("x-amz-bucket-region");
  if (code == "RequestTimeTooSkewed") {
    return absl::StrCat("the machine's clock is wrong; the server's says ",
                        Show(answer.header("date")));
  }
  if (code == "PermanentRedirect" || code == "AuthorizationHeaderMalformed" ||
      answer.code / 100 == 3 || (answer.code == 400 && !region.empty())) {
    return region.empty() ? "check AWS_REGION and the URL"
                          : absl::StrCat("set AWS_REGION=", Show(region));
  }
  if (code == "SignatureDoesNotMatch") {
    return "check the secret key, and that no proxy changes requests";
  }
  if (absl::StartsWith(code, "Expired")) return "renew the credentials";
  if (code == "InvalidAccessKeyId" || code == "InvalidToken") {
    return "check the access key and the session token";
  }
  if (answer.code == 407) return "the proxy needs a user name and a password";
  if (answer.code == 401 || answer.code == 403) {
    return "check the credentials and their policy, and whether a presigned "
           "URL has expired";
  }
  if (answer.code == 404) return "check the URL";
  if (answer.code == 412) return "it exists; choose another name";
  if (answer.code == 501) return "the server does not have this function";
  return "";
}

absl::StatusCode GetCode(int http_code, absl::string_view server_code) {
  if (server_code == "RequestTimeout" || server_code == "OperationAborted") {
    return absl::StatusCode::kUnavailable;
  }
  if (server_code == "ExpiredToken" || server_code == "InvalidToken" ||
      server_code == "ExpiredTokenException" ||
      server_code == "InvalidIdentityToken") {
    return absl::StatusCode::kPermissionDenied;
  }
  switch (http_code) {
    case 401:
    case 403:
      return absl::StatusCode::kPermissionDenied;
    case 404:
      return absl::StatusCode::kNotFound;
    case 408:
    case 429:
      return absl::StatusCode::kUnavailable;
    case 409:
      return absl::StatusCode::kAborted;
    case 412:
      return absl::StatusCode::kAlreadyExists;
    case 416:
      return absl::StatusCode::kOutOfRange;
    case 501:
    case 505:
      return absl::StatusCode::kUnimplemented;
    case 507:
      return absl::StatusCode::kResourceExhausted;
    default:
      return http_code >= 500 ? absl::StatusCode::kUnavailable
                              : absl::StatusCode::kFailedPrecondition;
  }
}

// The delay that a Retry-After header asks for: seconds, or a date.
std::optional<absl::Duration> ParseRetryAfter(const std::string& header,
                                              absl::Time now) {
  int64_t seconds = 0;
  if (absl::SimpleAtoi(header, &seconds)) {
    return absl::Seconds(std::max<int64_t>(seconds, 0));
  }
  absl::Time date;
  if (!absl::ParseTime("%a, %d %b %Y %H:%M:%S GMT", header, &date, nullptr)) {
    return std::nullopt;
  }
  return std::max(date - now, absl::ZeroDuration());
}

bool ParseNumber(absl::string_view text, int64_t* number) {
  return !text.empty() && absl::ascii_isdigit(text[0]) &&
         absl::SimpleAtoi(text, number);
}

absl::Status NoSuchAnswer(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("the server's answer has no ", what));
}

// The key of an element of a list.
absl::StatusOr<std::string> GetKey(const XmlElement& list,
                                   const XmlElement& element) {
  std::string key = element.GetText("Key");
  if (list.GetText("EncodingType") != "url") return key;
  // A form's encoding: a space is "+".
  std::optional<std::string> decoded =
      PercentDecode(absl::StrReplaceAll(key, {{"+", " "}}));
  if (!decoded.has_value()) return NoSuchAnswer("readable key");
  return *std::move(decoded);
}

// Credentials whose texts have nothing that a header may not have.
absl::StatusOr<AwsCredentials> MakeCredentials(std::string id,
                                               std::string secret,
                                               std::string token,
                                               const std::string& expiration) {
  AwsCredentials out{std::move(id), std::move(secret), std::move(token)};
  for (const std::string* text :
       {&out.access_key_id, &out.secret_access_key, &out.session_token}) {
    if (text->empty() ||
        std::any_of(text->begin(), text->end(), absl::ascii_iscntrl)) {
      return NoSuchAnswer("usable credentials");
    }
  }
  if (!absl::ParseTime(absl::RFC3339_full, expiration, &out.expire_time,
                       nullptr)) {
    return NoSuchAnswer("time at which the credentials expire");
  }
  return out;
}

}  // namespace

absl::Status ToStatus(const HttpAnswer& answer, absl::string_view context,
                      absl::Time now) {
  const bool is_atoll = IsAtollRealm(answer.header("www-authenticate"));
  ServerError error = ParseServerError(answer.body);
  if (is_atoll) error.message = answer.body;
  std::string message = absl::StrCat(context, ": HTTP ", answer.code);
  for (const std::string& text : {Show(error.code), Show(error.message),
                                  is_atoll ? "" : GetHint(answer, error)}) {
    if (!text.empty()) absl::StrAppend(&message, ": ", text);
  }
  const absl::Status status(is_atoll && answer.code == 401
                                ? absl::StatusCode::kUnauthenticated
                                : GetCode(answer.code, error.code),
                            message);
  const std::optional<absl::Duration> delay =
      ParseRetryAfter(answer.header("retry-after"), now);
  return delay.has_value() ? WithRetryDelay(status, *delay) : status;
}

std::optional<ContentRange> ParseContentRange(absl::string_view header) {
  ContentRange out;
  if (!absl::ConsumePrefix(&header, "bytes ")) return std::nullopt;
  const std::vector<absl::string_view> parts =
      absl::StrSplit(header, absl::ByAnyChar("-/"));
  int64_t last = 0;
  if (parts.size() != 3 || !ParseNumber(parts[0], &out.begin) ||
      !ParseNumber(parts[1], &last) ||
      !ParseNumber(parts[2], &out.size_bytes) || last < out.begin ||
      last >= out.size_bytes) {
    return std::nullopt;
  }
  out.end = last + 1;
  return out;
}

std::optional<int64_t> ParseContentLength(absl::string_view header) {
  int64_t number = 0;
  if (!ParseNumber(header, &number)) return std::nullopt;
  return number;
}

absl::StatusOr<UploadPage> ParseUploadPage(absl::string_view xml) {
  ASSIGN_OR_RETURN(const XmlElement root, ParseXml(xml));
  if (root.name != "ListMultipartUploadsResult") {
    return NoSuchAnswer("list of uploads");
  }
  UploadPage page;
  for (const XmlElement& element : root.children) {
    if (element.name != "Upload") continue;
    IncompleteUpload& upload = page.uploads.emplace_back();
    upload.id = element.GetText("UploadId");
    ASSIGN_OR_RETURN(upload.key, GetKey(root, element));
    if (upload.id.empty()) return NoSuchAnswer("upload id");
  }
  page.is_last = root.GetText("IsTruncated") != "true";
  return page;
}

absl::StatusOr<ListPage> ParseListPage(absl::string_view xml) {
  ASSIGN_OR_RETURN(const XmlElement root, ParseXml(xml));
  if (root.name != "ListBucketResult") return NoSuchAnswer("list of objects");
  ListPage page;
  for (const XmlElement& element : root.children) {
    if (element.name != "Contents") continue;
    ObjectInfo info;
    ASSIGN_OR_RETURN(info.name, GetKey(root, element));
    info.etag = element.GetText("ETag");
    if (!ParseNumber(element.GetText("Size"), &info.size_bytes)) {
      return NoSuchAnswer("size of an object");
    }
    page.objects.push_back(std::move(info));
  }
  if (root.GetText("IsTruncated") == "true") {
    page.continuation_token = root.GetText("NextContinuationToken");
    if (page.continuation_token.empty()) {
      return NoSuchAnswer("continuation token");
    }
  }
  return page;
}

absl::StatusOr<std::string> ParseUploadId(absl::string_view xml) {
  ASSIGN_OR_RETURN(const XmlElement root, ParseXml(xml));
  std::string id = root.GetText("UploadId");
  if (root.name != "InitiateMultipartUploadResult" || id.empty()) {
    return NoSuchAnswer("upload id");
  }
  return id;
}

absl::Status CheckCompleted(const HttpAnswer& answer, absl::string_view context,
                            absl::Time now) {
  const ServerError error = ParseServerError(answer.body);
  if (error.code.empty()) {
    const absl::StatusOr<XmlElement> root = ParseXml(answer.body);
    if (root.ok() && root->name == "CompleteMultipartUploadResult") {
      return absl::OkStatus();
    }
    return absl::UnavailableError(absl::StrCat(
        context, ": the server's answer does not say that it is complete"));
  }
  HttpAnswer failed = answer;
  if (error.code == "PreconditionFailed") {
    failed.code = 412;
  } else if (error.code == "ConditionalRequestConflict") {
    failed.code = 409;
  } else if (error.code == "NoSuchUpload") {
    failed.code = 404;
  } else if (error.code == "AccessDenied") {
    failed.code = 403;
  } else {
    failed.code = 500;
  }
  return ToStatus(failed, context, now);
}

std::string MakePartList(const std::vector<std::string>& etags) {
  std::string out = "<CompleteMultipartUpload>";
  for (size_t i = 0; i < etags.size(); ++i) {
    absl::StrAppend(
        &out, "<Part><PartNumber>", i + 1, "</PartNumber><ETag>",
        absl::StrReplaceAll(etags[i],
                            {{"&", "&amp;"}, {"<", "&lt;"}, {"\"", "&quot;"}}),
        "</ETag></Part>");
  }
  return absl::StrCat(out, "</CompleteMultipartUpload>");
}

absl::StatusOr<AwsCredentials> ParseStsCredentials(absl::string_view xml) {
  ASSIGN_OR_RETURN(const XmlElement root, ParseXml(xml));
  const XmlElement* const result = root.Find("AssumeRoleWithWebIdentityResult");
  const XmlElement* const found =
      result == nullptr ? nullptr : result->Find("Credentials");
  if (found == nullptr) return NoSuchAnswer("credentials");
  return MakeCredentials(
      found->GetText("AccessKeyId"), found->GetText("SecretAccessKey"),
      found->GetText("SessionToken"), found->GetText("Expiration"));
}

absl::StatusOr<AwsCredentials> ParseContainerCredentials(
    absl::string_view json) {
  const nlohmann::json root =
      nlohmann::json::parse(json.begin(), json.end(), nullptr, false);
  const auto get = [&root](const char* name) -> std::string {
    if (!root.is_object() || !root.contains(name)) return "";
    return root[name].is_string() ? root[name].get<std::string>() : "";
  };
  return MakeCredentials(get("AccessKeyId"), get("SecretAccessKey"),
                         get("Token"), get("Expiration"));
}

}  // namespace atl
