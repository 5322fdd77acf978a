#include "worker/island/mailbox.h"

#include <thread>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace atl::worker {
namespace {

v1::IslandPlan Plan(int64_t revision, int64_t version) {
  v1::IslandPlan plan;
  plan.set_revision(revision);
  plan.add_cut()->set_version(version);
  return plan;
}

TEST(MailboxTest, HandsOverTheNewestPlanOnly) {
  Mailbox mailbox;
  IslandLoop loop("run");
  v1::JoinResponse joined;
  joined.set_island_epoch(1);
  mailbox.PutJoined(joined);
  mailbox.PutPlan(Plan(1, 0));
  mailbox.PutPlan(Plan(2, 0));
  mailbox.DrainInto(loop);
  EXPECT_TRUE(loop.joined());
  EXPECT_EQ(loop.plan().revision(), 2);
}

TEST(MailboxTest, AJoinForgetsThePlansOfTheLifeBefore) {
  Mailbox mailbox;
  IslandLoop loop("run");
  mailbox.PutPlan(Plan(9, 0));
  v1::JoinResponse joined;
  *joined.mutable_plan() = Plan(3, 0);
  mailbox.PutJoined(joined);
  mailbox.DrainInto(loop);
  EXPECT_EQ(loop.plan().revision(), 3);
}

TEST(MailboxTest, APlanStopsATransferThatItMakesObsolete) {
  Mailbox mailbox;
  const std::stop_token stop = mailbox.BeginTransfer(
      [](const v1::IslandPlan& plan) { return plan.cut(0).version() > 4; });
  mailbox.PutPlan(Plan(1, 4));
  EXPECT_FALSE(stop.stop_requested());
  mailbox.PutPlan(Plan(2, 5));
  EXPECT_TRUE(stop.stop_requested());
}

TEST(MailboxTest, APlanThatComesWithAJoinStopsItToo) {
  Mailbox mailbox;
  const std::stop_token stop = mailbox.BeginTransfer(
      [](const v1::IslandPlan& plan) { return plan.cut(0).version() > 4; });
  v1::JoinResponse joined;
  *joined.mutable_plan() = Plan(1, 4);
  mailbox.PutJoined(joined);
  EXPECT_FALSE(stop.stop_requested());
  *joined.mutable_plan() = Plan(1, 5);
  mailbox.PutJoined(joined);
  EXPECT_TRUE(stop.stop_requested());
}

TEST(MailboxTest, APlanThatCameJustBeforeCountsToo) {
  Mailbox mailbox;
  mailbox.PutPlan(Plan(1, 5));
  EXPECT_TRUE(mailbox
                  .BeginTransfer([](const v1::IslandPlan& plan) {
                    return plan.cut(0).version() > 4;
                  })
                  .stop_requested());
  mailbox.EndTransfer();
  mailbox.StopTransfer();  // Nothing is under way: no harm.
}

TEST(MailboxTest, NewsEndAWait) {
  Mailbox mailbox;
  std::thread waiter([&] { mailbox.Wait(absl::Hours(1)); });
  mailbox.Wake();
  waiter.join();
}

}  // namespace
}  // namespace atl::worker
