#include "worker/collective/tcp/tcp_world.h"

#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "worker/collective/tcp/message.h"
#include "worker/collective/tcp/socket.h"
#include "worker/collective/testing/behaviour.h"
#include "worker/collective/testing/random_program.h"

namespace atl::collective {
namespace {

using Joined = absl::StatusOr<std::unique_ptr<TcpWorld>>;

// A place where process 0 listens.
struct Meeting {
  Meeting() {
    listener = *Listen({"127.0.0.1", 0});
    port = LocalEndpoint(listener.get())->port;
  }
  TcpWorldOptions Options(int index, int count) {
    TcpWorldOptions options;
    options.rendezvous = absl::StrCat("127.0.0.1:", port);
    if (index == 0) options.listener = std::move(listener);
    options.process_index = index;
    options.process_count = count;
    options.layout = "tp=2";
    options.token = "token";
    options.join_timeout = absl::Minutes(1);
    return options;
  }
  UniqueFd listener;
  int port = 0;
};

// Processes with so many ranks each, all in this one.
class Processes : public TestWorld {
 public:
  Processes(const std::vector<int>& rank_counts, const WorldOptions& options) {
    Meeting meeting;
    const int count = static_cast<int>(rank_counts.size());
    std::vector<Joined> joined(count);
    std::vector<std::thread> threads;
    // The last comes first: it has to dial until somebody listens.
    for (int index = count - 1; index >= 0; --index) {
      TcpWorldOptions own = meeting.Options(index, count);
      own.rank_count = rank_counts[index];
      own.world = options;
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

WorldKind Of(const std::string& name, std::vector<int> rank_counts) {
  return {name, std::accumulate(rank_counts.begin(), rank_counts.end(), 0),
          [rank_counts](const WorldOptions& options) {
            return std::make_unique<Processes>(rank_counts, options);
          }};
}

INSTANTIATE_TEST_SUITE_P(Tcp, BehaviourTest,
                         testing::Values(Of("two", {1, 1}),
                                         Of("three", {1, 1, 1}),
                                         Of("two_by_two", {2, 2}),
                                         Of("uneven", {1, 3, 1})),
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
  // The right process 1 comes, and the world is whole.
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
  stranger.token = "another";
  ExpectRefused(std::move(stranger), absl::StatusCode::kPermissionDenied,
                "token");
  TcpWorldOptions other = meeting_.Options(1, 2);
  other.layout = "tp=4";
  ExpectRefused(std::move(other), absl::StatusCode::kFailedPrecondition,
                "\"tp=4\"");
  ExpectRefused(meeting_.Options(2, 3), absl::StatusCode::kFailedPrecondition,
                "a world of 3 processes");
  // Says nothing of a world.
  auto lost =
      Dial({"127.0.0.1", meeting_.port}, absl::Now() + absl::Minutes(1));
  ASSERT_TRUE(lost.ok());
  ASSERT_TRUE(SendAll(lost->get(), "GET / HTTP/1.1\r\n\r\n",
                      absl::Now() + absl::Minutes(1))
                  .ok());
  // Says nothing at all, and is still there when the world is whole.
  auto silent =
      Dial({"127.0.0.1", meeting_.port}, absl::Now() + absl::Minutes(1));
  ASSERT_TRUE(silent.ok());
  CompleteWithSecond();
}

TEST_F(TcpWorldTest, RefusesASecondProcessWithTheSameIndex) {
  // Of three, so that the first one waits meanwhile. No world ends before all
  // have come together.
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
  hello.layout = "tp=2";
  hello.token = "token";
  const absl::Time soon = absl::Now() + absl::Minutes(1);
  auto early = Dial({"127.0.0.1", meeting_.port}, soon);
  ASSERT_TRUE(early.ok());
  ASSERT_TRUE(SendAll(early->get(), EncodeMessage(hello), soon).ok());
  // Connections are read in the order in which they came.
  ExpectRefused(meeting_.Options(1, 3), absl::StatusCode::kAlreadyExists,
                "process 1 has joined already, from 127.0.0.1");
  // The first of them goes, and its place is free for the right one.
  *early = UniqueFd();
  Joined second;
  std::thread joins([&] {
    // Until process 0 has seen that the place is free.
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
}

}  // namespace
}  // namespace atl::collective
