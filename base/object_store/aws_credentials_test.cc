#include "base/object_store/aws_credentials.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/object_store/object_url.h"
#include "base/object_store/testing/http_server.h"
#include "base/random_id/random_id.h"
#include "base/testing/mutator.h"
#include "base/time/testing/fake_clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Code = absl::StatusCode;

// One server that is STS for POST and a container's endpoint for GET.
class AwsCredentialsTest : public ::testing::Test {
 protected:
  AwsCredentialsTest()
      : server_([this](const ServerRequest& request) {
          if (code_ != 200) return ServerAnswer{code_, {}, error_};
          return ServerAnswer{
              200, {}, request.method == "POST" ? MakeSts() : MakeJson()};
        }) {
    std::filesystem::create_directories(directory_);
  }
  ~AwsCredentialsTest() override { std::filesystem::remove_all(directory_); }

  std::string Expiration() const {
    return absl::FormatTime(absl::RFC3339_sec, clock_.Now() + lifetime_,
                            absl::UTCTimeZone());
  }

  std::string MakeSts() const {
    return absl::StrCat(
        "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult>"
        "<Credentials><AccessKeyId>",
        key_,
        "</AccessKeyId>"
        "<SecretAccessKey>secret</SecretAccessKey>"
        "<SessionToken>token</SessionToken><Expiration>",
        Expiration(),
        "</Expiration></Credentials></AssumeRoleWithWebIdentityResult>"
        "</AssumeRoleWithWebIdentityResponse>");
  }

  std::string MakeJson() const {
    return absl::StrCat("{\"AccessKeyId\": \"", key_,
                        "\", \"SecretAccessKey\": \"secret\", \"Token\": "
                        "\"token\", \"Expiration\": \"",
                        Expiration(), "\"}");
  }

  // The path of a new file.
  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = directory_ + "/" + name;
    std::filesystem::create_directories(
        std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  void UseWebIdentity() {
    variables_["AWS_WEB_IDENTITY_TOKEN_FILE"] = Write("token", "jwt&+=\n");
    variables_["AWS_ROLE_ARN"] = "arn:aws:iam::1:role/a";
    variables_["AWS_ENDPOINT_URL_STS"] = server_.origin();
  }

  void UseContainer() {
    variables_["AWS_CONTAINER_CREDENTIALS_FULL_URI"] =
        server_.origin() + "/v1/credentials?x=y";
    variables_["AWS_CONTAINER_AUTHORIZATION_TOKEN"] = "Basic abc";
  }

  absl::StatusOr<AwsCredentials> Get() {
    if (source_ == nullptr) {
      source_ = FindAwsCredentials(
          [this](absl::string_view name) -> std::optional<std::string> {
            const auto found = variables_.find(std::string(name));
            if (found == variables_.end()) return std::nullopt;
            return found->second;
          },
          transport_);
    }
    return source_->Get();
  }

  // The access key that is found by a new source; else the code.
  std::string FindKey() {
    source_.reset();
    const auto found = Get();
    return found.ok() ? found->access_key_id
                      : absl::StatusCodeToString(found.status().code());
  }

  FakeClock clock_;
  const std::string directory_ =
      JoinObjectName(::testing::TempDir(), RandomId());
  std::map<std::string, std::string> variables_;
  absl::Duration lifetime_ = absl::Hours(1);
  std::string key_ = "first";
  int code_ = 200;
  std::string error_;
  HttpServer server_;
  HttpTransport transport_{
      *HttpClient::Create({}),
      Retrier({},
              {.clock = &clock_,
               .sleep = [this](absl::Duration nap) { clock_.Advance(nap); }},
              1),
      clock_};
  std::unique_ptr<AwsCredentialsSource> source_;
};

TEST_F(AwsCredentialsTest, TheFirstPlaceThatIsSetIsTaken) {
  EXPECT_EQ(FindKey(), "UNAUTHENTICATED");
  UseContainer();
  EXPECT_EQ(FindKey(), "first");
  EXPECT_EQ(server_.requests().back().method, "GET");
  variables_["HOME"] = directory_;
  EXPECT_EQ(FindKey(), "first");
  Write(".aws/credentials",
        "[default]\naws_access_key_id=file\naws_secret_access_key=s\n");
  EXPECT_EQ(FindKey(), "file");
  UseWebIdentity();
  EXPECT_EQ(FindKey(), "first");
  EXPECT_EQ(server_.requests().back().method, "POST");
  variables_["AWS_ACCESS_KEY_ID"] = "variable";
  variables_["AWS_SECRET_ACCESS_KEY"] = "s";
  EXPECT_EQ(FindKey(), "variable");
  variables_["AWS_ACCESS_KEY_ID"] = "";
  EXPECT_EQ(FindKey(), "first");
}

TEST_F(AwsCredentialsTest, ErrorsNameTheVariables) {
  EXPECT_THAT(std::string(Get().status().message()),
              AllOf(HasSubstr("AWS_ACCESS_KEY_ID"),
                    HasSubstr("AWS_WEB_IDENTITY_TOKEN_FILE"),
                    HasSubstr("AWS_CONTAINER_CREDENTIALS_FULL_URI")));
  variables_["AWS_ACCESS_KEY_ID"] = "a";
  EXPECT_THAT(std::string(Get().status().message()),
              HasSubstr("AWS_SECRET_ACCESS_KEY is not"));
}

TEST_F(AwsCredentialsTest, VariablesMayHaveASessionToken) {
  variables_ = {{"AWS_ACCESS_KEY_ID", "a"},
                {"AWS_SECRET_ACCESS_KEY", "b"},
                {"AWS_SESSION_TOKEN", "c"}};
  const auto found = Get();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->secret_access_key, "b");
  EXPECT_EQ(found->session_token, "c");
  EXPECT_EQ(found->expire_time, absl::InfiniteFuture());
}

// --- STS ---------------------------------------------------------------------

TEST_F(AwsCredentialsTest, AssumesTheRoleWithTheTokenOfTheFile) {
  UseWebIdentity();
  variables_["AWS_ROLE_SESSION_NAME"] = "island 1";
  const auto found = Get();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->session_token, "token");
  const ServerRequest request = server_.requests().at(0);
  EXPECT_EQ(request.target, "/");
  EXPECT_EQ(request.headers.at("content-type"),
            "application/x-www-form-urlencoded");
  EXPECT_EQ(request.body,
            "Action=AssumeRoleWithWebIdentity&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3A"
            "role%2Fa&RoleSessionName=island%201&Version=2011-06-15&"
            "WebIdentityToken=jwt%26%2B%3D");
}

TEST_F(AwsCredentialsTest, ARefusalOfStsIsShown) {
  UseWebIdentity();
  code_ = 400;
  error_ =
      "<ErrorResponse><Error><Code>InvalidIdentityToken</Code><Message>no "
      "provider</Message></Error></ErrorResponse>";
  const absl::Status status = Get().status();
  EXPECT_EQ(status.code(), Code::kPermissionDenied);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("InvalidIdentityToken"), HasSubstr("no provider"),
                    Not(HasSubstr("jwt"))));
  EXPECT_EQ(server_.requests().size(), 1u);
}

TEST_F(AwsCredentialsTest, ARoleNeedsItsArnAndAReadableToken) {
  UseWebIdentity();
  variables_.erase("AWS_ROLE_ARN");
  EXPECT_EQ(FindKey(), "UNAUTHENTICATED");
  variables_["AWS_ROLE_ARN"] = "a";
  variables_["AWS_WEB_IDENTITY_TOKEN_FILE"] = directory_ + "/missing";
  EXPECT_EQ(FindKey(), "NOT_FOUND");
}

// --- The shared file
// -----------------------------------------------------------

TEST_F(AwsCredentialsTest, ReadsTheNamedProfile) {
  variables_["AWS_SHARED_CREDENTIALS_FILE"] = Write(
      "shared",
      "# comment\n[default]\naws_access_key_id = d\naws_secret_access_key = s\n"
      "\n; comment\n[ other ]\r\n AWS_ACCESS_KEY_ID=o \r\n"
      "aws_secret_access_key = a=b/c\r\naws_session_token = t\nregion\n");
  EXPECT_EQ(FindKey(), "d");
  variables_["AWS_PROFILE"] = "other";
  source_.reset();
  const auto found = Get();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->access_key_id, "o");
  EXPECT_EQ(found->secret_access_key, "a=b/c");
  EXPECT_EQ(found->session_token, "t");
}

TEST_F(AwsCredentialsTest, AProfileThatIsNamedMustHaveKeys) {
  UseContainer();
  variables_["HOME"] = directory_;
  Write(".aws/credentials", "[default]\nregion = a\n");
  EXPECT_EQ(FindKey(), "first");
  variables_["AWS_PROFILE"] = "missing";
  EXPECT_EQ(FindKey(), "NOT_FOUND");
  EXPECT_THAT(std::string(Get().status().message()), HasSubstr("\"missing\""));
}

TEST_F(AwsCredentialsTest, AnyBytesOfTheFileAreReadWithoutACrash) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  Mutator mutator(seed);
  const std::string path = directory_ + "/shared";
  variables_["AWS_SHARED_CREDENTIALS_FILE"] = path;
  int found_count = 0;
  for (int i = 0; i < 300; ++i) {
    Write("shared",
          mutator.Changed({std::string(500, '#') +
                               "\n[default]\naws_access_key_id = a\n"
                               "aws_secret_access_key = b\n" +
                               std::string(500, '#'),
                           "[", "]", "=\n[default", "[default]\n=a"}));
    source_.reset();
    found_count += Get().ok();
  }
  EXPECT_GT(found_count, 0);
}

// --- Containers
// ----------------------------------------------------------------

TEST_F(AwsCredentialsTest, AsksTheContainersEndpointWithItsToken) {
  UseContainer();
  ASSERT_TRUE(Get().ok()) << Get().status();
  EXPECT_EQ(server_.requests().at(0).target, "/v1/credentials?x=y");
  EXPECT_EQ(server_.requests().at(0).headers.at("authorization"), "Basic abc");
  variables_["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] =
      Write("token", "of the file\n");
  EXPECT_EQ(FindKey(), "first");
  EXPECT_EQ(server_.requests().at(1).headers.at("authorization"),
            "of the file");
}

TEST_F(AwsCredentialsTest, ATokenIsNotSentToAnotherPlaintextHost) {
  for (const char* uri : {"http://169.254.169.254/a", "http://example.com/a",
                          "http://10.0.0.1/a", "ftp://127.0.0.1/a"}) {
    variables_["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = uri;
    EXPECT_EQ(FindKey(), "INVALID_ARGUMENT") << uri;
    EXPECT_THAT(std::string(Get().status().message()),
                HasSubstr("AWS_CONTAINER_CREDENTIALS_FULL_URI"));
  }
}

TEST_F(AwsCredentialsTest, ATokenWithALineEndIsRefused) {
  UseContainer();
  variables_["AWS_CONTAINER_AUTHORIZATION_TOKEN"] = "a\r\nX: y";
  EXPECT_EQ(FindKey(), "INVALID_ARGUMENT");
  EXPECT_EQ(server_.requests().size(), 0u);
}

// --- Expiry
// --------------------------------------------------------------------

TEST_F(AwsCredentialsTest, RefreshesFiveMinutesBeforeTheyExpire) {
  UseContainer();
  EXPECT_EQ(Get()->access_key_id, "first");
  key_ = "second";
  clock_.Advance(absl::Minutes(54));
  EXPECT_EQ(Get()->access_key_id, "first");
  EXPECT_EQ(server_.requests().size(), 1u);
  clock_.Advance(absl::Minutes(1));
  EXPECT_EQ(Get()->access_key_id, "second");
  EXPECT_EQ(server_.requests().size(), 2u);
}

TEST_F(AwsCredentialsTest, OldOnesServeUntilTheyExpire) {
  UseContainer();
  EXPECT_TRUE(Get().ok());
  code_ = 403;
  clock_.Advance(absl::Minutes(56));
  EXPECT_EQ(Get()->access_key_id, "first");
  EXPECT_EQ(Get()->access_key_id, "first");
  EXPECT_EQ(server_.requests().size(), 2u);
  clock_.Advance(absl::Minutes(5));
  EXPECT_EQ(Get().status().code(), Code::kPermissionDenied);
  code_ = 200;
  EXPECT_TRUE(Get().ok());
}

TEST_F(AwsCredentialsTest, AnEndpointThatIsBusyIsTriedAgain) {
  UseContainer();
  code_ = 503;
  EXPECT_EQ(FindKey(), "UNAVAILABLE");
  EXPECT_EQ(server_.requests().size(), 10u);
}

TEST(AwsRegionTest, TheRegionHasADefault) {
  const auto region = [](std::map<std::string, std::string> variables) {
    return GetAwsRegion(
        [&](absl::string_view name) -> std::optional<std::string> {
          const auto found = variables.find(std::string(name));
          if (found == variables.end()) return std::nullopt;
          return found->second;
        });
  };
  EXPECT_EQ(GetAwsRegion(nullptr), "us-east-1");
  EXPECT_EQ(region({{"AWS_DEFAULT_REGION", "a"}}), "a");
  EXPECT_EQ(region({{"AWS_DEFAULT_REGION", "a"}, {"AWS_REGION", "b"}}), "b");
}

}  // namespace
}  // namespace atl
