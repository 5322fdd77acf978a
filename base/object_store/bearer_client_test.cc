#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/object_store/bearer_client.h"

#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/object_store/testing/http_server.h"
#include "base/random_id/random_id.h"
#include "base/rpc/testing/test_certificates.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

// A server that demands a token for "/private", and a public one.
class BearerClientTest : public ::testing::Test {
 protected:
  BearerClientTest() {
    std::filesystem::create_directories(directory_);
    authority_ = std::make_unique<rpc::TestAuthority>(directory_);
    const rpc::TlsFiles tls = authority_->Issue("atoll:data:d");
    ca_pem_ = *ReadFile(PosixFileSystem(), tls.ca);
    server_ = std::make_unique<HttpServer>(
        [this](const ServerRequest& request) { return Answer(request); }, &tls);
    client_ = std::make_unique<BearerClient>(
        *HttpClient::Create({.ca_pem = ca_pem_}), [this] { return token_; });
  }

  ServerAnswer Answer(const ServerRequest& request) const {
    if (request.target == "/away") {
      return {302, {{"Location", other_origin() + "/private"}}, ""};
    }
    const auto found = request.headers.find("authorization");
    const std::string shown =
        found == request.headers.end() ? "" : found->second;
    if (request.target == "/move" && !shown.empty()) {
      return {302, {{"Location", server_->origin() + "/open"}}, ""};
    }
    if (request.target == "/open" || shown == "Bearer " + good_) {
      return {200, {}, "content"};
    }
    return {401, {{"WWW-Authenticate", challenge_}}, "no"};
  }

  // Another name of the same server.
  std::string other_origin() const {
    return absl::StrCat("https://localhost:", server_->port());
  }

  int Get(const std::string& url) {
    const auto answer =
        client_->Send({.method = "GET", .url = url, .follows_redirects = true});
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() ? answer->code : 0;
  }

  // How many of the requests so far carried a token.
  int ShownCount() const {
    int count = 0;
    for (const ServerRequest& request : server_->requests()) {
      count += static_cast<int>(request.headers.count("authorization"));
    }
    return count;
  }

  const std::string directory_ =
      absl::StrCat(::testing::TempDir(), "/", RandomId());
  std::unique_ptr<rpc::TestAuthority> authority_;
  std::string ca_pem_;
  std::string challenge_ = "Bearer realm=\"atoll\"";
  std::string good_ = "one";
  std::string token_ = "one\n";
  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<BearerClient> client_;
};

TEST_F(BearerClientTest, ATokenIsShownOnceItIsDemanded) {
  EXPECT_EQ(Get(server_->origin() + "/open"), 200);
  EXPECT_EQ(ShownCount(), 0);
  EXPECT_EQ(Get(server_->origin() + "/private"), 200);
  EXPECT_EQ(server_->requests().size(), 3u);
  EXPECT_EQ(ShownCount(), 1);
  // The next request shows it at once.
  EXPECT_EQ(Get(server_->origin() + "/private"), 200);
  EXPECT_EQ(server_->requests().size(), 4u);
  EXPECT_EQ(ShownCount(), 2);
}

TEST_F(BearerClientTest, ARenewedTokenIsUsedAtTheNextRequest) {
  EXPECT_EQ(Get(server_->origin() + "/private"), 200);
  good_ = token_ = "two";
  EXPECT_EQ(Get(server_->origin() + "/private"), 200);
}

TEST_F(BearerClientTest, OtherDemandsGetNoToken) {
  for (const char* challenge :
       {"", "Basic realm=\"atoll\"", "Bearer", "Bearer realm=\"other\""}) {
    challenge_ = challenge;
    EXPECT_EQ(Get(server_->origin() + "/private"), 401) << challenge;
  }
  EXPECT_EQ(ShownCount(), 0);
}

TEST_F(BearerClientTest, ADemandAfterARedirectGetsNoToken) {
  EXPECT_EQ(Get(server_->origin() + "/away"), 401);
  EXPECT_EQ(Get(server_->origin() + "/away"), 401);
  EXPECT_EQ(ShownCount(), 0);
}

TEST_F(BearerClientTest, ARequestWithATokenFollowsNoRedirect) {
  EXPECT_EQ(Get(server_->origin() + "/move"), 302);
  EXPECT_EQ(server_->requests().size(), 2u);
}

TEST_F(BearerClientTest, WithoutATokenTheDemandIsTheAnswer) {
  token_ = "";
  EXPECT_EQ(Get(server_->origin() + "/private"), 401);
  EXPECT_EQ(server_->requests().size(), 1u);
}

TEST_F(BearerClientTest, AWrongTokenIsNotShownTwice) {
  token_ = "wrong";
  EXPECT_EQ(Get(server_->origin() + "/private"), 401);
  EXPECT_EQ(server_->requests().size(), 2u);
}

TEST_F(BearerClientTest, OnlyABodyOfSuccessReachesTheSink) {
  std::string received;
  const auto answer =
      client_->Send({.method = "GET", .url = server_->origin() + "/private"},
                    [&received](const HttpAnswer&, absl::string_view bytes) {
                      absl::StrAppend(&received, bytes);
                      return absl::OkStatus();
                    });
  EXPECT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(received, "content");
}

}  // namespace
}  // namespace atl
