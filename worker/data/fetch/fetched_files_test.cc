#include "worker/data/fetch/fetched_files.h"

#include <unistd.h>

#include <filesystem>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/codec/sha256.h"
#include "base/io/posix_file_system.h"
#include "base/sync/mutex.h"
#include "base/sync/testing/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/core/data_awaited.h"
#include "worker/data/fetch/testing/fake_store.h"

namespace atl::worker {
namespace {

using ::testing::ElementsAre;

constexpr absl::Duration kWaitMax = absl::Seconds(60);

class FetchedFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = absl::StrCat(
        testing::TempDir(), "/fetched_files_", ::getpid(), "_",
        testing::UnitTest::GetInstance()->current_test_info()->name());
    for (int i = 0; i < 4; ++i) {
      const std::string bytes(20 + i, static_cast<char>('a' + i));
      source_.Put(absl::StrCat("f", i), bytes);
      manifest_.push_back(
          {absl::StrCat("f", i), static_cast<int64_t>(bytes.size()),
           codec::ToHex(codec::ComputeSha256(bytes)), 2, false});
    }
  }
  void TearDown() override {
    files_.reset();
    std::filesystem::remove_all(root_);
  }

  void Start(int64_t cache_bytes_max = 1000) {
    DownloaderOptions options;
    options.open_store =
        [this](auto) -> absl::StatusOr<std::unique_ptr<ObjectStore>> {
      return source_.Open();
    };
    files_ = std::make_unique<FetchedFiles>(
        manifest_, *ShardCache::Open(root_, cache_bytes_max, PosixFileSystem()),
        std::move(options), stop_.get_token(), [this] {
          MutexLock lock(&mutex_);
          ++news_count_;
          news_.SignalAll();
        });
  }

  // Waits for news that came since the last call.
  void WaitForNews() {
    MutexLock lock(&mutex_);
    EXPECT_TRUE(news_.AwaitWithTimeout(&mutex_, kWaitMax,
                                       [&] { return news_count_ > seen_; }));
    ++seen_;
  }

  std::string Read(int32_t index) {
    const auto reader = files_->Open(index);
    EXPECT_TRUE(reader.ok()) << reader.status();
    if (!reader.ok()) return "";
    std::string bytes(manifest_[index].size_bytes, '\0');
    EXPECT_TRUE((*reader)->ReadAt(0, absl::MakeSpan(bytes)).ok());
    return bytes;
  }

  std::vector<std::string> Names() {
    std::vector<std::string> names;
    for (const FakeSource::Call& call : source_.calls()) {
      names.push_back(call.name);
    }
    return names;
  }

  std::string root_;
  FakeSource source_;
  std::vector<ManifestFile> manifest_;
  std::stop_source stop_;
  Mutex mutex_;
  CondVar news_;
  int news_count_ = 0;
  int seen_ = 0;
  std::unique_ptr<FetchedFiles> files_;
};

TEST_F(FetchedFilesTest, OpensWhatIsNeeded) {
  Start();
  EXPECT_EQ(Read(2), std::string(22, 'c'));
  EXPECT_EQ(Read(0), std::string(20, 'a'));
  EXPECT_EQ(Read(2), std::string(22, 'c'));
  EXPECT_THAT(Names(), ElementsAre("f2", "f0"));
}

TEST_F(FetchedFilesTest, TheNextFileComesWhileOneIsRead) {
  Notification ahead;
  source_.SetOnPiece([&](const std::string& name) {
    if (name == "f1") ahead.Notify();
  });
  Start();
  EXPECT_EQ(Read(0), std::string(20, 'a'));
  files_->Prefetch(1);
  files_->Prefetch(1);
  ahead.WaitWithTimeout(kWaitMax);
  EXPECT_EQ(Read(1), std::string(21, 'b'));
  EXPECT_THAT(Names(), ElementsAre("f0", "f1"));
}

TEST_F(FetchedFilesTest, ANeededFileInterruptsOneThatIsFetchedAhead) {
  Notification begun, go;
  source_.SetOnPiece([&](const std::string& name) {
    if (name != "f1" || begun.HasBeenNotified()) return;
    begun.Notify();
    go.WaitWithTimeout(kWaitMax);
  });
  Start();
  files_->Prefetch(1);
  begun.WaitWithTimeout(kWaitMax);
  std::thread reader([&] { EXPECT_EQ(Read(3), std::string(23, 'd')); });
  go.Notify();
  reader.join();
  EXPECT_EQ(Read(1), std::string(21, 'b'));
}

TEST_F(FetchedFilesTest, WhatFailedAheadIsTriedAgainWhenItIsNeeded) {
  Notification begun;
  source_.SetOnPiece([&](const std::string&) { begun.Notify(); });
  source_.AddFault(
      {.status = absl::PermissionDeniedError("not yet"), .sent_bytes = 1});
  Start();
  files_->Prefetch(1);
  begun.WaitWithTimeout(kWaitMax);
  files_->Prefetch(2);
  EXPECT_EQ(Read(2), std::string(22, 'c'));
  EXPECT_EQ(Read(1), std::string(21, 'b'));
  source_.AddFault({.status = absl::InvalidArgumentError("no")});
  EXPECT_EQ(files_->Open(3).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Read(3), std::string(23, 'd'));
}

TEST_F(FetchedFilesTest, WhatIsNotHereIsAwaitedWithoutWaiting) {
  Notification begun, go;
  source_.SetOnPiece([&](const std::string&) {
    begun.Notify();
    go.WaitWithTimeout(kWaitMax);
  });
  Start();
  const absl::Status awaited = files_->Ready({1, 2});
  EXPECT_TRUE(IsDataAwaited(awaited)) << awaited;
  EXPECT_EQ(awaited.message(), "file f1, 0 %");
  begun.WaitWithTimeout(kWaitMax);
  EXPECT_TRUE(IsDataAwaited(files_->Ready({1, 2})));
  go.Notify();
  while (!files_->Ready({1, 2}).ok()) WaitForNews();
  // Both stay until they are opened.
  EXPECT_TRUE(files_->Ready({1, 2}).ok());
  EXPECT_EQ(Read(2), std::string(22, 'c'));
  EXPECT_EQ(Read(1), std::string(21, 'b'));
  EXPECT_THAT(Names(), ElementsAre("f1", "f2"));
}

TEST_F(FetchedFilesTest, WhatCannotComeIsTheErrorOfReadyOnce) {
  source_.AddFault({.status = absl::InvalidArgumentError("no")});
  Start();
  EXPECT_TRUE(IsDataAwaited(files_->Ready({3})));
  WaitForNews();
  EXPECT_TRUE(absl::IsInvalidArgument(files_->Ready({3})));
  EXPECT_TRUE(IsDataAwaited(files_->Ready({3})));
  WaitForNews();
  EXPECT_TRUE(files_->Ready({3}).ok());
}

TEST_F(FetchedFilesTest, AfterAStopDataIsStillAwaited) {
  Start();
  stop_.request_stop();
  EXPECT_TRUE(IsDataAwaited(files_->Ready({0})));
}

TEST_F(FetchedFilesTest, AStopEndsAWait) {
  Notification waits;
  source_.SetOnPiece([&](const std::string&) { waits.Notify(); });
  for (int i = 0; i < 1000; ++i) {
    source_.AddFault({.status = absl::UnavailableError("away"),
                      .sent_bytes = i == 0 ? 1 : 0});
  }
  Start();
  std::thread stopper([&] {
    waits.WaitWithTimeout(kWaitMax);
    stop_.request_stop();
  });
  EXPECT_EQ(files_->Open(0).status().code(), absl::StatusCode::kCancelled);
  stopper.join();
  EXPECT_EQ(files_->Open(0).status().code(), absl::StatusCode::kCancelled);
}

TEST_F(FetchedFilesTest, EndsInTheMiddleOfADownload) {
  Notification begun;
  source_.SetOnPiece([&](const std::string&) { begun.Notify(); });
  source_.AddFault({.status = absl::UnavailableError("away"), .sent_bytes = 5});
  Start();
  files_->Prefetch(0);
  begun.WaitWithTimeout(kWaitMax);
  files_.reset();
  Start();
  EXPECT_EQ(Read(0), std::string(20, 'a'));
}

TEST_F(FetchedFilesTest, TwoIslandsOfAMachineDownloadOnce) {
  Notification begun, go;
  source_.SetOnPiece([&](const std::string&) {
    if (begun.HasBeenNotified()) return;
    begun.Notify();
    go.WaitWithTimeout(kWaitMax);
  });
  Start();
  std::thread first([&] { EXPECT_EQ(Read(0), std::string(20, 'a')); });
  begun.WaitWithTimeout(kWaitMax);
  DownloaderOptions options;
  options.open_store =
      [this](auto) -> absl::StatusOr<std::unique_ptr<ObjectStore>> {
    return source_.Open();
  };
  FetchedFiles second(manifest_,
                      *ShardCache::Open(root_, 1000, PosixFileSystem()),
                      std::move(options), {});
  go.Notify();
  EXPECT_TRUE(second.Open(0).ok());
  first.join();
  EXPECT_THAT(Names(), ElementsAre("f0"));
}

}  // namespace
}  // namespace atl::worker
