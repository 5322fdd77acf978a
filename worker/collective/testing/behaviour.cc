#include "worker/collective/testing/behaviour.h"

#include <atomic>
#include <iostream>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/sync/testing/notification.h"
#include "worker/collective/testing/random_program.h"
#include "worker/collective/testing/ranks.h"

namespace atl::collective {

BehaviourTest::BehaviourTest() : seed_(std::random_device()()) {
  std::cout << "seed " << seed_ << "\n";
}

std::vector<std::unique_ptr<Collective>>& BehaviourTest::Make(
    absl::Duration timeout) {
  WorldOptions options;
  options.call_timeout = timeout;
  world_ = GetParam().make(options);
  return world_->ranks();
}

namespace {

using Rank = std::unique_ptr<Collective>;

bool Says(const absl::Status& status, absl::string_view text) {
  return absl::StrContains(status.message(), text);
}

TEST_P(BehaviourTest, EveryCallGivesWhatItsDefinitionSays) {
  RunRanks(Make(), [&](int, Rank& rank) {
    RunRandomProgram(seed_, /*call_count=*/150, /*count_max=*/300, *rank);
  });
}

TEST_P(BehaviourTest, LargeCallsToo) {
  // Parts of several slices, with few ranks.
  const int64_t count_max = 600'000 / (GetParam().size * GetParam().size);
  RunRanks(Make(), [&](int, Rank& rank) {
    RunRandomProgram(seed_, /*call_count=*/12, count_max, *rank);
  });
}

TEST_P(BehaviourTest, NumbersRanksInOrder) {
  auto& ranks = Make();
  ASSERT_EQ(ranks.size(), GetParam().size);
  for (int r = 0; r < GetParam().size; ++r) {
    EXPECT_EQ(ranks[r]->rank(), r);
    EXPECT_EQ(ranks[r]->size(), GetParam().size);
    EXPECT_EQ(ranks[r]->name(), "world");
  }
}

TEST_P(BehaviourTest, SplitsByColorIntoStreamsOfTheirOwn) {
  RunRanks(Make(), [&](int r, Rank& rank) {
    auto half = rank->Split(r % 2, "half");
    ASSERT_TRUE(half.ok()) << half.status();
    EXPECT_EQ((*half)->rank(), r / 2);
    EXPECT_EQ((*half)->size(), (rank->size() + 1 - r % 2) / 2);
    auto again = rank->Split(0, "again");
    ASSERT_TRUE(again.ok()) << again.status();
    auto without = rank->Split(r == 0 ? -1 : 3, "without");
    ASSERT_TRUE(without.ok()) << without.status();
    EXPECT_EQ(*without == nullptr, r == 0);
    // Groups do not wait for each other.
    std::vector<float> sum = {1};
    Pending later;
    if (r % 2 == 0) {
      later = (*again)->Start(Call::AllReduce(DataType::kF32, Reduction::kSum,
                                              sum.data(), sum.data(), 1));
    }
    RunRandomProgram(seed_ + r % 2, 30, 100, **half);
    if (r % 2 == 1) {
      later = (*again)->Start(Call::AllReduce(DataType::kF32, Reduction::kSum,
                                              sum.data(), sum.data(), 1));
    }
    EXPECT_TRUE(later.Wait().ok());
    EXPECT_EQ(sum[0], rank->size());
    if (*without != nullptr) RunRandomProgram(seed_, 30, 100, **without);
    // A group of a group outlives it.
    auto quarter = (*half)->Split((*half)->rank() / 2, "quarter");
    ASSERT_TRUE(quarter.ok()) << quarter.status();
    half->reset();
    RunRandomProgram(seed_ + 7, 10, 100, **quarter);
  });
}

TEST_P(BehaviourTest, DifferentCallsAreAnErrorThatNamesBoth) {
  auto& ranks = Make();
  const int other = GetParam().size - 1;
  std::vector<float> data(64);
  const Call calls[][2] = {
      {Call::AllReduce(DataType::kF32, Reduction::kSum, nullptr, nullptr, 8),
       Call::AllReduce(DataType::kF32, Reduction::kMax, nullptr, nullptr, 8)},
      {Call::Broadcast(DataType::kF32, nullptr, 8, 0),
       Call::Broadcast(DataType::kF32, nullptr, 9, 0)},
      {Call::Broadcast(DataType::kF32, nullptr, 8, 0),
       Call::Broadcast(DataType::kF32, nullptr, 8, other)},
      {Call::AllGather(DataType::kF32, nullptr, nullptr, 1), Call::Barrier()},
  };
  const Call* pair = calls[seed_ % 4];
  RunRanks(ranks, [&](int r, Rank& rank) {
    std::vector<float> in(64), out(64);
    Call call = pair[r == other];
    call.in = in.data();
    call.out = out.data();
    const absl::Status status = rank->Run(call);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_TRUE(Says(status, Describe(pair[0]))) << status;
    EXPECT_TRUE(Says(status, Describe(pair[1]))) << status;
    EXPECT_TRUE(Says(status, absl::StrCat("rank ", other))) << status;
    EXPECT_EQ(rank->Barrier(), status);
  });
}

TEST_P(BehaviourTest, UnevenCountsThatDoNotMatchAreAnError) {
  RunRanks(Make(), [&](int r, Rank& rank) {
    const int n = rank->size();
    std::vector<float> in(3 * n), out(3 * n);
    std::vector<int64_t> send(n, 2), receive(n, 2);
    if (r == 0) receive[n - 1] = 3;
    absl::Status status = rank->Run(Call::AllToAllUneven(
        DataType::kF32, in.data(), out.data(), send, receive));
    // Ranks in other processes may learn it with their next call.
    if (status.ok()) status = rank->Barrier();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_TRUE(Says(status, "rank 0")) << status;
    EXPECT_TRUE(Says(status, absl::StrCat("rank ", n - 1))) << status;
  });
}

TEST_P(BehaviourTest, SendsAndReceivesOfDifferentLengthsAreAnError) {
  RunRanks(Make(), [&](int r, Rank& rank) {
    const int last = rank->size() - 1;
    char data[8] = {};
    absl::Status status;
    if (r == 0) {
      status = rank->Run(Call::Transfers({SendTo(last, data, 8)}));
    } else if (r == last) {
      status = rank->Receive(0, data, 7);
    } else {
      return;
    }
    // A send may end before the receiver looks.
    if (r == 0 && status.ok()) status = rank->Receive(last, data, 1);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_TRUE(Says(status, "rank 0")) << status;
    EXPECT_TRUE(Says(status, absl::StrCat("rank ", last))) << status;
  });
}

TEST_P(BehaviourTest, ASendAgainstAnotherCallIsAnError) {
  RunRanks(Make(), [&](int r, Rank& rank) {
    std::vector<char> data(8 << 20);  // More than sockets hold.
    const int last = rank->size() - 1;
    const absl::Status status = rank->Run(
        r == last ? Call::Transfers({SendTo(
                        0, data.data(), static_cast<int64_t>(data.size()))})
                  : Call::Barrier());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_TRUE(Says(status, "barrier")) << status;
    EXPECT_TRUE(Says(status, "send and receive")) << status;
  });
}

TEST_P(BehaviourTest, ACallThatMakesNoSenseEndsTheWorldToo) {
  RunRanks(Make(), [&](int r, Rank& rank) {
    float data = 0;
    const absl::Status status =
        rank->Run(Call::Broadcast(DataType::kF32, &data, 1, r == 1 ? 99 : 0));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_TRUE(Says(status, "rank 1")) << status;
  });
}

TEST_P(BehaviourTest, ARankThatLeavesEndsThePendingCallsOfAll) {
  const int leaver = static_cast<int>(seed_ % GetParam().size);
  RunRanks(Make(), [&](int r, Rank& rank) {
    RunRandomProgram(seed_, 10, 50, *rank);
    absl::Status status = rank->Barrier();
    if (r == leaver) {
      EXPECT_TRUE(status.ok()) << status;
      return rank.reset();
    }
    // A slow rank may learn it while still in the barrier.
    std::vector<float> data(100'000, 1);
    if (status.ok()) status = rank->AllReduce(absl::MakeSpan(data));
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_TRUE(Says(status, absl::StrCat("rank ", leaver))) << status;
    EXPECT_EQ(rank->Barrier(), status);
  });
}

TEST_P(BehaviourTest, ARankThatLeavesWhenDoneHarmsNobody) {
  RunRanks(Make(), [&](int, Rank& rank) {
    for (int i = 0; i < 20; ++i) {
      auto group = rank->Split(0, "short");
      ASSERT_TRUE(group.ok()) << group.status();
      std::vector<float> data(1 + (seed_ + i) % 5000, 1);
      ASSERT_TRUE((*group)->AllReduce(absl::MakeSpan(data)).ok());
    }
    std::vector<float> data(50'000, 1);
    const absl::Status status = rank->AllReduce(absl::MakeSpan(data));
    EXPECT_TRUE(status.ok()) << status;
    rank.reset();
  });
}

TEST_P(BehaviourTest, AbortReachesRanksThatWaitInOtherGroups) {
  const int last = GetParam().size - 1;
  RunRanks(Make(), [&](int r, Rank& rank) {
    auto pair = rank->Split(r == last ? 1 : 0, "others");
    if (r == last) {
      ASSERT_TRUE(pair.ok()) << pair.status();
      return rank->Abort("out of memory");
    }
    // Waits for a rank that never comes, or in another group, or still splits.
    absl::Status status = pair.status();
    char byte;
    if (status.ok()) {
      status = r == 0 ? rank->Barrier() : (*pair)->Receive(0, &byte, 1);
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_TRUE(Says(status, absl::StrCat("rank ", last))) << status;
    EXPECT_TRUE(Says(status, "out of memory")) << status;
  });
}

TEST_P(BehaviourTest, AbortEndsACallOfTheSameRank) {
  RunRanks(Make(), [&](int r, Rank& rank) {
    if (r != 0) return;
    std::vector<float> data(1000);
    Pending pending =
        rank->Start(Call::AllReduce(DataType::kF32, Reduction::kSum,
                                    data.data(), data.data(), data.size()));
    EXPECT_TRUE(rank->status().ok()) << rank->status();
    rank->Abort("enough");
    EXPECT_EQ(rank->status().code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(pending.Wait().code(), absl::StatusCode::kUnavailable);
  });
}

TEST_P(BehaviourTest, AWaitIsBoundedAndSaysForWhom) {
  const int absent = static_cast<int>(seed_ % GetParam().size);
  std::atomic<int> waiting{GetParam().size - 1};
  Notification all_gave_up;
  RunRanks(Make(absl::Milliseconds(200)), [&](int r, Rank& rank) {
    if (r == absent) {
      EXPECT_TRUE(all_gave_up.WaitWithTimeout(absl::Minutes(2)));
      // Bytes that the others sent may be enough for one call.
      absl::Status status = rank->Barrier();
      if (status.ok()) status = rank->Barrier();
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
      return;
    }
    const absl::Status status = rank->Barrier();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_TRUE(Says(status, "waited too long for rank")) << status;
    EXPECT_TRUE(Says(status, absl::StrCat("rank ", absent))) << status;
    if (--waiting == 0) all_gave_up.Notify();
  });
}

}  // namespace
}  // namespace atl::collective
