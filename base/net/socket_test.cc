#include "base/net/socket.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/time/clock.h"
#include "gtest/gtest.h"

namespace atl::net {
namespace {

WaitLimits Soon() { return {SystemClock().Now() + absl::Milliseconds(20), -1}; }
WaitLimits Long() { return {SystemClock().Now() + absl::Minutes(2), -1}; }

class SocketTest : public ::testing::Test {
 protected:
  SocketTest() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    ours_ = UniqueFd(fds[0]);
    peers_ = UniqueFd(fds[1]);
  }

  UniqueFd ours_;
  UniqueFd peers_;
};

TEST_F(SocketTest, WaitsForBytes) {
  std::thread peer([&] { send(peers_.get(), "x", 1, MSG_NOSIGNAL); });
  EXPECT_TRUE(WaitForSocket(ours_.get(), POLLIN, Long()).ok());
  peer.join();
}

TEST_F(SocketTest, AWaitEndsAtItsDeadline) {
  EXPECT_EQ(WaitForSocket(ours_.get(), POLLIN, Soon()).code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(SocketTest, AfterTheDeadlineEvenReadyBytesAreLate) {
  send(peers_.get(), "x", 1, MSG_NOSIGNAL);
  EXPECT_EQ(
      WaitForSocket(ours_.get(), POLLIN, {SystemClock().Now(), -1}).code(),
      absl::StatusCode::kDeadlineExceeded);
}

TEST_F(SocketTest, AWakerStopsAWait) {
  const UniqueFd stop = MakeWaker().value();
  WaitLimits limits = Long();
  limits.stop_fd = stop.get();
  std::thread stopper([&] { SetWaker(stop.get()); });
  EXPECT_EQ(WaitForSocket(ours_.get(), POLLIN, limits).code(),
            absl::StatusCode::kCancelled);
  stopper.join();
}

TEST(DialTest, ReachesAListener) {
  const UniqueFd listener = Listen({"127.0.0.1", 0}).value();
  const HostPort address = LocalAddress(listener.get()).value();
  EXPECT_EQ(address.host, "127.0.0.1");
  EXPECT_GT(address.port, 0);
  EXPECT_TRUE(Dial(address, Long()).ok());
  // It has ::1 as well, where nobody listens.
  EXPECT_TRUE(Dial({"localhost", address.port}, Long()).ok());
}

TEST(DialTest, ANameForLoopbackLeadsWhereThatNameListens) {
  const UniqueFd listener = Listen({"localhost", 0}).value();
  const int port = LocalAddress(listener.get()).value().port;
  EXPECT_TRUE(Dial({"localhost", port}, Long()).ok());
  const auto dotted = ParseHostPort(absl::StrCat("localhost.:", port));
  EXPECT_TRUE(Dial(dotted.value(), Long()).ok());
}

TEST(DialTest, SaysThatNobodyListens) {
  HostPort address;
  {
    const UniqueFd listener = Listen({"127.0.0.1", 0}).value();
    address = LocalAddress(listener.get()).value();
  }
  const absl::Status status = Dial(address, Long()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(status.message(), "refused")) << status;
}

TEST(DialTest, FindsTheAddressesOfAHost) {
  EXPECT_EQ(FindAddresses({"127.0.0.1", 1}, Long()).value(),
            std::vector<std::string>{"127.0.0.1"});
  EXPECT_FALSE(FindAddresses({"localhost", 1}, Long())->empty());
  EXPECT_EQ(FindAddresses({"a..b", 1}, Long()).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(DialTest, SaysThatAHostDoesNotExist) {
  const absl::Status status = Dial({"a..b", 1}, Long()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "a..b")) << status;
}

TEST(DialTest, AListenerThatDoesNotAcceptCostsTheDeadlineAtMost) {
  // A full backlog drops further connections.
  const UniqueFd listener = Listen({"127.0.0.1", 0}).value();
  listen(listener.get(), 0);
  const HostPort address = LocalAddress(listener.get()).value();
  std::vector<UniqueFd> taken;
  absl::Status status;
  while (status.ok() && taken.size() < 8) {
    absl::StatusOr<UniqueFd> fd = Dial(address, Soon());
    status = fd.status();
    if (fd.ok()) taken.push_back(*std::move(fd));
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
}

TEST(AcceptTest, TellsWhoConnected) {
  const UniqueFd listener = Listen({"127.0.0.1", 0}).value();
  EXPECT_EQ(Accept(listener.get()).status().code(),
            absl::StatusCode::kUnavailable);
  const UniqueFd dialled =
      Dial(LocalAddress(listener.get()).value(), Long()).value();
  ASSERT_TRUE(WaitForSocket(listener.get(), POLLIN, Long()).ok());
  sockaddr_storage peer = {};
  const UniqueFd accepted = Accept(listener.get(), &peer).value();
  EXPECT_EQ(peer.ss_family, AF_INET);
  const HostPort from = PeerAddress(accepted.get()).value();
  const HostPort own = LocalAddress(dialled.get()).value();
  EXPECT_EQ(from.host, own.host);
  EXPECT_EQ(from.port, own.port);
}

TEST(AcceptTest, WithoutADescriptorTheConnectionWaits) {
  const UniqueFd listener = Listen({"127.0.0.1", 0}).value();
  const UniqueFd dialled =
      Dial(LocalAddress(listener.get()).value(), Long()).value();
  ASSERT_TRUE(WaitForSocket(listener.get(), POLLIN, Long()).ok());
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const absl::Status status = Accept(listener.get()).status();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_TRUE(Accept(listener.get()).ok());
}

TEST(ListenTest, SaysThatThePortIsTaken) {
  const UniqueFd listener = Listen({"127.0.0.1", 0}).value();
  const absl::Status status =
      Listen(LocalAddress(listener.get()).value()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(status.message(), "ss -ltnp")) << status;
}

}  // namespace
}  // namespace atl::net
