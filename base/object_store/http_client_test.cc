#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/object_store/http_client.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/host_port/testing/connect_proxy.h"
#include "base/io/unique_fd.h"
#include "base/object_store/testing/http_server.h"
#include "base/random_id/random_id.h"
#include "base/rpc/testing/test_certificates.h"
#include "base/status/check.h"
#include "base/testing/mutator.h"
#include "base/time/testing/fake_clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Code = absl::StatusCode;

// Answers each connection with the bytes that a test makes, and closes it.
class RawServer {
 public:
  explicit RawServer(std::function<std::string()> make_answer)
      : make_answer_(std::move(make_answer)),
        listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t address_bytes = sizeof(address);
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    CHECK_EQ(bind(listener_.get(), generic, address_bytes), 0);
    CHECK_EQ(listen(listener_.get(), 8), 0);
    CHECK_EQ(getsockname(listener_.get(), generic, &address_bytes), 0);
    url_ = absl::StrCat("http://127.0.0.1:", ntohs(address.sin_port));
    thread_ = std::thread([this] { Run(); });
  }
  ~RawServer() {
    shutdown(listener_.get(), SHUT_RDWR);  // Ends accept.
    thread_.join();
  }

  const std::string& url() const { return url_; }

 private:
  void Run() {
    while (true) {
      const UniqueFd client(accept(listener_.get(), nullptr, nullptr));
      if (!client.valid()) return;
      char request[4096];
      if (recv(client.get(), request, sizeof(request), 0) <= 0) continue;
      const std::string answer = make_answer_();
      send(client.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    }
  }

  const std::function<std::string()> make_answer_;
  const UniqueFd listener_;
  std::string url_;
  std::thread thread_;
};

class HttpClientTest : public ::testing::Test {
 protected:
  HttpClientTest()
      : server_([this](const ServerRequest& request) {
          return handler_(request);
        }) {
    options_.clock = &clock_;
  }

  HttpClient& client() {
    if (client_ == nullptr) client_ = *HttpClient::Create(options_);
    return *client_;
  }

  absl::StatusOr<HttpAnswer> Get(const std::string& path = "/") {
    return client().Send({.method = "GET", .url = server_.origin() + path});
  }

  // Appends the body to `received_`.
  absl::StatusOr<HttpAnswer> GetToSink() {
    return client().Send({.method = "GET", .url = server_.origin() + "/"},
                         [this](const HttpAnswer&, absl::string_view bytes) {
                           absl::StrAppend(&received_, bytes);
                           return absl::OkStatus();
                         });
  }

  // Each look at the clock of an idle transfer comes a minute later.
  void MakeTimePass() {
    options_.cancelled = [this] {
      clock_.Advance(absl::Minutes(1));
      return false;
    };
  }

  FakeClock clock_;
  HttpClientOptions options_;
  std::function<ServerAnswer(const ServerRequest&)> handler_ =
      [](const ServerRequest&) { return ServerAnswer{.body = "body"}; };
  HttpServer server_;
  std::unique_ptr<HttpClient> client_;
  std::string received_;
};

TEST_F(HttpClientTest, ReturnsCodeHeadersAndBody) {
  handler_ = [](const ServerRequest&) {
    return ServerAnswer{404, {{"ETag", "\"a\""}, {"X-Empty", ""}}, "gone"};
  };
  const auto answer = Get("/a?b=c");
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->code, 404);
  EXPECT_EQ(answer->header("etag"), "\"a\"");
  EXPECT_EQ(answer->header("x-empty"), "");
  EXPECT_EQ(answer->header("missing"), "");
  EXPECT_EQ(answer->body, "gone");
  EXPECT_EQ(server_.requests().at(0).target, "/a?b=c");
}

TEST_F(HttpClientTest, SendsMethodPathHeadersAndBodyAsGiven) {
  const std::string body = std::string("a\0b", 3) + std::string(3 << 20, 'x');
  for (const char* method : {"PUT", "POST"}) {
    const auto answer = client().Send({method,
                                       server_.origin() + "/a/../b//c%2F?x&y=",
                                       {{"A", "b; c"}},
                                       body});
    ASSERT_TRUE(answer.ok()) << answer.status();
    const ServerRequest request = server_.requests().back();
    EXPECT_EQ(request.method, method);
    EXPECT_EQ(request.target, "/a/../b//c%2F?x&y=");
    EXPECT_EQ(request.headers.at("a"), "b; c");
    EXPECT_EQ(request.headers.count("content-type"), 0u);
    EXPECT_EQ(request.body, body);
  }
  ASSERT_TRUE(client().Send({"PUT", server_.origin()}).ok());
  EXPECT_EQ(server_.requests().back().headers.at("content-length"), "0");
  ASSERT_TRUE(client().Send({"DELETE", server_.origin()}).ok());
  EXPECT_EQ(server_.requests().back().method, "DELETE");
}

TEST_F(HttpClientTest, AHeadAnswerHasNoBody) {
  const auto answer = client().Send({"HEAD", server_.origin()});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->body, "");
  EXPECT_EQ(answer->header("content-length"), "4");
  EXPECT_TRUE(Get().ok());
}

TEST_F(HttpClientTest, RequestsShareAConnection) {
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(Get().ok());
  EXPECT_EQ(server_.connection_count(), 1);
}

// --- Bodies ------------------------------------------------------------------

TEST_F(HttpClientTest, ABodyGoesToTheSinkInPieces) {
  const std::string body(20 << 20, 'x');
  handler_ = [&](const ServerRequest&) { return ServerAnswer{.body = body}; };
  size_t piece_bytes_max = 0;
  size_t received_bytes = 0;
  const auto answer = client().Send(
      {"GET", server_.origin()},
      [&](const HttpAnswer& head, absl::string_view bytes) {
        EXPECT_EQ(head.code, 200);
        EXPECT_EQ(head.header("content-length"), absl::StrCat(body.size()));
        piece_bytes_max = std::max(piece_bytes_max, bytes.size());
        received_bytes += bytes.size();
        return absl::OkStatus();
      });
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(received_bytes, body.size());
  EXPECT_LE(piece_bytes_max, size_t{512} << 10);
  EXPECT_EQ(answer->body, "");
}

TEST_F(HttpClientTest, AnErrorsBodyDoesNotGoToTheSink) {
  handler_ = [](const ServerRequest&) {
    return ServerAnswer{503, {}, std::string(1 << 20, 'e')};
  };
  const auto answer = GetToSink();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->code, 503);
  EXPECT_EQ(received_, "");
  EXPECT_GT(answer->body.size(), 0u);
  EXPECT_LE(answer->body.size(), HttpClient::kErrorBytesMax);
}

TEST_F(HttpClientTest, ASinksErrorEndsTheTransfer) {
  const auto answer = client().Send({"GET", server_.origin()},
                                    [](const HttpAnswer&, absl::string_view) {
                                      return absl::DataLossError("mine");
                                    });
  EXPECT_EQ(answer.status(), absl::DataLossError("mine"));
  EXPECT_TRUE(Get().ok());
}

TEST_F(HttpClientTest, ASinkCannotCallItsClient) {
  absl::Status inner;
  const auto answer = client().Send({"GET", server_.origin()},
                                    [&](const HttpAnswer&, absl::string_view) {
                                      inner = Get().status();
                                      return absl::OkStatus();
                                    });
  EXPECT_TRUE(answer.ok());
  EXPECT_EQ(inner.code(), Code::kFailedPrecondition);
}

TEST_F(HttpClientTest, AnswersWithoutASinkAreBounded) {
  handler_ = [](const ServerRequest&) {
    return ServerAnswer{.body =
                            std::string(HttpClient::kBodyBytesMax + 1, 'x')};
  };
  EXPECT_EQ(Get().status().code(), Code::kResourceExhausted);
  handler_ = [](const ServerRequest&) {
    ServerAnswer answer;
    for (int i = 0; i < 70; ++i) {
      answer.headers.emplace_back(absl::StrCat("h", i), std::string(1000, 'h'));
    }
    return answer;
  };
  const absl::Status status = Get().status();
  EXPECT_EQ(status.code(), Code::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("headers"));
}

// --- Faults ------------------------------------------------------------------

TEST_F(HttpClientTest, ACutTransferIsUnavailable) {
  handler_ = [](const ServerRequest&) {
    return ServerAnswer{.body = "0123456789", .cut_after = 4};
  };
  const absl::Status status = GetToSink().status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_EQ(received_, "0123");
  EXPECT_THAT(std::string(status.message()), HasSubstr("GET http://127.0.0.1"));
}

TEST_F(HttpClientTest, AStalledTransferEnds) {
  handler_ = [](const ServerRequest&) {
    return ServerAnswer{.body = "0123456789", .stall_after = 4};
  };
  MakeTimePass();
  const absl::Status status = GetToSink().status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("stalled"));
}

TEST_F(HttpClientTest, ASlowSinkIsNoStall) {
  handler_ = [](const ServerRequest&) {
    return ServerAnswer{.body = std::string(1 << 20, 'x')};
  };
  const auto answer = client().Send({"GET", server_.origin()},
                                    [&](const HttpAnswer&, absl::string_view) {
                                      clock_.Advance(absl::Hours(1));
                                      return absl::OkStatus();
                                    });
  EXPECT_TRUE(answer.ok()) << answer.status();
}

TEST_F(HttpClientTest, ACancelledTransferEnds) {
  handler_ = [](const ServerRequest&) {
    return ServerAnswer{.body = "0123456789", .stall_after = 4};
  };
  bool cancelled = false;
  options_.cancelled = [&] { return cancelled; };
  const auto answer = client().Send({"GET", server_.origin()},
                                    [&](const HttpAnswer&, absl::string_view) {
                                      cancelled = true;
                                      return absl::OkStatus();
                                    });
  EXPECT_EQ(answer.status().code(), Code::kCancelled);
}

TEST_F(HttpClientTest, ACleanupIsSentEvenIfCancelled) {
  options_.cancelled = [] { return true; };
  HttpRequest request{.method = "DELETE", .url = server_.origin()};
  EXPECT_EQ(client().Send(request).status().code(), Code::kCancelled);
  request.is_cleanup = true;
  EXPECT_TRUE(client().Send(request).ok());
}

TEST_F(HttpClientTest, ARefusedConnectionIsUnavailable) {
  std::string origin;
  {
    HttpServer closed([](const ServerRequest&) { return ServerAnswer(); });
    origin = closed.origin();
  }
  EXPECT_EQ(client().Send({"GET", origin}).status().code(), Code::kUnavailable);
}

TEST_F(HttpClientTest, AnyBytesAsAnAnswerAreReadWithoutACrash) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  Mutator mutator(seed);
  const std::vector<std::string> seeds = {
      "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nETag: \"a\"\r\n\r\nbody",
      "HTTP/1.1 206 Partial\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n"
      "0\r\nTrailer: x\r\n\r\n",
      "HTTP/1.1 302 Found\r\nLocation: https://127.0.0.1:1/a\r\n\r\n",
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 503 Busy\r\n\r\nno"};
  RawServer raw([&] { return mutator.Changed(seeds); });
  int ok_count = 0;
  for (int i = 0; i < 300; ++i) {
    ok_count +=
        client()
            .Send(
                {.method = "GET", .url = raw.url(), .follows_redirects = true},
                [](const HttpAnswer&, absl::string_view) {
                  return absl::OkStatus();
                })
            .ok();
  }
  EXPECT_GT(ok_count, 0);
}

// libcurl joined such a line with the last header of the request before, which
// was freed.
TEST_F(HttpClientTest, AFirstHeaderThatBeginsWithASpaceReadsNoFreedMemory) {
  int count = 0;
  RawServer raw([&]() -> std::string {
    const absl::string_view first =
        ++count % 2 == 1 ? "Server: a" : " folded: and longer than that";
    return absl::StrCat("HTTP/1.1 200 OK\r\n", first,
                        "\r\nContent-Length: 4\r\n\r\nbody");
  });
  for (int i = 0; i < 300; ++i) {
    const auto answer = client().Send({"GET", raw.url()});
    if (i % 2 == 0) {
      EXPECT_TRUE(answer.ok()) << answer.status();
    }
  }
}

TEST_F(HttpClientTest, APolicyRefusesTheAddressThatANameHas) {
  options_.dial_policy.emplace();
  for (const char* host : {"127.0.0.1", "localhost", "127.1", "[::1]"}) {
    const absl::Status status =
        client()
            .Send({"GET", absl::StrCat("http://", host, ":", server_.port())})
            .status();
    EXPECT_EQ(status.code(), Code::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--allow-data-host"));
  }
  EXPECT_EQ(server_.connection_count(), 0);
}

TEST_F(HttpClientTest, APolicyAllowsItsBlocksAndHosts) {
  options_.dial_policy.emplace(std::set{AddressBlock::kLoopback},
                               std::vector<std::string>{});
  EXPECT_TRUE(Get().ok());
  options_.dial_policy.emplace(std::set<AddressBlock>{},
                               std::vector<std::string>{"127.0.0.1"});
  client_ = nullptr;
  EXPECT_TRUE(Get().ok());
}

TEST_F(HttpClientTest, RefusesRequestsThatAreNoneOfHttp) {
  EXPECT_EQ(client().Send({"GET", "ftp://127.0.0.1/"}).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(client().Send({"GET", "http://example.com/"}).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(client()
                .Send({"GET", server_.origin(), {{"A", "b\r\nC: d"}}})
                .status()
                .code(),
            Code::kInvalidArgument);
  EXPECT_EQ(client()
                .Send({.method = "GET",
                       .url = server_.origin(),
                       .bearer_token = "a\nb"})
                .status()
                .code(),
            Code::kInvalidArgument);
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(HttpClientTest, RefusesWrongOptions) {
  const auto code = [](const HttpClientOptions& options) {
    return HttpClient::Create(options).status().code();
  };
  EXPECT_EQ(code({.ca_pem = "no certificate"}), Code::kInvalidArgument);
  EXPECT_EQ(code({.receive_bytes_per_second = 1}), Code::kInvalidArgument);
  EXPECT_EQ(code({.send_bytes_per_second = -1}), Code::kInvalidArgument);
  EXPECT_EQ(code({.send_bytes_per_second = HttpClient::kRateMin}), Code::kOk);
}

TEST_F(HttpClientTest, ARateStillMovesEveryByte) {
  options_.receive_bytes_per_second = 100 << 20;
  options_.send_bytes_per_second = 100 << 20;
  const std::string body(1 << 20, 'x');
  handler_ = [&](const ServerRequest&) { return ServerAnswer{.body = body}; };
  const auto answer = client().Send({"PUT", server_.origin(), {}, body});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->body, body);
  EXPECT_EQ(server_.requests().back().body, body);
}

// --- TLS, redirects, proxy
// ----------------------------------------------------

class HttpsClientTest : public HttpClientTest {
 protected:
  HttpsClientTest() {
    std::filesystem::create_directories(directory_);
    authority_ = std::make_unique<rpc::TestAuthority>(directory_);
    const rpc::TlsFiles files = authority_->Issue("server");
    secure_ = std::make_unique<HttpServer>(
        [this](const ServerRequest& request) {
          return secure_handler_(request);
        },
        &files);
    options_.ca_pem = *ReadFile(PosixFileSystem(), files.ca);
  }
  ~HttpsClientTest() override { std::filesystem::remove_all(directory_); }

  // Another name of the same server.
  std::string other_origin() const {
    return absl::StrCat("https://localhost:", secure_->port());
  }

  // The certificate of a host that only the proxy can look up.
  rpc::TlsFiles IssueFar() {
    rpc::CertificateSpec spec = rpc::TestAuthority::DefaultSpec("far");
    spec.hosts = {"far.invalid"};
    return authority_->Issue(spec);
  }

  // Follows redirects with a token.
  absl::StatusOr<HttpAnswer> Follow(const std::string& url) {
    return client().Send({.method = "GET",
                          .url = url,
                          .bearer_token = "secret",
                          .follows_redirects = true});
  }

  const std::string directory_ =
      JoinObjectName(::testing::TempDir(), RandomId());
  std::unique_ptr<rpc::TestAuthority> authority_;
  std::function<ServerAnswer(const ServerRequest&)> secure_handler_ =
      [](const ServerRequest&) { return ServerAnswer{.body = "secure"}; };
  std::unique_ptr<HttpServer> secure_;
};

TEST_F(HttpsClientTest, TrustsTheAuthorityThatIsGiven) {
  const auto answer = client().Send({"GET", secure_->origin()});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->body, "secure");
}

TEST_F(HttpsClientTest, AnUnknownAuthorityIsNotTriedAgain) {
  options_.ca_pem = "";
  const absl::Status status =
      client().Send({"GET", secure_->origin()}).status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("CA file"));
}

TEST_F(HttpsClientTest, TrustsNoOtherAuthorityIfAsked) {
  options_.trusts_only_ca_pem = true;
  EXPECT_TRUE(client().Send({"GET", secure_->origin()}).ok());
  options_.ca_pem = "";
  EXPECT_EQ(HttpClient::Create(options_).status().code(),
            Code::kInvalidArgument);
}

TEST_F(HttpsClientTest, ATokenGoesToItsOwnHostOnly) {
  secure_handler_ = [this](const ServerRequest& request) {
    if (request.target == "/end") return ServerAnswer{.body = "end"};
    const std::string to =
        request.target == "/same" ? secure_->origin() : other_origin();
    return ServerAnswer{302, {{"Location", to + "/end"}}, "moved"};
  };
  for (const bool is_same : {true, false}) {
    const auto answer =
        Follow(secure_->origin() + (is_same ? "/same" : "/other"));
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->body, "end");
    const auto requests = secure_->requests();
    const auto& first = requests.at(requests.size() - 2).headers;
    const auto& last = requests.back().headers;
    EXPECT_EQ(first.at("authorization"), "Bearer secret");
    EXPECT_EQ(last.count("authorization"), is_same ? 1u : 0u);
  }
}

TEST_F(HttpsClientTest, NoRedirectLeavesHttps) {
  secure_handler_ = [this](const ServerRequest&) {
    return ServerAnswer{302, {{"Location", server_.origin() + "/"}}, ""};
  };
  const absl::Status status = Follow(secure_->origin()).status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition) << status;
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(HttpsClientTest, APolicyJudgesEachRedirect) {
  options_.dial_policy.emplace(std::set<AddressBlock>{},
                               std::vector<std::string>{"localhost"});
  secure_handler_ = [this](const ServerRequest& request) {
    if (request.target == "/end") return ServerAnswer{.body = "end"};
    const std::string to =
        request.target == "/same" ? other_origin() : secure_->origin();
    return ServerAnswer{302, {{"Location", to + "/end"}}, "moved"};
  };
  EXPECT_EQ(Follow(other_origin() + "/same")->body, "end");
  const size_t request_count = secure_->requests().size();
  const absl::Status status = Follow(other_origin() + "/other").status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition) << status;
  EXPECT_EQ(secure_->requests().size(), request_count + 1);
}

TEST_F(HttpsClientTest, APolicyJudgesALiteralAddressBeforeTheProxyDoes) {
  ConnectProxy proxy;
  options_.proxy = ParseProxy(proxy.url()).value();
  options_.dial_policy.emplace();
  const absl::Status status =
      client().Send({"GET", "https://169.254.169.254/a"}).status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition) << status;
  EXPECT_EQ(proxy.tunnel_count(), 0);
}

TEST_F(HttpsClientTest, ALoopOfRedirectsEnds) {
  secure_handler_ = [this](const ServerRequest&) {
    return ServerAnswer{302, {{"Location", secure_->origin() + "/"}}, ""};
  };
  EXPECT_EQ(Follow(secure_->origin()).status().code(),
            Code::kFailedPrecondition);
  EXPECT_EQ(secure_->requests().size(), 6u);
}

TEST_F(HttpsClientTest, RedirectsAreFollowedOnlyIfAsked) {
  handler_ = [this](const ServerRequest&) {
    return ServerAnswer{307, {{"Location", secure_->origin() + "/"}}, ""};
  };
  EXPECT_EQ(Get()->code, 307);
  EXPECT_EQ(Follow(server_.origin())->body, "secure");
}

TEST_F(HttpsClientTest, EachRedirectIsDialledAsItsOwnHostIs) {
  const rpc::TlsFiles files = IssueFar();
  std::string far_origin;
  const auto to = [](const std::string& url) {
    return ServerAnswer{302, {{"Location", url}}, "moved"};
  };
  HttpServer far(
      [&](const ServerRequest& request) {
        if (request.target == "/end") return ServerAnswer{.body = "far"};
        return to(request.target == "/near" ? secure_->origin() + "/end"
                                            : "/near");
      },
      &files);
  far_origin = absl::StrCat("https://far.invalid:", far.port());
  secure_handler_ = [&](const ServerRequest& request) {
    return request.target == "/end" ? ServerAnswer{.body = "near"}
                                    : to(far_origin + "/end");
  };
  ConnectProxy proxy;
  options_.proxy = ParseProxy(proxy.url()).value();
  const auto near = Follow(far_origin + "/relative");
  ASSERT_TRUE(near.ok()) << near.status();
  EXPECT_EQ(near->body, "near");
  EXPECT_EQ(near->redirect_count, 2);
  EXPECT_EQ(proxy.tunnel_count(), 1);
  const auto back = Follow(secure_->origin() + "/far");
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->body, "far");
}

TEST_F(HttpsClientTest, ARedirectWithAnEndlessBodyEnds) {
  secure_handler_ = [this](const ServerRequest&) {
    return ServerAnswer{302,
                        {{"Location", secure_->origin() + "/"}},
                        std::string(4 << 20, 'x')};
  };
  EXPECT_EQ(Follow(secure_->origin()).status().code(), Code::kUnavailable);
}

TEST_F(HttpsClientTest, GoesThroughTheProxyUnlessLocal) {
  const rpc::TlsFiles files = IssueFar();
  HttpServer far(
      [](const ServerRequest&) { return ServerAnswer{.body = "secure"}; },
      &files);
  ConnectProxy proxy;
  options_.proxy = ParseProxy(proxy.url()).value();
  const auto answer = client().Send(
      {"GET", absl::StrCat("https://far.invalid:", far.port(), "/a")});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->body, "secure");
  EXPECT_EQ(proxy.tunnel_count(), 1);
  EXPECT_TRUE(
      client()
          .Send({.method = "GET", .url = secure_->origin(), .is_local = true})
          .ok());
  EXPECT_TRUE(client().Send({"GET", secure_->origin()}).ok());
  EXPECT_EQ(proxy.tunnel_count(), 1);
}

TEST_F(HttpsClientTest, ARefusalOfTheProxyNamesProxyAnswerAndTarget) {
  ConnectProxy proxy;
  options_.proxy = ParseProxy(proxy.url()).value();
  // Nothing listens at port 1.
  const absl::Status status =
      client().Send({"GET", "https://far.invalid:1/a?hidden"}).status();
  EXPECT_EQ(status, absl::UnavailableError(absl::StrCat(
                        "GET https://far.invalid:1/a: the proxy ",
                        options_.proxy.name(),
                        " answered 502 to CONNECT far.invalid:1")));
}

TEST_F(HttpsClientTest, AProxyWithAFaultFailsOnlyWhereItIsDialled) {
  options_.proxy.fault = "a socks proxy";
  EXPECT_EQ(
      client().Send({"GET", "https://far.invalid/a"}).status(),
      absl::InvalidArgumentError("GET https://far.invalid/a: a socks proxy"));
  EXPECT_TRUE(client().Send({"GET", secure_->origin()}).ok());
}

TEST_F(HttpsClientTest, AProxysFailureNamesNoPassword) {
  options_.proxy = ParseProxy("http://me:hidden@127.0.0.1:1").value();
  const absl::Status status =
      client().Send({"GET", "https://far.invalid/a?hidden"}).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("hidden")));
}

}  // namespace
}  // namespace atl
