// The world of devices over an emulated NCCL, whose streams are threads.

#include "worker/collective/nccl/nccl_world.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <iostream>
#include <latch>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/sync/testing/notification.h"
#include "gtest/gtest.h"
#include "worker/collective/call.h"
#include "worker/collective/collective.h"
#include "worker/collective/local/local_world.h"
#include "worker/collective/nccl/testing/emulated_nccl.h"
#include "worker/collective/testing/random_program.h"
#include "worker/collective/testing/ranks.h"

namespace atl::collective {
namespace {

using Rank = std::unique_ptr<Collective>;

cudaStream_t NewStream() {
  cudaStream_t stream = nullptr;
  EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
            cudaSuccess);
  return stream;
}

// The first call of a world. No rank goes on before all have made it: an abort
// ends the calls of slower ranks.
void Connect(Rank& rank, std::latch& all) {
  EXPECT_TRUE(rank->Barrier().ok());
  all.arrive_and_wait();
}

// Wait() blocks the host too, as tests of host memory need.
class Synchronous final : public Collective {
 public:
  Synchronous(Rank inner, cudaStream_t stream)
      : inner_(std::move(inner)), stream_(stream) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }
  absl::Status Run(const Call& call) override {
    return Synchronized(inner_->Run(call));
  }
  Pending Start(Call call) override {
    return Pending(std::make_unique<Work>(
        *this, inner_->Start(std::move(call))));
  }
  absl::StatusOr<Rank> Split(int color, absl::string_view name) override {
    absl::StatusOr<Rank> group = inner_->Split(color, name);
    if (!group.ok() || *group == nullptr) return group;
    return std::make_unique<Synchronous>(*std::move(group), stream_);
  }
  void Abort(absl::string_view reason) override { inner_->Abort(reason); }
  absl::Status status() const override { return inner_->status(); }

 private:
  class Work final : public Pending::Work {
   public:
    Work(Synchronous& group, Pending pending)
        : group_(group), pending_(std::move(pending)) {}
    absl::Status Wait() override {
      return group_.Synchronized(pending_.Wait());
    }

   private:
    Synchronous& group_;
    Pending pending_;
  };

  absl::Status Synchronized(absl::Status status) {
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    status.Update(inner_->status());
    return status;
  }

  const Rank inner_;
  const cudaStream_t stream_;
};

class NcclWorldTest : public testing::Test {
 protected:
  NcclWorldTest() : seed_(std::random_device()()) {
    std::cout << "seed " << seed_ << std::endl;
  }
  ~NcclWorldTest() override {
    ranks_.clear();
    for (cudaStream_t stream : streams_) {
      EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    }
    FailNoCommunicators();
    OnAbortedSplit(nullptr);
    RunOneKernelAtATime(false);
  }

  std::vector<Rank>& Make(int size, bool check_calls = false,
                          absl::Duration timeout = absl::Minutes(2)) {
    ranks_.clear();
    controls_.clear();
    control_ = std::make_unique<LocalWorld>(size);
    controls_ = control_->TakeRanks();
    ranks_.resize(size);
    for (int r = 0; r < size; ++r) streams_.push_back(NewStream());
    RunRanks(ranks_, [&](int r, Rank& rank) {
      NcclOptions options;
      options.compute_stream = streams_[r];
      options.call_timeout = timeout;
      options.check_calls = check_calls;
      auto joined = JoinNccl(*controls_[r], options);
      ASSERT_TRUE(joined.ok()) << joined.status();
      rank = *std::move(joined);
    });
    return ranks_;
  }
  // As Make, with results that the host may read.
  std::vector<Rank>& MakeSynchronous(int size, bool check_calls) {
    Make(size, check_calls);
    for (int r = 0; r < size; ++r) {
      ranks_[r] =
          std::make_unique<Synchronous>(std::move(ranks_[r]), streams_[r]);
    }
    return ranks_;
  }

  const uint64_t seed_;
  std::unique_ptr<LocalWorld> control_;
  std::vector<Rank> controls_;
  std::vector<cudaStream_t> streams_;
  std::vector<Rank> ranks_;
};

bool Says(const absl::Status& status, absl::string_view text) {
  return absl::StrContains(status.message(), text);
}

TEST_F(NcclWorldTest, EveryCallGivesWhatItsDefinitionSays) {
  for (const int size : {1, 2, 3, 4}) {
    RunRanks(MakeSynchronous(size, size % 2 == 0), [&](int r, Rank& rank) {
      EXPECT_EQ(rank->rank(), r);
      EXPECT_EQ(rank->size(), size);
      EXPECT_EQ(rank->name(), "world");
      RunRandomProgram(seed_, /*call_count=*/60, /*count_max=*/300, *rank);
      rank.reset();
    });
  }
}

TEST_F(NcclWorldTest, SplitsByColorIntoStreamsOfTheirOwn) {
  RunRanks(MakeSynchronous(4, false), [&](int r, Rank& rank) {
    auto half = rank->Split(r % 2, "half");
    ASSERT_TRUE(half.ok()) << half.status();
    EXPECT_EQ((*half)->rank(), r / 2);
    EXPECT_EQ((*half)->size(), 2);
    EXPECT_EQ((*half)->name(), "world/half");
    auto without = rank->Split(r == 0 ? -1 : 3, "without");
    ASSERT_TRUE(without.ok()) << without.status();
    EXPECT_EQ(*without == nullptr, r == 0);
    RunRandomProgram(seed_ + r % 2, 20, 100, **half);
    if (*without != nullptr) RunRandomProgram(seed_, 20, 100, **without);
    // A group of a group outlives it.
    auto pair = (*half)->Split(0, "pair");
    ASSERT_TRUE(pair.ok()) << pair.status();
    half->reset();
    RunRandomProgram(seed_ + 7 + r % 2, 10, 100, **pair);
  });
}

// Computation is slow, and the host never waits for it.
TEST_F(NcclWorldTest, CallsFollowComputationAndComputationFollowsThem) {
  constexpr int kRounds = 20;
  std::vector<std::vector<float>> data(2, std::vector<float>(1000, 1));
  Notification go;
  std::atomic<int> here{0};
  RunRanks(Make(2), [&](int r, Rank& rank) {
    const cudaStream_t stream = streams_[r];
    float* const own = data[r].data();
    Launch(stream, [&go] { go.WaitWithTimeout(absl::Minutes(2)); });
    for (int i = 0; i < kRounds; ++i) {
      Launch(stream, [own] { own[0] += 1; });
      Pending pending = rank->Start(Call::AllReduce(
          DataType::kF32, Reduction::kSum, own, own, 1000));
      ASSERT_TRUE(pending.Wait().ok());
      Launch(stream, [own] { own[0] /= 2; });
    }
    // The streams have not run yet, and the host did not wait.
    EXPECT_EQ(own[0], 1);
    if (++here == 2) go.Notify();
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(own[0], 1 + kRounds);
    EXPECT_EQ(own[999], 1 << kRounds);
  });
}

// cudaErrorNotReady of a running call must not stay as the last error.
TEST_F(NcclWorldTest, WaitingLeavesNoErrorBehind) {
  RunRanks(Make(2), [&](int r, Rank& rank) {
    if (r == 0) Launch(streams_[0], [] { AwaitUnreadyQueries(100); });
    EXPECT_TRUE(rank->Barrier().ok());
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  });
}

// The emulator ends the process if a communicator is split too early.
TEST_F(NcclWorldTest, AGroupIsSplitOnceItsCallsHaveEnded) {
  std::vector<std::vector<float>> data(2, std::vector<float>(10, 1));
  RunRanks(Make(2), [&](int r, Rank& rank) {
    float* const own = data[r].data();
    for (int i = 0; i < 10; ++i) {
      Pending pending = rank->Start(
          Call::AllReduce(DataType::kF32, Reduction::kSum, own, own, 10));
      auto group = rank->Split(0, "group");
      EXPECT_TRUE(group.ok()) << group.status();
    }
  });
}

TEST_F(NcclWorldTest, AWaitIsBoundedAndTheCallIsNamed) {
  std::vector<float> data(10);
  Notification gave_up;
  RunRanks(Make(2, false, absl::Seconds(3)), [&](int r, Rank& rank) {
    // The first call connects, so the next one waits on the stream.
    ASSERT_TRUE(rank->Barrier().ok());
    if (r == 1) {
      EXPECT_TRUE(gave_up.WaitWithTimeout(absl::Minutes(2)));
      // Bytes that the other rank sent may be enough for one call.
      absl::Status status = rank->Barrier();
      if (status.ok()) status = rank->Barrier();
      EXPECT_FALSE(status.ok());
      return;
    }
    const absl::Status status = rank->Barrier();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_TRUE(Says(status, "barrier")) << status;
    EXPECT_EQ(rank->Barrier(), status);
    EXPECT_EQ(rank->status(), status);
    gave_up.Notify();
  });
}

// The timeout also bounds the wait for a rank that makes no first call.
TEST_F(NcclWorldTest, TheFirstCallOfAGroupIsBoundedToo) {
  Notification gave_up;
  RunRanks(Make(2, false, absl::Seconds(3)), [&](int r, Rank& rank) {
    if (r == 1) {
      EXPECT_TRUE(gave_up.WaitWithTimeout(absl::Minutes(2)));
      EXPECT_FALSE(rank->Barrier().ok());
      return;
    }
    float value = 1;
    const absl::Status status = rank->AllReduce(absl::MakeSpan(&value, 1));
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_TRUE(Says(status, "all-reduce")) << status;
    gave_up.Notify();
  });
}

TEST_F(NcclWorldTest, AbortReachesRanksThatWaitInOtherGroups) {
  std::latch split(3);
  RunRanks(Make(3), [&](int r, Rank& rank) {
    auto pair = rank->Split(r == 2 ? 1 : 0, "pair");
    split.arrive_and_wait();  // An abort would end a slower rank's split.
    ASSERT_TRUE(pair.ok()) << pair.status();
    if (r == 2) return rank->Abort("out of memory");
    const absl::Status status =
        r == 0 ? rank->Barrier()
               : [&] {
                   (void)(*pair)->Barrier();
                   return (*pair)->status();
                 }();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_TRUE(Says(status, "out of memory")) << status;
    EXPECT_TRUE(Says(status, "rank 2")) << status;
  });
}

// Prefetching, as FSDP does beside tp: the gather is queued behind the tp call,
// and the tp call waits for a rank that does not come.
TEST_F(NcclWorldTest, AnAbortEndsGroupsThatWaitForEachOther) {
  std::vector<std::vector<float>> data(2, std::vector<float>(10, 1));
  Notification queued;
  RunRanks(Make(2), [&](int r, Rank& rank) {
    auto gather = rank->Split(0, "gather");
    ASSERT_TRUE(gather.ok()) << gather.status();
    auto tp = rank->Split(0, "tp");
    ASSERT_TRUE(tp.ok()) << tp.status();
    // The first calls connect.
    ASSERT_TRUE((*gather)->Barrier().ok());
    ASSERT_TRUE((*tp)->Barrier().ok());
    if (r == 1) {
      EXPECT_TRUE(queued.WaitWithTimeout(absl::Minutes(2)));
      return rank->Abort("out of memory");
    }
    EXPECT_TRUE((*tp)->AllReduce(absl::MakeSpan(data[0])).ok());
    EXPECT_TRUE((*gather)->AllReduce(absl::MakeSpan(data[0])).ok());
    queued.Notify();
    const absl::Status status = rank->Barrier();
    EXPECT_TRUE(Says(status, "out of memory")) << status;
  });
}

// The abort of rank 0 waits for its kernel; rank 1 must not wait for the abort.
TEST_F(NcclWorldTest, OtherRanksHearOfAnAbortBeforeItEnds) {
  Notification heard;
  std::latch connected(2);
  RunRanks(Make(2), [&](int r, Rank& rank) {
    Connect(rank, connected);
    if (r == 1) {
      const absl::Status status = rank->Barrier();
      EXPECT_TRUE(Says(status, "out of memory")) << status;
      return heard.Notify();
    }
    Launch(streams_[0],
           [&heard] { heard.WaitWithTimeout(absl::Minutes(2)); });
    Pending pending = rank->Start(Call::Barrier());
    rank->Abort("out of memory");
    EXPECT_TRUE(heard.HasBeenNotified());
    EXPECT_FALSE(pending.Wait().ok());
  });
}

// NCCL writes a split's result until the abort has ended.
TEST_F(NcclWorldTest, ASplitEndsAfterItsAbort) {
  Notification returned;
  std::atomic<bool> returned_early{false};
  std::latch connected(2);
  RunRanks(Make(2), [&](int r, Rank& rank) {
    Connect(rank, connected);
    if (r == 1) {
      // Its own end is told before rank 0 has its group.
      OnAbortedSplit([&] {
        if (returned.WaitWithTimeout(absl::Milliseconds(300))) {
          returned_early = true;
        }
      });
      auto control = controls_[1]->Split(0, "group");
      return rank->Abort("out of memory");
    }
    const auto group = rank->Split(0, "group");
    returned.Notify();
    EXPECT_TRUE(Says(group.status(), "out of memory")) << group.status();
  });
  EXPECT_FALSE(returned_early);
}

// A device that cannot run two collective kernels at once needs one order of
// them on all ranks.
TEST_F(NcclWorldTest, DevicesStartTheCallsOfAllGroupsInTheHostsOrder) {
  std::vector<std::vector<float>> data(2, std::vector<float>(20, 1));
  RunRanks(Make(2, false, absl::Seconds(5)), [&](int r, Rank& rank) {
    auto first = rank->Split(0, "first");
    ASSERT_TRUE(first.ok()) << first.status();
    auto second = rank->Split(0, "second");
    ASSERT_TRUE(second.ok()) << second.status();
    ASSERT_TRUE((*first)->Barrier().ok());
    ASSERT_TRUE((*second)->Barrier().ok());
    RunOneKernelAtATime(true);
    float* const own = data[r].data();
    Pending one = (*first)->Start(
        Call::AllReduce(DataType::kF32, Reduction::kSum, own, own, 10));
    Pending two = (*second)->Start(Call::AllReduce(
        DataType::kF32, Reduction::kSum, own + 10, own + 10, 10));
    EXPECT_TRUE(one.Wait().ok());
    EXPECT_TRUE(two.Wait().ok());
    EXPECT_EQ(cudaStreamSynchronize(streams_[r]), cudaSuccess);
    EXPECT_TRUE(rank->status().ok()) << rank->status();
    EXPECT_EQ(own[0], 2);
    EXPECT_EQ(own[19], 2);
    RunOneKernelAtATime(false);
  });
}

TEST_F(NcclWorldTest, WhatNcclFindsEndsTheWorldForAll) {
  std::latch connected(2);
  RunRanks(Make(2), [&](int r, Rank& rank) {
    Connect(rank, connected);
    // This rank makes no further call: its watchdog notices.
    if (r == 1) return FailCommunicators(1);
    const absl::Status status = rank->Barrier();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_TRUE(Says(status, "NCCL failed")) << status;
    EXPECT_TRUE(Says(status, "rank 1")) << status;
  });
  EXPECT_TRUE(Says(ranks_[1]->status(), "NCCL failed"));
}

TEST_F(NcclWorldTest, CallsThatDifferAreNamedWhereCallsAreChecked) {
  std::atomic<int> named{0};
  std::vector<float> data(2 * 64);
  RunRanks(Make(2, true), [&](int r, Rank& rank) {
    float* const own = data.data() + 64 * r;
    const absl::Status status = rank->Run(Call::AllReduce(
        DataType::kF32, Reduction::kSum, own, own, 8 + r));
    // A slower rank may hear of the end first.
    if (status.code() == absl::StatusCode::kInvalidArgument) ++named;
    EXPECT_TRUE(Says(status, "all-reduce sum of 8 f32")) << status;
    EXPECT_TRUE(Says(status, "all-reduce sum of 9 f32")) << status;
    EXPECT_FALSE(rank->Barrier().ok());
  });
  EXPECT_GE(named, 1);
}

TEST_F(NcclWorldTest, ARankThatLeavesWhenDoneHarmsNobody) {
  std::vector<std::vector<float>> data(3, std::vector<float>(5000, 1));
  RunRanks(Make(3), [&](int r, Rank& rank) {
    for (int i = 0; i < 5; ++i) {
      auto group = rank->Split(0, "short");
      ASSERT_TRUE(group.ok()) << group.status();
      ASSERT_TRUE((*group)->AllReduce(absl::MakeSpan(data[r])).ok());
    }
    EXPECT_TRUE(rank->Barrier().ok());
    EXPECT_EQ(data[r][4999], 243);
    rank.reset();
  });
}

}  // namespace
}  // namespace atl::collective
