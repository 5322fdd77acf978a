#include "server/replay/read_ahead.h"

#include <algorithm>
#include <atomic>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace atl::server {
namespace {

ReadAhead::Item MakeItem(size_t batch, size_t item) {
  const std::string text = absl::StrCat(batch, ".", item);
  return {.bytes = {text.begin(), text.end()}, .digests = {}};
}

std::string ToText(const std::vector<ReadAhead::Item>& items) {
  std::string text;
  for (const ReadAhead::Item& item : items) {
    absl::StrAppend(&text, std::string(item.bytes.begin(), item.bytes.end()),
                    " ");
  }
  return text;
}

TEST(ReadAheadTest, GivesBatchesAndItemsInTheirOrder) {
  for (const int thread_count : {1, 4}) {
    ReadAhead ahead(
        {2, 0, 3, 1}, thread_count,
        [](size_t batch, size_t item, std::stop_token) {
          return absl::StatusOr<ReadAhead::Item>(MakeItem(batch, item));
        });
    for (const char* expected : {"0.0 0.1 ", "", "2.0 2.1 2.2 ", "3.0 "}) {
      const auto batch = ahead.Next();
      ASSERT_TRUE(batch.ok()) << batch.status();
      EXPECT_EQ(ToText(*batch), expected);
    }
  }
}

// Each waits for the other, so sequential reads would never end.
TEST(ReadAheadTest, ReadsTheNextBatchWhileOneIsWorkedOn) {
  absl::Notification second_is_read;
  std::atomic<size_t> furthest{0};
  ReadAhead ahead({1, 1, 1, 1}, 2,
                  [&](size_t batch, size_t item, std::stop_token) {
                    furthest = std::max<size_t>(furthest, batch);
                    if (batch == 1) second_is_read.Notify();
                    return absl::StatusOr<ReadAhead::Item>(
                        MakeItem(batch, item));
                  });
  ASSERT_TRUE(ahead.Next().ok());
  second_is_read.WaitForNotification();
  // The third batch is not read before the second is taken.
  EXPECT_EQ(furthest, 1);
  ASSERT_TRUE(ahead.Next().ok());
}

TEST(ReadAheadTest, ReadsItemsOfABatchBesideEachOther) {
  absl::Notification begun[2];
  ReadAhead ahead({2}, 2, [&](size_t batch, size_t item, std::stop_token) {
    begun[item].Notify();
    begun[1 - item].WaitForNotification();
    return absl::StatusOr<ReadAhead::Item>(MakeItem(batch, item));
  });
  EXPECT_TRUE(ahead.Next().ok());
}

TEST(ReadAheadTest, AnErrorIsItsBatchsAndWhatIsBeforeItIsGiven) {
  for (const int thread_count : {1, 3}) {
    ReadAhead ahead({2, 3, 2}, thread_count,
                    [](size_t batch, size_t item, std::stop_token)
                        -> absl::StatusOr<ReadAhead::Item> {
                      if (batch == 1 && item == 1) {
                        return absl::DataLossError("1.1 is damaged");
                      }
                      return MakeItem(batch, item);
                    });
    EXPECT_TRUE(ahead.Next().ok());
    EXPECT_EQ(ahead.Next().status(), absl::DataLossError("1.1 is damaged"));
    EXPECT_EQ(ahead.Next().status(), absl::DataLossError("1.1 is damaged"));
  }
}

// The batch after the error is complete before the error is returned.
TEST(ReadAheadTest, AnErrorIsFinalAlsoForWhatWasReadAhead) {
  absl::Notification third_is_read;
  ReadAhead ahead({1, 1, 1, 1}, 2,
                  [&](size_t batch, size_t item, std::stop_token)
                      -> absl::StatusOr<ReadAhead::Item> {
                    if (batch == 1) {
                      third_is_read.WaitForNotification();
                      return absl::DataLossError("1.0 is damaged");
                    }
                    if (batch == 2) third_is_read.Notify();
                    return MakeItem(batch, item);
                  });
  EXPECT_TRUE(ahead.Next().ok());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(ahead.Next().status(), absl::DataLossError("1.0 is damaged"));
  }
}

TEST(ReadAheadTest, EndsWhatIsBeingRead) {
  absl::Notification begun;
  {
    ReadAhead ahead({1, 1}, 1,
                    [&](size_t, size_t, std::stop_token stop)
                        -> absl::StatusOr<ReadAhead::Item> {
                      absl::Notification stopped;
                      const std::stop_callback wake(
                          stop, [&] { stopped.Notify(); });
                      begun.Notify();
                      stopped.WaitForNotification();
                      return absl::CancelledError("stopped");
                    });
    begun.WaitForNotification();
  }
}

}  // namespace
}  // namespace atl::server
