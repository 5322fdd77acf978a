#include "coordinator/service/run_event_pages.h"

#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "atoll/v1/training_state_service.pb.h"
#include "base/rpc/chunk_codec.h"
#include "coordinator/store/testing/memory_store.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

// A disk that reads one record's page no earlier than the test says.
class SlowStore : public MemoryLogStore {
 public:
  absl::StatusOr<std::vector<storage::v1::Record>> Scan(
      const std::string& run_id, int64_t after_revision,
      int64_t count_max) const override {
    if (after_revision == slow_after) {
      asked.set_value();
      released.get_future().wait();
    }
    return MemoryLogStore::Scan(run_id, after_revision, count_max);
  }

  int64_t slow_after = -1;
  mutable std::promise<void> asked, released;
};

class RunEventPagesTest : public testing::Test {
 protected:
  // The run's log: island `i` joins with record i + 1.
  void Join(int count) {
    Batch batch;
    for (int i = 0; i < count; ++i) {
      LogEntry& entry = batch.entries.emplace_back();
      entry.run_id = "run";
      entry.record.set_revision(++revision_);
      storage::v1::MemberSet& member = *entry.record.mutable_member_set();
      member.set_slot(static_cast<int32_t>(revision_ - 1));
      member.set_island_id("island-" + std::to_string(revision_));
      member.set_state(v1::ISLAND_STATE_JOINING);
      member.set_island_epoch(1);
    }
    ASSERT_TRUE(store_.Append(batch).ok());
  }

  std::shared_ptr<const RunEventPage> Read(
      int64_t after, const IslandNames& names, int64_t durable = 0) {
    const auto page =
        pages_.Read(after, durable > 0 ? durable : revision_, names);
    EXPECT_TRUE(page.ok()) << page.status();
    return page.ok() ? *page : std::make_shared<const RunEventPage>();
  }

  SlowStore store_;
  RunEventPages pages_{store_, "run"};
  const IslandNames none_ = std::make_shared<const std::vector<std::string>>();
  int64_t revision_ = 0;
};

TEST_F(RunEventPagesTest, AThousandStreamsReadTheLogOnce) {
  Join(3);
  const auto first = Read(0, none_);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(Read(0, none_), first);
  EXPECT_EQ(first->end, 3);
  EXPECT_EQ(pages_.read_count(), 1);
  v1::WatchRunResponse response;
  ASSERT_TRUE(rpc::DecodeMessage(first->bytes, &response));
  EXPECT_EQ(response.events_size(), 3);
  Join(1);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(Read(3, first->names_after)->end, 4);
  }
  EXPECT_EQ(pages_.read_count(), 2);
}

TEST_F(RunEventPagesTest, AStreamDoesNotWaitForOneThatIsBehind) {
  Join(4);
  const auto newest = Read(3, none_);
  store_.slow_after = 1;
  std::thread behind([this] { Read(1, none_); });
  store_.asked.get_future().wait();
  EXPECT_EQ(Read(3, none_), newest);
  EXPECT_EQ(Read(2, none_)->end, 4);
  store_.released.set_value();
  behind.join();
}

TEST_F(RunEventPagesTest, APageNeverHasMoreThanIsDurable) {
  Join(3);
  EXPECT_EQ(Read(0, none_)->end, 3);
  EXPECT_EQ(Read(0, none_, 2)->end, 2);
  EXPECT_EQ(pages_.read_count(), 2);
}

TEST_F(RunEventPagesTest, OtherNamesGiveAnotherPage) {
  Join(1);
  const auto named =
      std::make_shared<const std::vector<std::string>>(2, "other");
  EXPECT_NE(Read(0, none_), Read(0, named));
  EXPECT_EQ(Read(0, named)->names_after->at(0), "island-1");
  EXPECT_EQ(Read(0, named)->names_after->at(1), "other");
}

TEST_F(RunEventPagesTest, KeepsTheNewestPagesOnly) {
  Join(static_cast<int>(RunEventPages::kPagesMax) + 1);
  for (int64_t end = 1; end <= revision_; ++end) Read(end - 1, none_, end);
  EXPECT_EQ(pages_.read_count(), revision_);
  Read(revision_ - 1, none_);
  EXPECT_EQ(pages_.read_count(), revision_);
  Read(0, none_, 1);
  EXPECT_EQ(pages_.read_count(), revision_ + 1);
}

TEST_F(RunEventPagesTest, ALogThatEndsEarlyIsAnError) {
  Join(1);
  EXPECT_TRUE(absl::IsUnavailable(pages_.Read(1, 2, none_).status()));
}

}  // namespace
}  // namespace atl::coordinator
