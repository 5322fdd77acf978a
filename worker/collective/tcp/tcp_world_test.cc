#include "worker/collective/tcp/tcp_world.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/net/socket.h"
#include "base/time/clock.h"
#include "gtest/gtest.h"
#include "worker/collective/tcp/connection.h"
#include "worker/collective/tcp/message.h"
#include "worker/collective/testing/behaviour.h"
#include "worker/collective/testing/random_program.h"

namespace atl::collective {
namespace {

using Joined = absl::StatusOr<std::unique_ptr<TcpWorld>>;

absl::Time Soon() { return SystemClock().Now() + absl::Minutes(2); }

// A place where process 0 listens.
struct Meeting {
  Meeting() {
    listener = *net::Listen({"127.0.0.1", 0});
    port = net::LocalAddress(listener.get())->port;
  }
  TcpWorldOptions Options(int index, int count) {
    TcpWorldOptions options;
    options.rendezvous = absl::StrCat("127.0.0.1:", port);
    if (index == 0) options.listener = std::move(listener);
    options.process_index = index;
    options.process_count = count;
    options.layout = "tp=2";
    options.secret = "secret";
    options.join_timeout = absl::Minutes(2);
    return options;
  }
  UniqueFd listener;
  int port = 0;
};

// Processes with so many ranks each, all in this one.
class Processes : public TestWorld {
 public:
  Processes(const std::vector<int>& rank_counts, bool in_the_clear,
            const WorldOptions& options) {
    Meeting meeting;
    const int count = static_cast<int>(rank_counts.size());
    std::vector<Joined> joined(count);
    std::vector<std::thread> threads;
    // The last starts first: it must dial until process 0 listens.
    for (int index = count - 1; index >= 0; --index) {
      TcpWorldOptions own = meeting.Options(index, count);
      own.rank_count = rank_counts[index];
      own.world = options;
      own.calls_in_the_clear = in_the_clear;
      threads.emplace_back([&joined, index, own = std::move(own)]() mutable {
        joined[index] = TcpWorld::Join(std::move(own));
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (Joined& one : joined) {
      EXPECT_TRUE(one.ok()) << one.status();
      worlds_.push_back(*std::move(one));
      for (auto& rank : worlds_.back()->TakeRanks()) {
        ranks_.push_back(std::move(rank));
      }
    }
  }
  ~Processes() override { ranks_.clear(); }

 private:
  std::vector<std::unique_ptr<TcpWorld>> worlds_;
};

WorldKind Of(const std::string& name, std::vector<int> rank_counts,
             bool in_the_clear) {
  return {name, std::accumulate(rank_counts.begin(), rank_counts.end(), 0),
          [=](const WorldOptions& options) {
            return std::make_unique<Processes>(rank_counts, in_the_clear,
                                               options);
          }};
}

INSTANTIATE_TEST_SUITE_P(Tcp, BehaviourTest,
                         testing::Values(Of("two", {1, 1}, true),
                                         Of("three", {1, 1, 1}, true),
                                         Of("two_by_two", {2, 2}, true),
                                         Of("uneven", {1, 3, 1}, true),
                                         Of("encrypted", {1, 1}, false),
                                         Of("encrypted_uneven", {1, 2, 1},
                                            false)),
                         testing::PrintToStringParamName());

class TcpWorldTest : public testing::Test {
 protected:
  // Process 0 of two waits for the other in a thread.
  void StartFirst() {
    first_ = std::thread([this, options = meeting_.Options(0, 2)]() mutable {
      options.rank_count = 1;
      joined_ = TcpWorld::Join(std::move(options));
    });
  }
  void CompleteWithSecond() {
    Joined second = TcpWorld::Join(meeting_.Options(1, 2));
    first_.join();
    ASSERT_TRUE(second.ok()) << second.status();
    ASSERT_TRUE(joined_.ok()) << joined_.status();
    auto a = (*joined_)->TakeRanks();
    auto b = (*second)->TakeRanks();
    std::thread other([&] { EXPECT_TRUE(b[0]->Barrier().ok()); });
    EXPECT_TRUE(a[0]->Barrier().ok());
    other.join();
  }
  void ExpectRefused(TcpWorldOptions options, absl::StatusCode code,
                     absl::string_view why) {
    const absl::Status status = TcpWorld::Join(std::move(options)).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), why)) << status;
  }

  Meeting meeting_;
  std::thread first_;
  Joined joined_;
};

TEST_F(TcpWorldTest, RefusesStrangersWithAReasonAndGoesOn) {
  StartFirst();
  TcpWorldOptions stranger = meeting_.Options(1, 2);
  stranger.secret = "another";
  ExpectRefused(std::move(stranger), absl::StatusCode::kPermissionDenied,
                "has another secret");
  TcpWorldOptions open = meeting_.Options(1, 2);
  open.calls_in_the_clear = true;
  ExpectRefused(std::move(open), absl::StatusCode::kFailedPrecondition,
                "in the clear");
  TcpWorldOptions other = meeting_.Options(1, 2);
  other.layout = "tp=4";
  ExpectRefused(std::move(other), absl::StatusCode::kFailedPrecondition,
                "\"tp=4 encrypted\"");
  ExpectRefused(meeting_.Options(2, 3), absl::StatusCode::kFailedPrecondition,
                "a world of 3 processes");
  CompleteWithSecond();
}

// A raw socket that sends bytes and ignores the answers.
class Stranger {
 public:
  explicit Stranger(int port)
      : fd_(*net::Dial({"127.0.0.1", port}, {Soon()})) {}

  bool Say(absl::string_view bytes) {
    return send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  void Pause() {
    net::WaitForSocket(fd_.get(), POLLIN,
                       {SystemClock().Now() + absl::Milliseconds(1)})
        .IgnoreError();
  }
  // True once the other end has closed, before `deadline`.
  bool IsSentAway(absl::Time deadline = Soon()) {
    char bytes[256];
    while (net::WaitForSocket(fd_.get(), POLLIN, {deadline}).ok()) {
      const ssize_t count = recv(fd_.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
      if (count == 0 || (count < 0 && errno != EAGAIN)) return true;
    }
    return false;
  }

 private:
  UniqueFd fd_;
};

std::string FirstBytes(absl::string_view secret) {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  const UniqueFd other(ends[1]);
  auto dialled =
      Connection::Dialled(UniqueFd(ends[0]), *WorldKey::Create(secret));
  EXPECT_TRUE(dialled.ok() && dialled->Handshake().ok());
  std::string bytes(4096, '\0');
  const ssize_t count = recv(other.get(), bytes.data(), bytes.size(), 0);
  bytes.resize(std::max<ssize_t>(count, 0));
  return bytes;
}

TEST_F(TcpWorldTest, StrangersNeitherEnterNorKeepOthersOut) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  StartFirst();
  // These speak another protocol.
  for (const std::string& words :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(300, '\0'),
        EncodeMessage(Message()), std::string("\x16\x03\x01\xff\xff\x01")}) {
    Stranger stranger(meeting_.port);
    EXPECT_TRUE(stranger.Say(words));
  }
  for (int i = 0; i < 50; ++i) {
    std::string garbage(1 + random() % 2000, '\0');
    for (char& byte : garbage) byte = static_cast<char>(random());
    if (i % 2 == 0) {
      garbage.replace(0, std::min<size_t>(3, garbage.size()), "\x16\x03\x01");
    }
    Stranger(meeting_.port).Say(garbage);
  }
  // These begin with a valid message, and then deviate or stop.
  const std::string hello = FirstBytes("secret");
  ASSERT_GT(hello.size(), 100u);
  for (int i = 0; i < 50; ++i) {
    std::string changed = hello;
    changed[random() % changed.size()] ^= static_cast<char>(1 << random() % 8);
    Stranger(meeting_.port).Say(changed);
    Stranger(meeting_.port).Say(hello.substr(0, random() % hello.size()));
  }
  // A replay of recorded bytes fails in the handshake.
  Stranger echo(meeting_.port);
  EXPECT_TRUE(echo.Say(hello));
  EXPECT_TRUE(echo.Say(hello));
  EXPECT_TRUE(echo.IsSentAway());
  // These stay silent, and are still connected when the world is complete.
  std::vector<std::unique_ptr<Stranger>> silent;
  for (int i = 0; i < 100; ++i) {
    silent.push_back(std::make_unique<Stranger>(meeting_.port));
  }
  // This one sends single bytes.
  Stranger slow(meeting_.port);
  std::atomic<bool> done{false};
  std::thread trickle([&] {
    for (size_t i = 0; !done && i < hello.size(); ++i) {
      if (!slow.Say(hello.substr(i, 1))) break;
      slow.Pause();
    }
  });
  CompleteWithSecond();
  done = true;
  trickle.join();
}

TEST_F(TcpWorldTest, OfManyWhoSayNothingThoseWhoCameFirstAreSentAway) {
  TcpWorldOptions options = meeting_.Options(0, 2);
  options.strangers_max = 4;
  first_ = std::thread([this, options = std::move(options)]() mutable {
    joined_ = TcpWorld::Join(std::move(options));
  });
  const absl::Time begin = SystemClock().Now();
  std::vector<std::unique_ptr<Stranger>> silent;
  for (int i = 0; i < 20; ++i) {
    silent.push_back(std::make_unique<Stranger>(meeting_.port));
  }
  for (int i = 0; i < 16; ++i) EXPECT_TRUE(silent[i]->IsSentAway());
  CompleteWithSecond();
  // On a loaded machine the timeout of 10 s may have removed the others.
  const absl::Time now = SystemClock().Now();
  if (now - begin < absl::Seconds(9)) {
    EXPECT_FALSE(silent.back()->IsSentAway(now));
  }
}

TEST_F(TcpWorldTest, WhoWaitsInVainHearsWhoWasRefused) {
  TcpWorldOptions options = meeting_.Options(0, 2);
  options.join_timeout = absl::Seconds(10);  // Time for the stranger.
  first_ = std::thread([this, options = std::move(options)]() mutable {
    joined_ = TcpWorld::Join(std::move(options));
  });
  TcpWorldOptions stranger = meeting_.Options(1, 2);
  stranger.secret = "another";
  ExpectRefused(std::move(stranger), absl::StatusCode::kPermissionDenied, "");
  first_.join();
  EXPECT_TRUE(absl::IsDeadlineExceeded(joined_.status())) << joined_.status();
  EXPECT_TRUE(absl::StrContains(joined_.status().message(),
                                "has another secret"))
      << joined_.status();
}

TEST_F(TcpWorldTest, WhoListensThereHasToKnowTheSecretToo) {
  // A server without the secret: it answers anything.
  std::thread server([this] {
    const int listener = meeting_.listener.get();
    ASSERT_TRUE(net::WaitForSocket(listener, POLLIN, {Soon()}).ok());
    UniqueFd fd(accept4(listener, nullptr, nullptr, 0));
    char bytes[4096];
    EXPECT_GT(recv(fd.get(), bytes, sizeof(bytes), 0), 0);
    const absl::string_view answer = "HTTP/1.1 400 Bad Request\r\n\r\n";
    EXPECT_GT(send(fd.get(), answer.data(), answer.size(), MSG_NOSIGNAL), 0);
    EXPECT_EQ(recv(fd.get(), bytes, 0, 0), 0);
  });
  TcpWorldOptions options = meeting_.Options(1, 2);
  ExpectRefused(std::move(options), absl::StatusCode::kInvalidArgument,
                "is not a process of a world");
  server.join();
}

TEST_F(TcpWorldTest, RefusesASecondProcessWithTheSameIndex) {
  // Three processes: the first waits. No world ends before all have joined.
  Joined zeroth;
  std::thread first([&zeroth, options = meeting_.Options(0, 3)]() mutable {
    zeroth = TcpWorld::Join(std::move(options));
  });
  Message hello;
  hello.type = MessageType::kJoin;
  hello.process_index = 1;
  hello.process_count = 3;
  hello.rank_count = 1;
  hello.port = 1;
  hello.layout = "tp=2 encrypted";
  const absl::Time soon = Soon();
  auto early = Connect({"127.0.0.1", meeting_.port},
                       *WorldKey::Create("secret"), soon);
  ASSERT_TRUE(early.ok()) << early.status();
  ASSERT_TRUE(SendAll(*early, EncodeMessage(hello), soon).ok());
  // Connections are read in the order in which they came.
  ExpectRefused(meeting_.Options(1, 3), absl::StatusCode::kAlreadyExists,
                "process 1 has joined already, from 127.0.0.1");
  // The first of them goes, and the right one may take its place.
  *early = Connection();
  Joined second;
  std::thread joins([&] {
    // Until process 0 has noticed that the place is free.
    do {
      second = TcpWorld::Join(meeting_.Options(1, 3));
    } while (absl::IsAlreadyExists(second.status()));
  });
  Joined third = TcpWorld::Join(meeting_.Options(2, 3));
  joins.join();
  first.join();
  EXPECT_TRUE(zeroth.ok()) << zeroth.status();
  EXPECT_TRUE(second.ok()) << second.status();
  EXPECT_TRUE(third.ok()) << third.status();
}

TEST_F(TcpWorldTest, GivesUpAfterTheBoundAndSaysWhoDidNotCome) {
  TcpWorldOptions options = meeting_.Options(0, 3);
  options.join_timeout = absl::Milliseconds(50);
  ExpectRefused(std::move(options), absl::StatusCode::kDeadlineExceeded,
                "processes 1, 2");
  TcpWorldOptions lonely = meeting_.Options(1, 2);
  lonely.join_timeout = absl::Milliseconds(50);
  ExpectRefused(std::move(lonely), absl::StatusCode::kDeadlineExceeded, "");
}

TEST_F(TcpWorldTest, OptionsThatMakeNoSenseAreRefused) {
  TcpWorldOptions options = meeting_.Options(2, 2);
  ExpectRefused(std::move(options), absl::StatusCode::kInvalidArgument,
                "no process 2 of 2");
  options = meeting_.Options(1, 2);
  options.rendezvous = "nowhere";
  ExpectRefused(std::move(options), absl::StatusCode::kInvalidArgument,
                "HOST:PORT");
  options = meeting_.Options(1, 2);
  options.secret = "";
  ExpectRefused(std::move(options), absl::StatusCode::kInvalidArgument,
                "needs a secret");
}

}  // namespace
}  // namespace atl::collective
