#include "base/net/port_watch.h"

#include <poll.h>
#include <sys/socket.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/sync/mutex.h"
#include "base/time/clock.h"
#include "gtest/gtest.h"

namespace atl::net {
namespace {

WaitLimits Long() { return {SystemClock().Now() + absl::Minutes(2), -1}; }

class PortWatchTest : public ::testing::Test {
 protected:
  // Accepts a connection, and takes the first byte that comes.
  UniqueFd Accept(char& byte) const {
    EXPECT_TRUE(WaitForSocket(listening_.get(), POLLIN, Long()).ok());
    UniqueFd fd = net::Accept(listening_.get()).value();
    EXPECT_TRUE(WaitForSocket(fd.get(), POLLIN, Long()).ok());
    EXPECT_EQ(recv(fd.get(), &byte, 1, 0), 1);
    return fd;
  }

  // Checks the port, whose peer answers, and returns the first byte sent to it.
  char HelloOf(bool has_tls) const {
    char byte = 0;
    std::thread peer([&] {
      const UniqueFd fd = Accept(byte);
      EXPECT_EQ(send(fd.get(), "x", 1, MSG_NOSIGNAL), 1);
    });
    const absl::Status status = CheckPort(address_, has_tls, Long());
    EXPECT_TRUE(status.ok()) << status;
    peer.join();
    return byte;
  }

  const UniqueFd listening_ = Listen({"127.0.0.1", 0}).value();
  const HostPort address_ = LocalAddress(listening_.get()).value();
};

TEST_F(PortWatchTest, SpeaksThePortsProtocol) {
  EXPECT_EQ(HelloOf(false), 'P');
  EXPECT_EQ(HelloOf(true), '\x16');
}

TEST_F(PortWatchTest, APortThatAcceptsNothingDoesNotAnswer) {
  // The kernel connects it nevertheless.
  EXPECT_EQ(CheckPort(address_, false,
                      {SystemClock().Now() + absl::Milliseconds(20), -1})
                .code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(PortWatchTest, AConnectionThatIsClosedIsNoAnswer) {
  std::thread peer([&] {
    char byte = 0;
    (void)Accept(byte);
  });
  EXPECT_FALSE(CheckPort(address_, false, Long()).ok());
  peer.join();
}

TEST_F(PortWatchTest, ReportsChanges) {
  Mutex mutex;
  CondVar changed;
  std::vector<absl::Status> seen;
  const auto await = [&](size_t count) {
    MutexLock lock(&mutex);
    while (seen.size() < count) changed.Wait(&mutex);
    return seen[count - 1];
  };
  const PortWatch watch({.addresses = {address_},
                         .period = absl::Milliseconds(1),
                         .answer_max = absl::Milliseconds(100),
                         .on_change = [&](const absl::Status& status) {
                           MutexLock lock(&mutex);
                           seen.push_back(status);
                           changed.SignalAll();
                         }});
  const absl::Status fault = await(1);
  EXPECT_NE(fault.message().find(std::to_string(address_.port)),
            std::string::npos)
      << fault;
  const UniqueFd stop = MakeWaker().value();
  std::thread peer([&] {
    std::vector<UniqueFd> open;
    while (WaitForSocket(listening_.get(), POLLIN,
                         {SystemClock().Now() + absl::Minutes(2), stop.get()})
               .ok()) {
      open.push_back(net::Accept(listening_.get()).value());
      send(open.back().get(), "x", 1, MSG_NOSIGNAL);
    }
  });
  EXPECT_TRUE(await(2).ok());
  SetWaker(stop.get());
  peer.join();
}

}  // namespace
}  // namespace atl::net
