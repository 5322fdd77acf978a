#include "base/net/http_proxy.h"

#include <poll.h>
#include <sys/socket.h>

#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/time/clock.h"
#include "gtest/gtest.h"

namespace atl::net {
namespace {

WaitLimits Long() { return {SystemClock().Now() + absl::Minutes(2), -1}; }

// Dials through a proxy that sends `answer` to the request, and closes unless
// the answer is whole.
class HttpProxyTest : public ::testing::Test {
 protected:
  absl::StatusOr<UniqueFd> DialThrough(const std::string& answer) {
    const UniqueFd listening = Listen({"127.0.0.1", 0}).value();
    proxy_.address = LocalAddress(listening.get()).value();
    std::thread proxy([&] {
      EXPECT_TRUE(WaitForSocket(listening.get(), POLLIN, Long()).ok());
      proxy_side_ = UniqueFd(accept(listening.get(), nullptr, nullptr));
      while (!absl::StrContains(request_, "\r\n\r\n")) {
        char bytes[256];
        const ssize_t count = recv(proxy_side_.get(), bytes, sizeof(bytes), 0);
        if (count <= 0) break;
        request_.append(bytes, static_cast<size_t>(count));
      }
      send(proxy_side_.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
      if (!absl::StrContains(answer, "\r\n\r\n")) proxy_side_ = UniqueFd();
    });
    absl::StatusOr<UniqueFd> fd =
        Dial({"gate.example.org", 443}, proxy_, Long());
    proxy.join();
    return fd;
  }

  Proxy proxy_;
  std::string request_;
  UniqueFd proxy_side_;
};

TEST_F(HttpProxyTest, AsksForTheTargetAndHandsOverTheConnection) {
  const UniqueFd fd =
      DialThrough("HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n")
          .value();
  EXPECT_EQ(request_,
            "CONNECT gate.example.org:443 HTTP/1.1\r\n"
            "Host: gate.example.org:443\r\n\r\n");
  send(fd.get(), "x", 1, MSG_NOSIGNAL);
  char byte = 0;
  EXPECT_EQ(recv(proxy_side_.get(), &byte, 1, 0), 1);
  EXPECT_EQ(byte, 'x');
}

TEST_F(HttpProxyTest, AHostThatItDoesNotServeIsDialledDirectly) {
  const UniqueFd listening = Listen({"127.0.0.1", 0}).value();
  proxy_.fault = "nobody may use it";
  EXPECT_TRUE(Dial(LocalAddress(listening.get()).value(), proxy_, Long()).ok());
}

TEST_F(HttpProxyTest, SendsTheCredentials) {
  proxy_.credentials = "me:hidden";
  EXPECT_TRUE(DialThrough("HTTP/1.1 200 OK\r\n\r\n").ok());
  EXPECT_EQ(request_,
            "CONNECT gate.example.org:443 HTTP/1.1\r\n"
            "Host: gate.example.org:443\r\n"
            "Proxy-Authorization: Basic bWU6aGlkZGVu\r\n\r\n");
}

TEST_F(HttpProxyTest, ARefusalNamesProxyAnswerAndTarget) {
  const absl::Status refused =
      DialThrough("HTTP/1.1 403 Forb\x1b[2Jidden\r\n\r\n").status();
  EXPECT_EQ(refused, absl::UnavailableError(absl::StrCat(
                         "the proxy ", proxy_.name(),
                         " answered 403 to CONNECT gate.example.org:443")));
}

TEST_F(HttpProxyTest, RefusesWhatIsNoProxy) {
  for (const std::string& answer :
       {std::string(), std::string("HTTP/1.1 200 OK\r\n"),
        std::string("SSH-2.0\r\n\r\n"), std::string(20'000, 'x')}) {
    EXPECT_EQ(DialThrough(answer).status().code(),
              absl::StatusCode::kUnavailable);
  }
}

}  // namespace
}  // namespace atl::net
