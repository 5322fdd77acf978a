#include "coordinator/service/call_queue.h"

#include <string>

#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

struct Call {
  CallOrigin origin;
  std::string name;
};

Call MakeCall(CallRank rank, const std::string& run_id,
              const std::string& name) {
  Call call = {{}, name};
  call.origin.rank = rank;
  call.origin.run_id = run_id;
  return call;
}

std::string PopAll(CallQueue<Call>& queue) {
  std::string names;
  for (const CallRank rank : kCallRanks) {
    while (!queue.empty(rank)) names += queue.Pop(rank).name + " ";
  }
  EXPECT_TRUE(queue.empty());
  return names;
}

TEST(CallQueueTest, EachRankHasCallsOfItsOwn) {
  CallQueue<Call> queue;
  queue.Push(MakeCall(CallRank::kReader, "r", "reader"));
  queue.Push(MakeCall(CallRank::kOperator, "r", "operator"));
  queue.Push(MakeCall(CallRank::kIsland, "r", "island"));
  queue.Push(MakeCall(CallRank::kServer, "", "server"));
  EXPECT_EQ(PopAll(queue), "server island operator reader ");
  EXPECT_EQ(CallOrigin().rank, CallRank::kOperator);  // Our own events.
}

TEST(CallQueueTest, ARunThatFloodsWaitsForItsTurns) {
  CallQueue<Call> queue;
  for (const char* name : {"a1", "a2", "a3", "a4"}) {
    queue.Push(MakeCall(CallRank::kIsland, "a", name));
  }
  queue.Push(MakeCall(CallRank::kIsland, "b", "b1"));
  queue.Push(MakeCall(CallRank::kIsland, "b", "b2"));
  queue.Push(MakeCall(CallRank::kIsland, "c", "c1"));
  EXPECT_EQ(PopAll(queue), "a1 b1 c1 a2 b2 a3 a4 ");
}

TEST(CallQueueTest, ARunThatComesAgainIsLast) {
  CallQueue<Call> queue;
  queue.Push(MakeCall(CallRank::kIsland, "a", "a1"));
  queue.Push(MakeCall(CallRank::kIsland, "b", "b1"));
  queue.Push(MakeCall(CallRank::kIsland, "b", "b2"));
  EXPECT_EQ(queue.Pop(CallRank::kIsland).name, "a1");
  queue.Push(MakeCall(CallRank::kIsland, "a", "a2"));
  EXPECT_EQ(PopAll(queue), "b1 a2 b2 ");
}

}  // namespace
}  // namespace atl::coordinator
