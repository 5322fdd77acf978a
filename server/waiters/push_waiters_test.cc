#include "server/waiters/push_waiters.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Stream final : PushWaiter {
  void OnSettled(const absl::Status& status) override {
    settled.emplace_back(status.message());
  }
  void OnTooSlow(const absl::Status& status) override { OnSettled(status); }
  void OnDisplaced(const absl::Status& status) override { OnSettled(status); }

  std::vector<std::string> settled;
  std::shared_ptr<WaiterGate> gate = std::make_shared<WaiterGate>(this);
};

class PushWaitersTest : public testing::Test {
 protected:
  const ContributionKey key_ = {1, 0, 2, 3};
  Stream first_, second_;
  PushWaiters waiters_;
};

TEST_F(PushWaitersTest, TheLastThatSendsIsToldSo) {
  waiters_.Add(key_, first_.gate);
  waiters_.Add(key_, second_.gate);
  EXPECT_FALSE(waiters_.EndSending(key_, first_.gate.get()));
  EXPECT_TRUE(waiters_.EndSending(key_, second_.gate.get()));
  waiters_.Settle(key_, absl::UnavailableError("missing"));
  EXPECT_THAT(first_.settled, ElementsAre("missing"));
  EXPECT_THAT(second_.settled, ElementsAre("missing"));
}

TEST_F(PushWaitersTest, OneThatGoesAwaySendsNoMore) {
  waiters_.Add(key_, first_.gate);
  waiters_.Add(key_, second_.gate);
  EXPECT_FALSE(waiters_.EndSending(key_, first_.gate.get()));
  EXPECT_TRUE(waiters_.Remove(key_, second_.gate.get()));
  waiters_.Settle(key_, absl::UnavailableError("missing"));
  EXPECT_THAT(first_.settled, ElementsAre("missing"));
  EXPECT_THAT(second_.settled, IsEmpty());
}

// The first stream's contribution was refused and forgotten; the second stream
// carries another one under the same key.
TEST_F(PushWaitersTest, OneThatWasSettledSpeaksForNobodyElse) {
  waiters_.Add(key_, first_.gate);
  waiters_.Settle(key_, absl::InvalidArgumentError("refused"));
  waiters_.Add(key_, second_.gate);
  EXPECT_FALSE(waiters_.EndSending(key_, first_.gate.get()));
  EXPECT_TRUE(waiters_.EndSending(key_, second_.gate.get()));
  EXPECT_FALSE(waiters_.Remove(key_, first_.gate.get()));
  waiters_.Settle(key_, absl::OkStatus());
  EXPECT_THAT(first_.settled, ElementsAre("refused"));
  EXPECT_THAT(second_.settled, ElementsAre(""));
}

TEST_F(PushWaitersTest, ASlotsStreamsAreSettledTogetherAndNoOthers) {
  Stream other, import;
  waiters_.Add({1, 0, 2, 0}, first_.gate);
  waiters_.Add({1, 1, 2, 7}, second_.gate);
  waiters_.Add({1, 0, 0, 0}, other.gate);
  waiters_.Add(ContributionKey::OfImport(0), import.gate);
  EXPECT_THAT(waiters_.Slots(), ElementsAre(0, 2));
  waiters_.SettleSlot(2, absl::FailedPreconditionError("out"));
  EXPECT_THAT(first_.settled, ElementsAre("out"));
  EXPECT_THAT(second_.settled, ElementsAre("out"));
  EXPECT_THAT(other.settled, IsEmpty());
  waiters_.SettleSlot(0, absl::FailedPreconditionError("out"));
  EXPECT_THAT(other.settled, ElementsAre("out"));
  EXPECT_THAT(import.settled, IsEmpty());
  EXPECT_THAT(waiters_.Slots(), IsEmpty());
}

TEST_F(PushWaitersTest, OfManyThatWaitOneThatSendsNoMoreMakesRoom) {
  std::vector<std::unique_ptr<Stream>> streams;
  // Several keys of the slot, as after a restart.
  for (int64_t i = 0; i < PushWaiters::kWaitingMax; ++i) {
    streams.push_back(std::make_unique<Stream>());
    EXPECT_TRUE(waiters_.AddBounded({1, 0, 2, i % 3}, streams.back()->gate));
  }
  EXPECT_FALSE(waiters_.AddBounded(key_, first_.gate));
  EXPECT_TRUE(waiters_.AddBounded({1, 0, 1, 0}, second_.gate));
  EXPECT_TRUE(waiters_.AddBounded({1, 1, 2, 0}, second_.gate));
  EXPECT_FALSE(waiters_.EndSending({1, 0, 2, 1}, streams[4]->gate.get()));
  EXPECT_TRUE(waiters_.AddBounded(key_, first_.gate));
  EXPECT_THAT(first_.settled, IsEmpty());
  for (size_t i = 0; i < streams.size(); ++i) {
    EXPECT_EQ(streams[i]->settled.size(), i == 4 ? 1u : 0u) << i;
  }
  EXPECT_FALSE(waiters_.AddBounded(key_, second_.gate));
  waiters_.Remove({1, 0, 2, 0}, streams[0]->gate.get());
  EXPECT_TRUE(waiters_.AddBounded(key_, second_.gate));
}

}  // namespace
}  // namespace atl::server
