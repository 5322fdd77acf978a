#include "base/object_store/aws_credentials.h"

#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/object_store/answers.h"
#include "base/object_store/object_url.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"

namespace atl {
namespace {

constexpr absl::Duration kRefreshBefore = absl::Minutes(5);
// After a failure, while the old credentials are still valid.
constexpr absl::Duration kRefreshPause = absl::Seconds(30);
constexpr int64_t kTokenBytesMax = 64 << 10;
constexpr int64_t kFileBytesMax = 1 << 20;

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text,
                   ReadFile(PosixFileSystem(), path, kTokenBytesMax));
  return std::string(absl::StripAsciiWhitespace(text));
}

// The keys of a profile in an INI file. Empty if there is no such profile.
std::map<std::string, std::string> ParseProfile(absl::string_view text,
                                                absl::string_view profile) {
  std::map<std::string, std::string> keys;
  bool is_inside = false;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#' || line[0] == ';') continue;
    if (line[0] == '[') {
      const absl::string_view name = line.substr(1, line.find(']') - 1);
      is_inside = absl::StripAsciiWhitespace(name) == profile;
      continue;
    }
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits('=', 1));
    if (is_inside) {
      keys[absl::AsciiStrToLower(absl::StripAsciiWhitespace(parts.first))] =
          std::string(absl::StripAsciiWhitespace(parts.second));
    }
  }
  return keys;
}

class FoundCredentials : public AwsCredentialsSource {
 public:
  FoundCredentials(Environment environment, HttpTransport& transport)
      : environment_(std::move(environment)), transport_(transport) {}

  absl::StatusOr<AwsCredentials> Get() override {
    const absl::Time now = transport_.wall_clock.Now();
    if (now < refresh_time_) return credentials_;
    absl::StatusOr<AwsCredentials> fetched = Fetch();
    if (fetched.ok()) {
      credentials_ = *std::move(fetched);
      refresh_time_ = credentials_.expire_time - kRefreshBefore;
      return credentials_;
    }
    if (now >= credentials_.expire_time) return fetched.status();
    refresh_time_ = now + kRefreshPause;
    return credentials_;
  }

 private:
  std::string Variable(absl::string_view name) const {
    return GetVariable(environment_, name);
  }

  absl::StatusOr<AwsCredentials> Fetch() {
    if (!Variable("AWS_ACCESS_KEY_ID").empty()) return GetVariables();
    if (!Variable("AWS_WEB_IDENTITY_TOKEN_FILE").empty()) return AssumeRole();
    ASSIGN_OR_RETURN(const std::optional<AwsCredentials> of_profile,
                     ReadProfile());
    if (of_profile.has_value()) return *of_profile;
    const std::string uri = Variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    if (!uri.empty()) return AskContainer(uri);
    return absl::UnauthenticatedError(
        "no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
        "or AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN, or a profile in "
        "~/.aws/credentials, or AWS_CONTAINER_CREDENTIALS_FULL_URI");
  }

  absl::StatusOr<AwsCredentials> GetVariables() const {
    AwsCredentials out{Variable("AWS_ACCESS_KEY_ID"),
                       Variable("AWS_SECRET_ACCESS_KEY"),
                       Variable("AWS_SESSION_TOKEN")};
    if (out.secret_access_key.empty()) {
      return absl::UnauthenticatedError(
          "AWS_ACCESS_KEY_ID is set, but AWS_SECRET_ACCESS_KEY is not");
    }
    return out;
  }

  absl::StatusOr<AwsCredentials> AssumeRole() {
    const std::string role = Variable("AWS_ROLE_ARN");
    if (role.empty()) {
      return absl::UnauthenticatedError(
          "AWS_WEB_IDENTITY_TOKEN_FILE is set, but AWS_ROLE_ARN is not");
    }
    // The file is replaced from time to time.
    ASSIGN_OR_RETURN(const std::string token,
                     ReadToken(Variable("AWS_WEB_IDENTITY_TOKEN_FILE")));
    ASSIGN_OR_RETURN(const HttpUrl endpoint, ParseHttpUrl(GetStsEndpoint()));
    const std::string body = EncodeQuery(
        {{"Action", "AssumeRoleWithWebIdentity"},
         {"Version", "2011-06-15"},
         {"RoleArn", role},
         {"RoleSessionName",
          GetVariable(environment_, "AWS_ROLE_SESSION_NAME", "atoll")},
         {"WebIdentityToken", token}});
    ASSIGN_OR_RETURN(
        const HttpAnswer answer,
        Send(
            {.method = "POST",
             .url = absl::StrCat(endpoint.origin(),
                                 endpoint.path.empty() ? "/" : endpoint.path),
             .headers = {{"Content-Type", "application/x-www-form-urlencoded"}},
             .body = body}));
    return ParseStsCredentials(answer.body);
  }

  std::string GetStsEndpoint() const {
    const std::string region =
        GetVariable(environment_, "AWS_REGION", Variable("AWS_DEFAULT_REGION"));
    const std::string of_aws =
        region.empty()
            ? "https://sts.amazonaws.com"
            : absl::StrCat("https://sts.", region, ".amazonaws.com",
                           absl::StartsWith(region, "cn-") ? ".cn" : "");
    return GetVariable(environment_, "AWS_ENDPOINT_URL_STS",
                       GetVariable(environment_, "AWS_ENDPOINT_URL", of_aws));
  }

  // None if there is no profile with keys, unless one is named.
  absl::StatusOr<std::optional<AwsCredentials>> ReadProfile() const {
    const std::string named_file = Variable("AWS_SHARED_CREDENTIALS_FILE");
    const std::string named_profile = Variable("AWS_PROFILE");
    const std::string home = Variable("HOME");
    const bool is_named = !named_file.empty() || !named_profile.empty();
    if (!is_named && home.empty()) return std::nullopt;
    const std::string path = named_file.empty()
                                 ? absl::StrCat(home, "/.aws/credentials")
                                 : named_file;
    const absl::StatusOr<std::string> text =
        ReadFile(PosixFileSystem(), path, kFileBytesMax);
    if (!is_named && absl::IsNotFound(text.status())) return std::nullopt;
    RETURN_IF_ERROR(text.status());
    const std::string profile =
        named_profile.empty() ? "default" : named_profile;
    std::map<std::string, std::string> keys = ParseProfile(*text, profile);
    AwsCredentials out{keys["aws_access_key_id"], keys["aws_secret_access_key"],
                       keys["aws_session_token"]};
    if (!out.access_key_id.empty() && !out.secret_access_key.empty()) {
      return out;
    }
    if (!is_named) return std::nullopt;
    return absl::NotFoundError(
        absl::StrCat(path, ": the profile \"", profile,
                     "\" has no aws_access_key_id and aws_secret_access_key"));
  }

  absl::StatusOr<AwsCredentials> AskContainer(const std::string& uri) {
    RETURN_IF_ERROR(Annotate(ParseHttpUrl(uri, PlaintextHosts::kContainers).status(),
                             "AWS_CONTAINER_CREDENTIALS_FULL_URI"));
    std::string token = Variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    const std::string file = Variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    if (!file.empty()) {
      ASSIGN_OR_RETURN(token, ReadToken(file));
    }
    HttpRequest request{.method = "GET", .url = uri, .is_local = true};
    if (!token.empty()) request.headers = {{"Authorization", token}};
    ASSIGN_OR_RETURN(const HttpAnswer answer, Send(request));
    return ParseContainerCredentials(answer.body);
  }

  absl::StatusOr<HttpAnswer> Send(const HttpRequest& request) {
    HttpAnswer answer;
    RETURN_IF_ERROR(transport_.retrier.Run([&]() -> absl::Status {
      ASSIGN_OR_RETURN(answer, transport_.client->Send(request));
      if (answer.ok()) return absl::OkStatus();
      return ToStatus(answer,
                      absl::StrCat(request.method, " ", RedactUrl(request.url)),
                      transport_.wall_clock.Now());
    }));
    return answer;
  }

  const Environment environment_;
  HttpTransport& transport_;
  AwsCredentials credentials_{.expire_time = absl::InfinitePast()};
  absl::Time refresh_time_ = absl::InfinitePast();
};

}  // namespace

std::string GetVariable(const Environment& environment, absl::string_view name,
                        absl::string_view otherwise) {
  const std::optional<std::string> value =
      environment ? environment(name) : std::nullopt;
  return value.has_value() && !value->empty() ? *value : std::string(otherwise);
}

bool HasAwsCredentials(const Environment& environment) {
  for (const char* name :
       {"AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_PROFILE",
        "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"}) {
    if (!GetVariable(environment, name).empty()) return true;
  }
  const std::string home = GetVariable(environment, "HOME");
  return !home.empty() &&
         PosixFileSystem().Exists(absl::StrCat(home, "/.aws/credentials"));
}

std::string GetAwsRegion(const Environment& environment) {
  return GetVariable(
      environment, "AWS_REGION",
      GetVariable(environment, "AWS_DEFAULT_REGION", "us-east-1"));
}

std::unique_ptr<AwsCredentialsSource> FindAwsCredentials(
    Environment environment, HttpTransport& transport) {
  return std::make_unique<FoundCredentials>(std::move(environment), transport);
}

}  // namespace atl
