#include "worker/collective/tcp/process_hub.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "base/net/socket.h"
#include "base/sync/testing/notification.h"
#include "base/time/clock.h"
#include "base/time/testing/fake_clock.h"
#include "gtest/gtest.h"
#include "worker/collective/group.h"
#include "worker/collective/tcp/connection.h"
#include "worker/collective/tcp/message.h"

namespace atl::collective {
namespace {

// Only a hang reaches it.
constexpr absl::Duration kPatience = absl::Minutes(2);

absl::Time Soon() { return SystemClock().Now() + kPatience; }

// For waits that fail earlier.
absl::Time InAWhile() { return SystemClock().Now() + absl::Minutes(2); }

// True once the other end has closed; false at `deadline`.
bool IsSentAway(int fd, absl::Time deadline) {
  char bytes[256];
  while (net::WaitForSocket(fd, POLLIN, {deadline}).ok()) {
    const ssize_t count = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (count == 0 || (count < 0 && errno != EAGAIN)) return true;
  }
  return false;
}

// Runs `wait`. False if it did not end until `let_go` was called.
bool EndsByItself(const std::function<void()>& wait,
                  const std::function<void()>& let_go) {
  Notification ended;
  std::thread thread([&] {
    wait();
    ended.Notify();
  });
  const bool in_time = ended.WaitWithTimeout(kPatience);
  if (!in_time) let_go();
  thread.join();
  return in_time;
}

class StuckClock : public Clock {
 public:
  absl::Time Now() const override {
    let_go_.WaitWithTimeout(absl::InfiniteDuration());
    return absl::UnixEpoch();
  }

  void LetGo() { let_go_.Notify(); }

 private:
  Notification let_go_;
};

// While it lives poll fails: too many descriptors.
class FewDescriptors {
 public:
  FewDescriptors() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit one = {1, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &one), 0);
  }
  ~FewDescriptors() { EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0); }

 private:
  rlimit before_;
};

// The hub of process 0 of two; the test is the other process.
class ProcessHubTest : public testing::Test {
 protected:
  ProcessHubTest() {
    // Each test shortens its own timeout; nothing else may need them.
    identity_.process_count = 2;
    identity_.key = *WorldKey::Create("secret");
    identity_.clock = &clock_;
    identity_.timeouts.dial = absl::InfiniteDuration();
    identity_.timeouts.roster_send = absl::InfiniteDuration();
    identity_.timeouts.news = absl::InfiniteDuration();
  }

  void Start() {
    UniqueFd listener = *net::Listen({"127.0.0.1", 0});
    port_ = net::LocalAddress(listener.get())->port;
    hub_ = *ProcessHub::Create(identity_, std::move(listener));
  }

  Connection Friend() {
    absl::StatusOr<Connection> made =
        Connect({"127.0.0.1", port_}, identity_.key, Soon());
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }

  Connection Join(int port) {
    Connection connection = Friend();
    Message hello;
    hello.type = MessageType::kJoin;
    hello.process_index = 1;
    hello.process_count = 2;
    hello.rank_count = 1;
    hello.port = port;
    EXPECT_TRUE(SendAll(connection, EncodeMessage(hello), Soon()).ok());
    return connection;
  }

  FakeClock clock_;
  ProcessHub::Identity identity_;
  int port_ = 0;
  std::unique_ptr<ProcessHub> hub_;
};

TEST_F(ProcessHubTest, WhoDoesNotSayWhatItWantsIsSentAwayInTimeAndNotBefore) {
  Start();
  const absl::Duration moment = absl::Nanoseconds(1);
  const UniqueFd silent = *net::Dial({"127.0.0.1", port_}, {Soon()});
  // Knows the secret, and begins a message.
  Connection slow = Friend();
  ASSERT_TRUE(
      SendAll(slow, EncodeMessage(Message()).substr(0, 20), Soon()).ok());
  const int fds[] = {silent.get(), slow.fd()};
  hub_->ReadNews();  // Both are accepted then.
  clock_.Advance(identity_.timeouts.hello - moment);
  hub_->ReadNews();
  EXPECT_FALSE(IsSentAway(silent.get(), SystemClock().Now()));
  EXPECT_FALSE(IsSentAway(slow.fd(), SystemClock().Now()));
  clock_.Advance(moment);
  hub_->ReadNews();
  for (const int fd : fds) EXPECT_TRUE(IsSentAway(fd, Soon()));
  const absl::Status vain =
      hub_->CollectRoster({"127.0.0.1", port_, 1}, absl::InfinitePast())
          .status();
  EXPECT_TRUE(absl::StrContains(vain.message(),
                                "no complete first message within 10s"))
      << vain;
}

TEST_F(ProcessHubTest, WhoDoesNotTakeTheRosterIsNotWaitedFor) {
  identity_.timeouts.roster_send = absl::Milliseconds(1);
  Start();
  Connection joined = Join(1);
  // More than the buffers of two sockets hold.
  const std::string name(size_t{64} << 20, 'x');
  absl::Status gathered;
  EXPECT_TRUE(EndsByItself(
      [&] {
        gathered = hub_->CollectRoster({name, port_, 1}, Soon()).status();
      },
      [&] { joined = Connection(); }));
  EXPECT_TRUE(absl::IsUnavailable(gathered)) << gathered;
  EXPECT_TRUE(absl::StrContains(gathered.message(), "send: too late"))
      << gathered;
}

TEST_F(ProcessHubTest, ARankThatDoesNotAnswerIsNotDialledForEver) {
  identity_.timeouts.dial = absl::Milliseconds(1);
  Start();
  // Accepts connections, but does no handshake.
  UniqueFd deaf = *net::Listen({"127.0.0.1", 0});
  const Connection joined = Join(net::LocalAddress(deaf.get())->port);
  ASSERT_TRUE(hub_->CollectRoster({"127.0.0.1", port_, 1}, Soon()).ok());
  World world({0, 1}, 0, WorldOptions());
  ASSERT_TRUE(hub_->ConnectAll(&world, Soon()).ok());
  absl::Status connected;
  EXPECT_TRUE(EndsByItself(
      [&] {
        connected =
            hub_->Connect("world", 0, {0, 1}, absl::InfiniteFuture()).status();
      },
      [&] { deaf = UniqueFd(); }));
  EXPECT_TRUE(absl::StrContains(connected.message(),
                                "did not finish the handshake in time"))
      << connected;
  hub_->Stop();
}

// The thread that reads news is busy for ever.
TEST_F(ProcessHubTest, NewsAreNotWaitedForWhereNobodyReadsThem) {
  StuckClock stuck;
  identity_.clock = &stuck;
  identity_.timeouts.news = absl::Milliseconds(1);
  Start();
  EXPECT_TRUE(EndsByItself([&] { hub_->ReadNews(); }, [&] { stuck.LetGo(); }));
  stuck.LetGo();
  hub_->Stop();
}

TEST_F(ProcessHubTest, WhoComesTogetherHearsWhyNobodyListensAnyMore) {
  Start();
  absl::Status gathered;
  {
    FewDescriptors few;
    gathered =
        hub_->CollectRoster({"127.0.0.1", port_, 1}, InAWhile()).status();
  }
  EXPECT_TRUE(absl::IsUnavailable(gathered)) << gathered;
  EXPECT_TRUE(absl::StrContains(gathered.message(),
                                "process 0 lost the other processes: cannot "
                                "poll 2 connections: "))
      << gathered;
}

TEST_F(ProcessHubTest, AWorldEndsForAllWhereNobodyListensAnyMore) {
  Start();
  Connection joined = Join(1);
  ASSERT_TRUE(hub_->CollectRoster({"127.0.0.1", port_, 1}, Soon()).ok());
  World world({0, 1}, 0, WorldOptions());
  world.SetRemote(hub_.get());
  ASSERT_TRUE(hub_->ConnectAll(&world, Soon()).ok());
  absl::Status connected;
  {
    FewDescriptors few;
    // Rank 0 should dial rank 1, which is here.
    connected = hub_->Connect("world", 1, {1, 0}, InAWhile()).status();
    EXPECT_TRUE(
        EndsByItself([&] { hub_->ReadNews(); }, [&] { hub_->Stop(); }));
  }
  EXPECT_TRUE(absl::StrContains(connected.message(), "cannot poll 3"))
      << connected;
  hub_->Stop();
  EXPECT_EQ(world.status(), connected);
  // The other process ends too.
  std::string told;
  char bytes[4096];
  while (net::WaitForSocket(joined.fd(), POLLIN, {InAWhile()}).ok()) {
    const iovec room = {bytes, sizeof(bytes)};
    const ssize_t count = joined.Receive({&room, 1});
    if (count < 0) break;
    told.append(bytes, static_cast<size_t>(count));
    if (absl::StrContains(told, "cannot poll")) break;
  }
  EXPECT_TRUE(absl::StrContains(told, connected.message())) << told;
}

}  // namespace
}  // namespace atl::collective
