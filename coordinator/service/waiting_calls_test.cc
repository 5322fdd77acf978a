#include "coordinator/service/waiting_calls.h"

#include <string>

#include "base/status/refusal.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

CallOrigin Of(const std::string& caller, const std::string& run_id,
              size_t bytes = 1, CallRank rank = CallRank::kOperator) {
  return {caller, run_id, bytes, nullptr, rank};
}

WaitingCalls::Bounds Small() {
  return {.all = {6, 100},
          .a_run = {4, 60},
          .a_run_readers = {4, 60},
          .a_caller = {2, 30},
          .a_reader = {2, 30}};
}

TEST(WaitingCallsTest, ACallerTakesOnlyItsPart) {
  WaitingCalls calls(Small());
  EXPECT_TRUE(calls.Admit(Of("a", "")).ok());
  EXPECT_TRUE(calls.Admit(Of("a", "")).ok());
  const absl::Status refused = calls.Admit(Of("a", ""));
  EXPECT_TRUE(HasReason(refused, "QUEUE_FULL"));
  EXPECT_TRUE(IsAway(refused));
  EXPECT_TRUE(calls.Admit(Of("b", "")).ok());
  calls.Release(Of("a", ""));
  EXPECT_TRUE(calls.Admit(Of("a", "")).ok());
  // Plaintext has one bound for all.
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(calls.Admit(Of("", "")).ok());
  EXPECT_FALSE(calls.Admit(Of("", "")).ok());
}

TEST(WaitingCallsTest, AReaderTakesLessThanOthers) {
  WaitingCalls::Bounds bounds = Small();
  bounds.a_reader = {1, 10};
  WaitingCalls calls(bounds);
  CallOrigin reader = Of("reader", "");
  reader.rank = CallRank::kReader;
  EXPECT_TRUE(calls.Admit(reader).ok());
  EXPECT_TRUE(HasReason(calls.Admit(reader), "QUEUE_FULL"));
  EXPECT_TRUE(calls.Admit(Of("island", "")).ok());
  EXPECT_TRUE(calls.Admit(Of("island", "")).ok());
}

TEST(WaitingCallsTest, ARunTakesOnlyItsPart) {
  WaitingCalls calls(Small());
  for (const char* caller : {"a", "b", "c", "d"}) {
    EXPECT_TRUE(calls.Admit(Of(caller, "flooded")).ok());
  }
  EXPECT_FALSE(calls.Admit(Of("e", "flooded")).ok());
  EXPECT_TRUE(calls.Admit(Of("e", "other")).ok());
}

TEST(WaitingCallsTest, MembersLeaveRoomForServersAndForEachOther) {
  WaitingCalls::Bounds bounds = Small();
  bounds.islands = bounds.readers = {2, 60};
  WaitingCalls calls(bounds);
  const auto admit = [&](const std::string& caller, CallRank rank) {
    return calls.Admit(Of(caller, "", 1, rank));
  };
  for (const char* caller : {"a", "b"}) {
    EXPECT_TRUE(admit(caller, CallRank::kReader).ok());
  }
  const absl::Status refused = admit("c", CallRank::kReader);
  EXPECT_TRUE(HasReason(refused, "QUEUE_FULL"));
  EXPECT_EQ(refused.message(),
            "too many calls of readers wait for the coordinator");
  for (const char* caller : {"d", "e"}) {
    EXPECT_TRUE(admit(caller, CallRank::kIsland).ok());
  }
  EXPECT_FALSE(admit("f", CallRank::kIsland).ok());
  EXPECT_TRUE(admit("server:s", CallRank::kServer).ok());
  EXPECT_TRUE(admit("operator:o", CallRank::kOperator).ok());
  calls.Release(Of("d", "", 1, CallRank::kIsland));
  EXPECT_TRUE(admit("f", CallRank::kIsland).ok());
}

// Else readers of a run could stop its heartbeats, and its islands could keep
// an operator from revoking them.
TEST(WaitingCallsTest, EachRankHasItsPartOfARun) {
  WaitingCalls calls(
      {.all = {100, 1000}, .a_run = {2, 60}, .a_run_readers = {2, 60}});
  for (const CallRank rank :
       {CallRank::kReader, CallRank::kIsland, CallRank::kOperator}) {
    for (const char* caller : {"a", "b"}) {
      EXPECT_TRUE(calls.Admit(Of(caller, "flooded", 1, rank)).ok());
    }
    EXPECT_FALSE(calls.Admit(Of("c", "flooded", 1, rank)).ok());
  }
}

TEST(WaitingCallsTest, BytesCountToo) {
  WaitingCalls calls(Small());
  EXPECT_TRUE(calls.Admit(Of("a", "run", 20)).ok());
  EXPECT_FALSE(calls.Admit(Of("a", "run", 11)).ok());
  EXPECT_TRUE(calls.Admit(Of("a", "run", 10)).ok());
  EXPECT_TRUE(calls.Admit(Of("b", "run", 30)).ok());
  EXPECT_FALSE(calls.Admit(Of("c", "run")).ok());
  EXPECT_FALSE(calls.Admit(Of("c", "other", 41)).ok());
  calls.Release(Of("b", "run", 30));
  EXPECT_TRUE(calls.Admit(Of("c", "run", 30)).ok());
}

TEST(WaitingCallsTest, ACallAboveABoundIsAdmittedAlone) {
  WaitingCalls calls(Small());
  EXPECT_TRUE(calls.Admit(Of("a", "run", 1000)).ok());
  EXPECT_FALSE(calls.Admit(Of("b", "")).ok());
  calls.Release(Of("a", "run", 1000));
  EXPECT_TRUE(calls.Admit(Of("b", "")).ok());
}

}  // namespace
}  // namespace atl::coordinator
