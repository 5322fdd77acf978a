#include "base/net/bounded_listener.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/host_port/network.h"
#include "base/net/socket.h"
#include "base/sync/mutex.h"
#include "base/time/clock.h"
#include "gtest/gtest.h"

namespace atl::net {
namespace {

WaitLimits Long() { return {SystemClock().Now() + absl::Minutes(2), -1}; }

// The connections that a listener hands over.
class Owner {
 public:
  BoundedListener::Serve serve() {
    return [this](UniqueFd fd, const BoundedListener::Connection& connection) {
      MutexLock lock(&mutex_);
      served_.emplace_back(std::move(fd), connection);
      changed_.SignalAll();
    };
  }

  // Waits for one, in the order of their first bytes.
  std::pair<UniqueFd, BoundedListener::Connection> Take() {
    MutexLock lock(&mutex_);
    while (served_.size() == taken_) changed_.Wait(&mutex_);
    return std::move(served_[taken_++]);
  }

  // All that came so far.
  size_t count() {
    MutexLock lock(&mutex_);
    return served_.size();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::pair<UniqueFd, BoundedListener::Connection>> served_
      ABSL_GUARDED_BY(mutex_);
  size_t taken_ ABSL_GUARDED_BY(mutex_) = 0;
};

class BoundedListenerTest : public ::testing::Test {
 protected:
  void Start(const Places::Limits& limits,
             absl::Duration first_bytes_max = absl::Minutes(2)) {
    BoundedListener::Spec spec;
    spec.address = {"127.0.0.1", 0};
    spec.limits = limits;
    spec.first_bytes_max = first_bytes_max;
    listener_ = BoundedListener::Listen(spec).value();
    listener_->Run(owner_.serve());
  }

  UniqueFd Dial() {
    return net::Dial(listener_->address(), Long()).value();
  }

  UniqueFd DialAndSend() {
    UniqueFd fd = Dial();
    EXPECT_EQ(send(fd.get(), "x", 1, MSG_NOSIGNAL), 1);
    return fd;
  }

  // Waits until the peer reads the connection's end.
  static void AwaitEnd(const UniqueFd& fd) {
    ASSERT_TRUE(WaitForSocket(fd.get(), POLLIN, Long()).ok());
    char byte;
    EXPECT_LE(recv(fd.get(), &byte, 1, 0), 0);
  }

  void AwaitCount(int count) {
    while (listener_->count() != count) std::this_thread::yield();
  }

  Owner owner_;
  std::unique_ptr<BoundedListener> listener_;
};

TEST_F(BoundedListenerTest, HandsOverWhatHasSentSomething) {
  Start({});
  const UniqueFd silent = Dial();
  const UniqueFd client = DialAndSend();
  const auto [fd, connection] = owner_.Take();
  char byte;
  EXPECT_EQ(recv(fd.get(), &byte, 1, 0), 1);
  EXPECT_EQ(byte, 'x');
  EXPECT_NE(fcntl(fd.get(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_NE(fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, 0);
  int is_sent_at_once = 0;
  socklen_t size = sizeof(is_sent_at_once);
  getsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &is_sent_at_once, &size);
  EXPECT_NE(is_sent_at_once, 0);
  AwaitCount(2);
}

TEST_F(BoundedListenerTest, ClosesWhatSendsNothing) {
  Start({}, absl::Milliseconds(10));
  AwaitEnd(Dial());
  AwaitCount(0);
  EXPECT_EQ(listener_->shut_count(), 1);
}

TEST_F(BoundedListenerTest, ClosesWhatIsTooOld) {
  BoundedListener::Spec spec;
  spec.address = {"127.0.0.1", 0};
  spec.first_bytes_max = absl::Minutes(2);
  spec.age_max = absl::Milliseconds(50);
  listener_ = BoundedListener::Listen(spec).value();
  listener_->Run(owner_.serve());
  const UniqueFd client = DialAndSend();
  const auto served = owner_.Take();
  AwaitEnd(client);
  AwaitEnd(Dial());
  AwaitCount(0);
  EXPECT_FALSE(listener_->Has(served.second.id));
}

TEST_F(BoundedListenerTest, SeesTheEndThatAnOwnerDoesNotReport) {
  Start({});
  const UniqueFd client = DialAndSend();
  const auto [fd, connection] = owner_.Take();
  AwaitCount(1);
  shutdown(fd.get(), SHUT_RDWR);
  AwaitCount(0);
  AwaitEnd(client);
  EXPECT_EQ(listener_->shut_count(), 0);
}

TEST_F(BoundedListenerTest, AnOwnerMayReportTheEnd) {
  Start({});
  const UniqueFd client = DialAndSend();
  {
    const auto [fd, connection] = owner_.Take();
    listener_->End(connection.id);
  }
  AwaitEnd(client);
  EXPECT_EQ(listener_->count(), 0);
}

TEST_F(BoundedListenerTest, WhilePausedConnectionsWait) {
  Start({});
  const UniqueFd before = DialAndSend();
  const auto served = owner_.Take();
  const UniqueFd silent = Dial();
  AwaitCount(2);
  listener_->SetPaused(true);
  EXPECT_EQ(send(silent.get(), "x", 1, MSG_NOSIGNAL), 1);
  const UniqueFd late = DialAndSend();
  // The loop still sees the end of one that was handed over.
  shutdown(served.first.get(), SHUT_RDWR);
  AwaitCount(1);
  AwaitEnd(before);
  EXPECT_EQ(owner_.count(), 1u);
  listener_->SetPaused(false);
  owner_.Take();
  owner_.Take();
  EXPECT_EQ(listener_->count(), 2);
}

TEST_F(BoundedListenerTest, APausedListenerClosesWhatIsSilentAndStops) {
  Start({}, absl::Milliseconds(200));
  const UniqueFd silent = Dial();
  while (listener_->count() + listener_->shut_count() == 0) {
    std::this_thread::yield();
  }
  listener_->SetPaused(true);
  AwaitEnd(silent);
  const UniqueFd client = DialAndSend();
  listener_->Stop();
  AwaitEnd(client);
}

// Connections that the listener holds.
class HeldConnectionTest : public BoundedListenerTest {
 protected:
  HeldConnectionTest() {
    Start({});
    client_ = DialAndSend();
    served_ = owner_.Take();
    Read();
  }

  void Hold(absl::Duration time) {
    listener_->Hold(
        ToPeerText(reinterpret_cast<const sockaddr&>(served_.second.address)),
        time);
  }
  void Send(size_t bytes = 1) {
    const std::string some(bytes, 'x');
    ASSERT_EQ(send(client_.get(), some.data(), bytes, MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes));
  }
  // A poll would tell its owner.
  bool IsReadable() {
    pollfd poll_fd = {served_.first.get(), POLLIN, 0};
    return poll(&poll_fd, 1, 0) > 0;
  }
  void Read() {
    char byte;
    ASSERT_EQ(recv(served_.first.get(), &byte, 1, 0), 1);
  }
  void AwaitReadable() {
    ASSERT_TRUE(WaitForSocket(served_.first.get(), POLLIN, Long()).ok());
  }

  UniqueFd client_;
  std::pair<UniqueFd, BoundedListener::Connection> served_;
};

TEST_F(HeldConnectionTest, ItsOwnerIsToldOfBytesWhenTheHoldEnds) {
  Hold(absl::Hours(1));
  Send();
  char byte;
  while (recv(served_.first.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 1) {
    std::this_thread::yield();
  }
  EXPECT_FALSE(IsReadable());
  Hold(absl::ZeroDuration());  // It is held already.
  EXPECT_FALSE(IsReadable());
  listener_->Stop();
  EXPECT_TRUE(IsReadable());
  Hold(absl::Hours(1));
  EXPECT_TRUE(IsReadable());
}

TEST_F(HeldConnectionTest, AHoldEndsByItself) {
  for (int i = 0; i < 3; ++i) {
    Hold(absl::Milliseconds(1));
    Send();
    AwaitReadable();
    Read();
  }
}

TEST_F(HeldConnectionTest, AnEarlierHoldEndsBeforeALongOne) {
  const UniqueFd other = DialAndSend();
  const auto other_served = owner_.Take();
  listener_->Hold(ToPeerText(reinterpret_cast<const sockaddr&>(
                      other_served.second.address)),
                  absl::Hours(1));
  Hold(absl::Milliseconds(1));
  Send();
  AwaitReadable();
}

TEST_F(HeldConnectionTest, ItsOwnerIsToldOfManyBytes) {
  Hold(absl::Hours(1));
  Send(64 << 10);
  AwaitReadable();
}

TEST_F(HeldConnectionTest, ItsOwnerIsToldOfItsEnd) {
  Hold(absl::Hours(1));
  client_ = UniqueFd();
  AwaitReadable();
}

TEST_F(BoundedListenerTest, ANewConnectionEndsTheOldestStranger) {
  Start({.count_max = 4, .stranger_max = 2});
  const UniqueFd first = DialAndSend();
  const auto first_served = owner_.Take();
  const UniqueFd second = DialAndSend();
  const auto second_served = owner_.Take();
  const UniqueFd third = DialAndSend();
  const auto third_served = owner_.Take();
  AwaitEnd(first);
  AwaitCount(2);
  EXPECT_EQ(listener_->shut_count(), 1);
}

TEST_F(BoundedListenerTest, AConnectionOfLoopbackEndsNoOtherOfItsAddress) {
  Start({.stranger_max = 8, .address_stranger_max = 1});
  std::vector<UniqueFd> clients;
  std::vector<std::pair<UniqueFd, BoundedListener::Connection>> served;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(DialAndSend());
    served.push_back(owner_.Take());
  }
  EXPECT_EQ(listener_->count(), 4);
  EXPECT_EQ(listener_->shut_count(), 0);
}

TEST(IsExemptTest, LoopbackAndTrustedProxiesAre) {
  const std::vector<Network> proxies = {*ParseNetwork("10.1.0.0/16"),
                                        *ParseNetwork("2001:db8::/32")};
  const auto is_exempt = [&](const std::string& address) {
    return IsExempt(ParseAddressBytes(address).value(), proxies);
  };
  for (const char* address :
       {"127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "10.1.2.3",
        "::ffff:10.1.2.3", "2001:db8::1"}) {
    EXPECT_TRUE(is_exempt(address)) << address;
  }
  for (const char* address :
       {"10.2.0.1", "128.0.0.1", "::2", "2001:db9::1", "0.0.0.0"}) {
    EXPECT_FALSE(is_exempt(address)) << address;
  }
  EXPECT_FALSE(IsExempt("\x0a\x01\x02\x03", {}));
}

TEST_F(BoundedListenerTest, AProvenConnectionStaysUntilItsNameIsShut) {
  Start({.count_max = 4, .stranger_max = 1});
  const UniqueFd proven = DialAndSend();
  const auto served = owner_.Take();
  listener_->Prove(
      ToPeerText(reinterpret_cast<const sockaddr&>(served.second.address)),
      "island a");
  for (int i = 0; i < 8; ++i) {
    const UniqueFd other = DialAndSend();
    const auto other_served = owner_.Take();
  }
  char byte;
  EXPECT_EQ(recv(proven.get(), &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
  listener_->Shut("island a");
  AwaitEnd(proven);
}

TEST_F(BoundedListenerTest, TheOwnerOfAShutConnectionReadsNothingThatWaited) {
  Start({});
  const UniqueFd client = DialAndSend();
  const auto served = owner_.Take();
  listener_->Prove(served.second.id, "island a");
  listener_->Shut("island a");
  char byte;
  EXPECT_LE(recv(served.first.get(), &byte, 1, 0), 0);
  AwaitEnd(client);
}

TEST_F(BoundedListenerTest, OfStrangersThoseThatHaveSentMuchAreShut) {
  Start({});
  const UniqueFd few = DialAndSend(), many = DialAndSend(),
                 proven = DialAndSend();
  std::vector<std::pair<UniqueFd, BoundedListener::Connection>> served;
  for (int i = 0; i < 3; ++i) served.push_back(owner_.Take());
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  getsockname(proven.get(), reinterpret_cast<sockaddr*>(&address), &size);
  listener_->Prove(ToPeerText(reinterpret_cast<const sockaddr&>(address)),
                   "island a");
  const std::string more(99, 'x');
  for (const UniqueFd* fd : {&many, &proven}) {
    ASSERT_EQ(send(fd->get(), more.data(), more.size(), MSG_NOSIGNAL), 99);
  }
  listener_->ShutStrangers(100);
  AwaitEnd(many);
  AwaitCount(2);
  listener_->ShutStrangers(0);
  AwaitEnd(few);
  AwaitCount(1);
}

TEST_F(BoundedListenerTest, RefusesWhileDescriptorsAreShort) {
  Start({});
  const UniqueFd first = DialAndSend();
  const auto served = owner_.Take();
  const UniqueFd late(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const UniqueFd later(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  ASSERT_EQ(getpeername(first.get(), reinterpret_cast<sockaddr*>(&address),
                        &size),
            0);
  const auto dial = [&](const UniqueFd& fd) {
    return connect(fd.get(), reinterpret_cast<const sockaddr*>(&address),
                   size);
  };
  rlimit old = {};
  getrlimit(RLIMIT_NOFILE, &old);
  rlimit few = old;
  few.rlim_cur = 256;
  setrlimit(RLIMIT_NOFILE, &few);
  std::vector<UniqueFd> all;
  for (int fd = dup(0); fd >= 0; fd = dup(0)) all.emplace_back(fd);
  ASSERT_EQ(dial(late), 0);
  AwaitEnd(late);
  all.clear();
  setrlimit(RLIMIT_NOFILE, &old);
  ASSERT_EQ(dial(later), 0);
  EXPECT_EQ(send(later.get(), "x", 1, MSG_NOSIGNAL), 1);
  (void)owner_.Take();
}

TEST_F(BoundedListenerTest, AfterStopItsPortIsClosed) {
  Start({});
  const UniqueFd silent = Dial();
  AwaitCount(1);
  listener_->Stop();
  AwaitEnd(silent);
  EXPECT_FALSE(net::Dial(listener_->address(), Long()).ok());
}

TEST(ToPeerTextTest, NamesAddressesAsGrpcDoes) {
  const auto text = [](const std::string& host) {
    const UniqueFd fd = Listen({host, 0}).value();
    sockaddr_storage address = {};
    socklen_t size = sizeof(address);
    getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size);
    const std::string name =
        ToPeerText(reinterpret_cast<const sockaddr&>(address));
    return name.substr(0, name.rfind(':'));
  };
  EXPECT_EQ(text("127.0.0.1"), "ipv4:127.0.0.1");
  EXPECT_EQ(text("::1"), "ipv6:%5B::1%5D");
}

}  // namespace
}  // namespace atl::net
