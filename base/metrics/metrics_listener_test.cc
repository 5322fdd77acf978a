#include "base/metrics/metrics_listener.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "base/io/unique_fd.h"
#include "base/sync/testing/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/collectable.h"

namespace atl {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class MetricsListenerTest : public ::testing::Test {
 protected:
  std::unique_ptr<MetricsListener> Start(const std::string& address) {
    auto listener = MetricsListener::Start({address, ""}, metrics_);
    EXPECT_TRUE(listener.ok()) << listener.status();
    return listener.ok() ? *std::move(listener) : nullptr;
  }

  UniqueFd Dial() {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval minute = {60, 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &minute, sizeof(minute));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(listener_->port()));
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address),
                      sizeof(address)),
              0);
    return fd;
  }

  // Sends `bytes`. Returns the listener's answer, up to its close of the
  // connection.
  std::string Exchange(const std::string& bytes) {
    const UniqueFd fd = Dial();
    send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    std::string answer;
    char part[4096];
    for (;;) {
      const ssize_t size = recv(fd.get(), part, sizeof(part), 0);
      if (size <= 0) return answer;
      answer.append(part, static_cast<size_t>(size));
    }
  }

  std::string Ask(const std::string& method, const std::string& path,
                  const std::string& headers = "") {
    return Exchange(absl::StrCat(
        method, " ", path, " HTTP/1.1\r\nHost: test\r\n", headers, "\r\n"));
  }

  Metrics metrics_;
  const std::unique_ptr<MetricsListener> listener_ = Start("127.0.0.1:0");
};

// --- Answers -----------------------------------------------------------------

TEST_F(MetricsListenerTest, LivesBeforeItIsReady) {
  for (const char* path : {"/livez", "/healthz"}) {
    const std::string answer = Ask("GET", path);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 "));
    EXPECT_THAT(answer, EndsWith("\r\n\r\nok\n"));
  }
  const std::string answer = Ask("GET", "/readyz");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(answer, EndsWith("\r\n\r\nstarting\n"));
}

TEST_F(MetricsListenerTest, IsReadyWhenTold) {
  metrics_.SetReady(absl::OkStatus());
  EXPECT_THAT(Ask("GET", "/readyz"), StartsWith("HTTP/1.1 200 "));
  metrics_.SetReady(absl::UnavailableError("reads shard 3 of 7"));
  const std::string answer = Ask("GET", "/readyz");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(answer, EndsWith("\r\n\r\nreads shard 3 of 7\n"));
  EXPECT_THAT(Ask("GET", "/livez"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(MetricsListenerTest, ShowsMetricsInTheFormatThatAcceptPrefers) {
  const std::string text = Ask("GET", "/metrics");
  EXPECT_THAT(text, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(text, HasSubstr("Content-Type: text/plain; version=0.0.4;"));
  EXPECT_THAT(text, HasSubstr("\natoll_ready 0\n"));
  EXPECT_THAT(text, Not(HasSubstr("# EOF")));
  const std::string open_metrics =
      Ask("GET", "/metrics", "Accept: application/openmetrics-text\r\n");
  EXPECT_THAT(open_metrics,
              HasSubstr("Content-Type: application/openmetrics-text;"));
  EXPECT_THAT(open_metrics, EndsWith("# EOF\n"));
}

TEST_F(MetricsListenerTest, HeadIsGetWithoutItsBody) {
  const std::string answer = Ask("HEAD", "/metrics");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(answer, HasSubstr("Content-Length: "));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n"));
}

TEST_F(MetricsListenerTest, AnyOtherPathNamesTheRightOnes) {
  const std::string answer = Ask("GET", "/");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 404 "));
  for (const char* path : {"/metrics", "/livez", "/readyz", "/healthz"}) {
    EXPECT_THAT(answer, HasSubstr(path));
    EXPECT_THAT(Ask("GET", absl::StrCat(path, "/")),
                StartsWith("HTTP/1.1 404 "));
  }
}

// --- Refusals ----------------------------------------------------------------

TEST_F(MetricsListenerTest, AnyOtherMethodIsRefused) {
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "get", "X"}) {
    const std::string answer = Ask(method, "/metrics");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 405 "));
    EXPECT_THAT(answer, HasSubstr("\r\nAllow: GET, HEAD\r\n"));
  }
}

TEST_F(MetricsListenerTest, ABodyIsRefusedUnread) {
  EXPECT_THAT(Ask("POST", "/metrics", "Content-Length: 1073741824\r\n"),
              StartsWith("HTTP/1.1 405 "));
  for (const char* header :
       {"Content-Length: 1073741824\r\n", "Transfer-Encoding: chunked\r\n",
        "Content-Length: 9\r\nExpect: 100-continue\r\n"}) {
    EXPECT_THAT(Ask("GET", "/metrics", header), StartsWith("HTTP/1.1 413 "));
  }
  EXPECT_THAT(Ask("GET", "/livez", "Content-Length: 0\r\n"),
              StartsWith("HTTP/1.1 200 "));
}

TEST_F(MetricsListenerTest, HeadersThatAreTooLongAreRefused) {
  EXPECT_THAT(Ask("GET", "/livez",
                  absl::StrCat("X: ", std::string(20000, 'x'), "\r\n")),
              Not(HasSubstr(" 200 ")));
  EXPECT_THAT(Ask("GET", absl::StrCat("/", std::string(20000, 'x'))),
              Not(HasSubstr(" 200 ")));
  EXPECT_THAT(Ask("GET", "/livez"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(MetricsListenerTest, AConnectionServesOneRequest) {
  const std::string request = "GET /livez HTTP/1.1\r\nHost: test\r\n\r\n";
  const std::string answer = Exchange(absl::StrCat(request, request, request));
  EXPECT_THAT(answer, HasSubstr("\r\nConnection: close\r\n"));
  const std::vector<std::string> parts = absl::StrSplit(answer, "HTTP/1.1 200");
  EXPECT_LE(parts.size(), 2u);
}

TEST_F(MetricsListenerTest, WhatIsNoHttpIsRefused) {
  for (const char* bytes :
       {"hello\r\n\r\n", "GET\r\n\r\n", "\x16\x03\x01 \r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"}) {
    EXPECT_THAT(Exchange(bytes), Not(HasSubstr(" 200 ")));
  }
  EXPECT_THAT(Ask("GET", "/livez"), StartsWith("HTTP/1.1 200 "));
}

// --- Liveness ----------------------------------------------------------------

TEST_F(MetricsListenerTest, StrangersKeepNoProbeOut) {
  const std::string begun = "GET /metrics HTTP/1.1\r\n";
  std::vector<UniqueFd> held;
  for (int i = 0; i < 300; ++i) {
    held.push_back(Dial());
    send(held.back().get(), begun.data(), begun.size(), MSG_NOSIGNAL);
  }
  EXPECT_THAT(Ask("GET", "/livez"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Ask("HEAD", "/readyz"), StartsWith("HTTP/1.1 503 "));
}

// Holds up scrapes until it is released.
class Stuck : public prometheus::Collectable {
 public:
  std::vector<prometheus::MetricFamily> Collect() const override {
    is_asked_.Notify();
    release_.WaitWithTimeout(absl::Minutes(1));
    return {};
  }
  bool AwaitScrape() {
    return is_asked_.WaitWithTimeout(absl::Minutes(1));
  }
  void Release() { release_.Notify(); }

 private:
  mutable Notification is_asked_;
  mutable Notification release_;
};

TEST_F(MetricsListenerTest, AScrapeThatWaitsHoldsUpNoProbe) {
  const auto stuck = std::make_shared<Stuck>();
  metrics_.Add(stuck);
  std::thread scrape([this] {
    EXPECT_THAT(Ask("GET", "/metrics"), StartsWith("HTTP/1.1 200 "));
  });
  EXPECT_TRUE(stuck->AwaitScrape());
  for (int i = 0; i < 4; ++i) {
    EXPECT_THAT(Ask("GET", "/livez"), StartsWith("HTTP/1.1 200 "));
  }
  stuck->Release();
  scrape.join();
}

// --- Addresses ---------------------------------------------------------------

TEST_F(MetricsListenerTest, NoAddressIsNoListener) {
  const auto listener = MetricsListener::Start({}, metrics_);
  ASSERT_TRUE(listener.ok());
  EXPECT_EQ(*listener, nullptr);
}

TEST_F(MetricsListenerTest, APortAloneMeansLoopback) {
  for (const char* address : {"0", ":0", "127.0.0.1:0"}) {
    const auto listener = Start(address);
    ASSERT_NE(listener, nullptr);
    EXPECT_GT(listener->port(), 0);
    EXPECT_EQ(listener->address(),
              absl::StrCat("127.0.0.1:", listener->port()));
  }
}

TEST_F(MetricsListenerTest, TakesNamesAndIpv6) {
  const auto named = Start("localhost:0");
  ASSERT_NE(named, nullptr);
  EXPECT_EQ(named->address(), absl::StrCat("localhost:", named->port()));
  // A machine may have no IPv6; the address is understood in any case.
  const auto v6 = MetricsListener::Start({"[::1]:0", ""}, metrics_);
  if (v6.ok()) {
    EXPECT_EQ((*v6)->address(), absl::StrCat("[::1]:", (*v6)->port()));
  } else {
    EXPECT_EQ(v6.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(v6.status().message()), HasSubstr("[::1]:0"));
  }
}

TEST_F(MetricsListenerTest, AMalformedAddressNamesTheFlag) {
  for (const char* address : {"host", "a:b", "127.0.0.1:70000", "::1:7490",
                              "127.0.0.1:", "http://127.0.0.1:1"}) {
    const absl::Status status =
        MetricsListener::Start({address, ""}, metrics_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--metrics-listen"));
    EXPECT_THAT(std::string(status.message()), HasSubstr(address));
  }
}

TEST_F(MetricsListenerTest, SaysThatAPortIsTaken) {
  const absl::Status status =
      MetricsListener::Start({listener_->address(), ""}, metrics_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(listener_->address()));
  EXPECT_THAT(std::string(status.message()), HasSubstr("in use"));
}

TEST_F(MetricsListenerTest, WritesItsPortToTheFile) {
  const std::string path = ::testing::TempDir() + "/metrics_port";
  const auto listener = MetricsListener::Start({"0", path}, metrics_);
  ASSERT_TRUE(listener.ok()) << listener.status();
  std::ifstream file(path);
  int port = 0;
  file >> port;
  EXPECT_EQ(port, (*listener)->port());
}

}  // namespace
}  // namespace atl
