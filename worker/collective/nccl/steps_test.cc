// Runs the steps of all ranks as NCCL would, and checks the results.

#include "worker/collective/nccl/steps.h"

#include <cstdint>
#include <cstring>
#include <deque>
#include <iostream>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "worker/collective/call.h"

namespace atl::collective {
namespace {

using Words = std::vector<float>;

class StepsTest : public testing::Test {
 protected:
  StepsTest() : random_(std::random_device()()), n_(2 + random_() % 4) {}

  // A number that encodes its writer and position.
  static Words Input(int rank, int64_t count) {
    Words words(count);
    for (int64_t i = 0; i < count; ++i) {
      words[i] = static_cast<float>(1000 * rank + i);
    }
    return words;
  }

  // Matches the sends and receives of each pair in order.
  void RunMoves(const std::vector<Call>& calls, int64_t step_bytes) {
    std::map<std::pair<int, int>, std::deque<Step>> sent;
    std::vector<std::vector<Step>> steps;
    for (int r = 0; r < n_; ++r) {
      steps.push_back(PlanSteps(calls[r], r, n_));
      for (const Step& step : steps.back()) {
        if (step.kind == StepKind::kSend) sent[{r, step.peer}].push_back(step);
      }
    }
    for (int r = 0; r < n_; ++r) {
      for (const Step& step : steps[r]) {
        if (step.kind == StepKind::kCopy) {
          std::memcpy(step.out, step.in, step.count * step_bytes);
        } else if (step.kind == StepKind::kReceive) {
          auto& queue = sent[{step.peer, r}];
          ASSERT_FALSE(queue.empty());
          ASSERT_EQ(queue.front().count, step.count);
          std::memcpy(step.out, queue.front().in, step.count * step_bytes);
          queue.pop_front();
        } else {
          ASSERT_EQ(step.kind, StepKind::kSend);
        }
      }
    }
    for (const auto& [pair, queue] : sent) EXPECT_TRUE(queue.empty());
  }

  std::mt19937_64 random_;
  const int n_;
};

TEST_F(StepsTest, AScatterGivesEachRankItsRow) {
  const int64_t count = 3;
  const int root = static_cast<int>(random_() % n_);
  Words in = Input(root, n_ * count);
  std::vector<Words> out(n_, Words(count));
  std::vector<Call> calls;
  for (int r = 0; r < n_; ++r) {
    calls.push_back(Call::Scatter(DataType::kF32,
                                  r == root ? in.data() : nullptr,
                                  out[r].data(), count, root));
  }
  RunMoves(calls, sizeof(float));
  for (int r = 0; r < n_; ++r) {
    EXPECT_EQ(out[r],
              Words(in.begin() + r * count, in.begin() + (r + 1) * count));
  }
}

TEST_F(StepsTest, AGatherBringsAllRowsToTheRoot) {
  const int64_t count = 2;
  const int root = static_cast<int>(random_() % n_);
  std::vector<Words> in;
  Words out(n_ * count), expected;
  std::vector<Call> calls;
  for (int r = 0; r < n_; ++r) in.push_back(Input(r, count));
  for (int r = 0; r < n_; ++r) {
    expected.insert(expected.end(), in[r].begin(), in[r].end());
    calls.push_back(Call::Gather(DataType::kF32, in[r].data(),
                                 r == root ? out.data() : nullptr, count,
                                 root));
  }
  RunMoves(calls, sizeof(float));
  EXPECT_EQ(out, expected);
}

TEST_F(StepsTest, AllToAllEvenOrNotBringsEachPartWhereItBelongs) {
  for (bool even : {true, false}) {
    std::vector<std::vector<int64_t>> counts(n_, std::vector<int64_t>(n_, 3));
    for (auto& row : counts) {
      for (int64_t& c : row) c = even ? 3 : static_cast<int64_t>(random_() % 4);
    }
    std::vector<Words> in(n_), out(n_), expected(n_);
    for (int r = 0; r < n_; ++r) {
      int64_t total = 0;
      for (int64_t c : counts[r]) total += c;
      in[r] = Input(r, total + 1);
    }
    std::vector<Call> calls;
    for (int r = 0; r < n_; ++r) {
      std::vector<int64_t> receive;
      for (int p = 0; p < n_; ++p) {
        int64_t before = 0;
        for (int q = 0; q < r; ++q) before += counts[p][q];
        expected[r].insert(expected[r].end(), in[p].begin() + before,
                           in[p].begin() + before + counts[p][r]);
        receive.push_back(counts[p][r]);
      }
      out[r].resize(expected[r].size());
      calls.push_back(
          even ? Call::AllToAll(DataType::kF32, in[r].data(), out[r].data(), 3)
               : Call::AllToAllUneven(DataType::kF32, in[r].data(),
                                      out[r].data(), counts[r], receive));
    }
    RunMoves(calls, sizeof(float));
    EXPECT_EQ(out, expected);
  }
}

TEST_F(StepsTest, TransfersStayInOrderAndAreBytes) {
  char a[3] = {1, 2, 3}, b[3] = {};
  std::vector<Call> calls(n_);
  for (Call& call : calls) call = Call::Transfers({});
  calls[0] = Call::Transfers({SendTo(1, a, 1), SendTo(1, a + 1, 2)});
  calls[1] = Call::Transfers({ReceiveFrom(0, b, 1), ReceiveFrom(0, b + 1, 2)});
  RunMoves(calls, 1);
  EXPECT_EQ(std::memcmp(a, b, 3), 0);
}

TEST_F(StepsTest, WhatNcclHasIsOneStepAndNothingIsNone) {
  float x[8] = {};
  const auto kinds = [&](const Call& call) {
    std::vector<StepKind> kinds;
    for (const Step& step : PlanSteps(call, 0, 2)) kinds.push_back(step.kind);
    return kinds;
  };
  using Kinds = std::vector<StepKind>;
  const DataType f32 = DataType::kF32;
  EXPECT_EQ(kinds(Call::Barrier()), Kinds());
  EXPECT_EQ(kinds(Call::Broadcast(f32, x, 2, 0)), Kinds{StepKind::kBroadcast});
  EXPECT_EQ(kinds(Call::Broadcast(f32, x, 0, 0)), Kinds());
  EXPECT_EQ(kinds(Call::AllGather(f32, x, x, 2)), Kinds{StepKind::kAllGather});
  EXPECT_EQ(kinds(Call::AllReduce(f32, Reduction::kSum, x, x, 2)),
            Kinds{StepKind::kAllReduce});
  EXPECT_EQ(kinds(Call::Reduce(f32, Reduction::kMax, x, x, 2, 1)),
            Kinds{StepKind::kReduce});
  EXPECT_EQ(kinds(Call::ReduceScatter(f32, Reduction::kSum, x, x, 2)),
            Kinds{StepKind::kReduceScatter});
}

}  // namespace
}  // namespace atl::collective
