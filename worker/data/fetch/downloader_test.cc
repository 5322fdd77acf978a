#include "worker/data/fetch/downloader.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/codec/sha256.h"
#include "base/io/forwarding_file_system.h"
#include "base/io/posix_file_system.h"
#include "base/status/refusal.h"
#include "base/time/testing/fake_clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/fetch/testing/fake_store.h"

namespace atl::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A disk on which all files together may have `room` bytes.
class SmallDisk : public ForwardingFileSystem {
 public:
  SmallDisk(std::string directory, int64_t room)
      : ForwardingFileSystem(PosixFileSystem()),
        directory_(std::move(directory)),
        room_(room) {}

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenWritable(
      const std::string& path, bool is_private) override {
    auto file = ForwardingFileSystem::OpenWritable(path, is_private);
    if (!file.ok()) return file.status();
    return std::make_unique<File>(*this, *std::move(file));
  }

 private:
  class File : public ForwardingFile {
   public:
    File(SmallDisk& disk, std::unique_ptr<RandomAccessFile> file)
        : ForwardingFile(std::move(file)), disk_(disk) {}
    absl::Status WriteAt(int64_t offset,
                         absl::Span<const absl::string_view> pieces) override {
      int64_t bytes = 0;
      for (const absl::string_view piece : pieces) bytes += piece.size();
      if (disk_.Used() + bytes > disk_.room_) {
        return absl::ResourceExhaustedError("no space left on device");
      }
      return ForwardingFile::WriteAt(offset, pieces);
    }

   private:
    SmallDisk& disk_;
  };

  int64_t Used() const {
    int64_t used = 0;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(directory_)) {
      if (entry.is_regular_file()) used += entry.file_size();
    }
    return used;
  }

  const std::string directory_;
  const int64_t room_;
};

class DownloaderTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = absl::StrCat(
        testing::TempDir(), "/downloader_", ::getpid(), "_",
        testing::UnitTest::GetInstance()->current_test_info()->name());
    Open(1000, PosixFileSystem());
  }
  void TearDown() override {
    downloader_.reset();
    cache_.reset();
    std::filesystem::remove_all(root_);
  }

  void Open(int64_t cache_bytes_max, FileSystem& files) {
    cache_ = *ShardCache::Open(root_, cache_bytes_max, files);
    DownloaderOptions options;
    options.cache = cache_.get();
    options.open_store =
        [this](auto) -> absl::StatusOr<std::unique_ptr<ObjectStore>> {
      return source_.Open();
    };
    options.clock = &clock_;
    options.cancelled = [this] { return cancelled_; };
    options.on_failure = [this](const absl::Status& failure) {
      failures_.push_back(std::string(failure.message()));
    };
    options.pause = [this](absl::Duration wait) {
      pauses_.push_back(wait);
      clock_.Advance(wait);
      if (on_pause_) on_pause_();
    };
    options.bytes_per_second = bytes_per_second_;
    options.patience = patience_;
    downloader_ = std::make_unique<Downloader>(std::move(options));
  }

  ManifestFile Publish(const std::string& name, const std::string& bytes) {
    source_.Put(name, bytes);
    return {name, static_cast<int64_t>(bytes.size()),
            codec::ToHex(codec::ComputeSha256(bytes)), 2, false};
  }

  // The content of a fetched file.
  std::string Fetch(const ManifestFile& file, bool is_needed = true) {
    const auto reader = downloader_->Fetch(file, is_needed);
    EXPECT_TRUE(reader.ok()) << reader.status();
    if (!reader.ok()) return "";
    std::string bytes(file.size_bytes, '\0');
    EXPECT_TRUE((*reader)->ReadAt(0, absl::MakeSpan(bytes)).ok());
    return bytes;
  }

  std::vector<int64_t> Offsets() {
    std::vector<int64_t> offsets;
    for (const FakeSource::Call& call : source_.calls()) {
      offsets.push_back(call.offset);
    }
    return offsets;
  }

  std::string root_;
  FakeSource source_;
  FakeClock clock_;
  double bytes_per_second_ = 0;
  absl::Duration patience_ = absl::Hours(2);
  bool cancelled_ = false;
  std::vector<absl::Duration> pauses_;
  std::vector<std::string> failures_;
  std::function<void()> on_pause_;
  std::unique_ptr<ShardCache> cache_;
  std::unique_ptr<Downloader> downloader_;
};

constexpr char kText[] = "the quick brown fox jumps over the lazy dog, twice";

TEST_F(DownloaderTest, DownloadsOnceAndThenFindsItInTheCache) {
  const ManifestFile file = Publish("a", kText);
  EXPECT_EQ(Fetch(file), kText);
  EXPECT_EQ(Fetch(file), kText);
  EXPECT_THAT(Offsets(), ElementsAre(0));
  EXPECT_TRUE(pauses_.empty());
}

TEST_F(DownloaderTest, ResumesWhereAConnectionWasCut) {
  const ManifestFile file = Publish("a", kText);
  source_.AddFault({.status = absl::UnavailableError("cut"), .sent_bytes = 20});
  source_.AddFault({.status = absl::UnavailableError("cut"), .sent_bytes = 7});
  EXPECT_EQ(Fetch(file), kText);
  EXPECT_THAT(Offsets(), ElementsAre(0, 20, 27));
  EXPECT_THAT(pauses_, ElementsAre(absl::Seconds(1), absl::Seconds(1)));
}

TEST_F(DownloaderTest, ANewProcessResumesToo) {
  const ManifestFile file = Publish("a", kText);
  source_.AddFault(
      {.status = absl::PermissionDeniedError("no"), .sent_bytes = 20});
  EXPECT_EQ(downloader_->Fetch(file, false).status().code(),
            absl::StatusCode::kPermissionDenied);
  Open(1000, PosixFileSystem());
  EXPECT_EQ(Fetch(file), kText);
  EXPECT_THAT(Offsets(), ElementsAre(0, 20));
}

TEST_F(DownloaderTest, AWrongByteIsDownloadedAgain) {
  const ManifestFile file = Publish("a", kText);
  source_.AddFault({.flips_a_byte = true});
  EXPECT_EQ(Fetch(file), kText);
  EXPECT_THAT(Offsets(), ElementsAre(0, 0));
}

TEST_F(DownloaderTest, ASourceWithOtherBytesIsGivenUpByName) {
  const ManifestFile file = Publish("a", kText);
  source_.Put("a", std::string(file.size_bytes, 'x'));
  const absl::Status wrong = downloader_->Fetch(file, true).status();
  EXPECT_EQ(wrong.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(wrong.message()),
              HasSubstr("data file a from s3://fake/a is not the one"));
  EXPECT_EQ(source_.calls().size(), size_t{Downloader::kWrongMax});
  source_.Put("a", "short");
  EXPECT_EQ(downloader_->Fetch(file, true).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(DownloaderTest, WaitsForASourceThatIsAwayAndComesBack) {
  const ManifestFile file = Publish("a", kText);
  for (int i = 0; i < 8; ++i) {
    source_.AddFault({.status = absl::UnavailableError("away")});
  }
  EXPECT_EQ(Fetch(file), kText);
  EXPECT_EQ(pauses_.front(), absl::Seconds(1));
  EXPECT_EQ(pauses_.back(), Downloader::kBackoffMax);
  EXPECT_EQ(pauses_.size(), 8u);
}

TEST_F(DownloaderTest, GivesUpAfterTwoHoursWithHardlyAByte) {
  const ManifestFile file = Publish("a", kText);
  const absl::Time begin = clock_.Now();
  // A byte now and then is no progress.
  for (int i = 0; i < 2000; ++i) {
    source_.AddFault({.status = absl::UnavailableError("away"),
                      .sent_bytes = i % 20 == 0 ? 1 : 0});
  }
  const absl::Status away = downloader_->Fetch(file, true).status();
  EXPECT_EQ(away.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(away.message()),
              HasSubstr("less than 1024 bytes/s came for 2h"));
  EXPECT_GE(clock_.Now() - begin, absl::Minutes(120));
  EXPECT_LE(clock_.Now() - begin, absl::Minutes(125));
}

TEST_F(DownloaderTest, ASourceThatComesForwardIsNotGivenUp) {
  // 70 kB in each half a minute: more than 1 KiB/s.
  const ManifestFile file = Publish("a", std::string(350'000, 'x'));
  patience_ = absl::Minutes(1);
  Open(1'000'000, PosixFileSystem());
  const absl::Time begin = clock_.Now();
  for (int i = 0; i < 21; ++i) {
    source_.AddFault({.status = absl::UnavailableError("away"),
                      .sent_bytes = i % 5 == 0 ? 70'000 : 0});
  }
  EXPECT_TRUE(downloader_->Fetch(file, true).ok());
  EXPECT_GE(clock_.Now() - begin, absl::Minutes(2));
}

TEST_F(DownloaderTest, ARefusalMayBeMendedIfTheFileIsNeeded) {
  const ManifestFile file = Publish("a", kText);
  source_.AddFault({.status = absl::NotFoundError("404")});
  source_.AddFault({.status = absl::PermissionDeniedError("403")});
  source_.AddFault({.status = absl::ResourceExhaustedError("EMFILE")});
  EXPECT_EQ(Fetch(file), kText);
  EXPECT_THAT(pauses_, ElementsAre(absl::Seconds(1), absl::Seconds(2),
                                   absl::Seconds(4)));
  EXPECT_THAT(failures_, ElementsAre("404", "403", "EMFILE"));
}

TEST_F(DownloaderTest, ASourceThatIsFullForNowIsAskedAgain) {
  const ManifestFile file = Publish("a", kText);
  source_.AddFault({.status = RefuseForNow(
                        absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                        "too many calls wait", absl::Seconds(1))});
  EXPECT_TRUE(downloader_->Fetch(file, false).ok());
}

TEST_F(DownloaderTest, ARefusalThatLastsIsNamedWithARemedy) {
  ManifestFile file = Publish("a", kText);
  file.path = "b";
  EXPECT_TRUE(absl::IsNotFound(downloader_->Fetch(file, false).status()));
  EXPECT_EQ(source_.calls().size(), 1u);
  const absl::Time begin = clock_.Now();
  const absl::Status missing = downloader_->Fetch(file, true).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("s3://fake/b"));
  EXPECT_THAT(std::string(missing.message()), HasSubstr("atoll data publish"));
  EXPECT_GE(clock_.Now() - begin, absl::Hours(2));
}

TEST_F(DownloaderTest, EndsWhenItIsCancelled) {
  const ManifestFile file = Publish("a", kText);
  source_.SetOnPiece([this](const std::string&) { cancelled_ = true; });
  EXPECT_EQ(downloader_->Fetch(file, true).status().code(),
            absl::StatusCode::kCancelled);
  source_.SetOnPiece(nullptr);
  cancelled_ = false;
  source_.AddFault({.status = absl::UnavailableError("away")});
  on_pause_ = [this] { cancelled_ = true; };
  EXPECT_EQ(downloader_->Fetch(file, true).status().code(),
            absl::StatusCode::kCancelled);
}

TEST_F(DownloaderTest, KeepsToItsRate) {
  bytes_per_second_ = 10;
  Open(1000, PosixFileSystem());
  const absl::Time begin = clock_.Now();
  const ManifestFile file = Publish("a", std::string(160, 'x'));
  Fetch(file);
  // Each piece of 16 bytes waits for those before it.
  EXPECT_GE(clock_.Now() - begin, absl::Seconds(14));
  EXPECT_LE(clock_.Now() - begin, absl::Seconds(16));
}

TEST_F(DownloaderTest, AnotherProcessDownloadsIt) {
  const ManifestFile file = Publish("a", kText);
  const auto other = ShardCache::Open(root_, 1000, PosixFileSystem());
  auto part = (*other)->Write(file);
  ASSERT_TRUE(part.ok());
  int count = 0;
  on_pause_ = [&] {
    ++count;
    if (count < 50) return;  // Nothing else is done meanwhile.
    if (*part == nullptr) return;
    ASSERT_TRUE((*part)->Append(kText).ok());
    ASSERT_TRUE((*part)->Check().ok());
    ASSERT_TRUE((*part)->Commit().ok());
    part->reset();
  };
  EXPECT_EQ(Fetch(file), kText);
  EXPECT_TRUE(source_.calls().empty());
}

TEST_F(DownloaderTest, AnotherProcessDiesWhileItDownloads) {
  const ManifestFile file = Publish("a", kText);
  const auto other = ShardCache::Open(root_, 1000, PosixFileSystem());
  auto part = (*other)->Write(file);
  ASSERT_TRUE((*part)->Append(absl::string_view(kText, 5)).ok());
  on_pause_ = [&] { part->reset(); };
  EXPECT_EQ(Fetch(file), kText);
  EXPECT_THAT(Offsets(), ElementsAre(5));
}

TEST_F(DownloaderTest, TheCacheKeepsToItsSize) {
  Open(100, PosixFileSystem());
  const ManifestFile a = Publish("a", std::string(60, 'a'));
  const ManifestFile b = Publish("b", std::string(60, 'b'));
  Fetch(a);
  Fetch(b);
  EXPECT_EQ(*cache_->Find(a), nullptr);
  const ManifestFile big = Publish("big", std::string(101, 'x'));
  const absl::Status status = downloader_->Fetch(big, true).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--cache-size"));
}

TEST_F(DownloaderTest, OnlyANeededFileMayExceedTheSizeBesideFilesInUse) {
  Open(100, PosixFileSystem());
  const ManifestFile a = Publish("a", std::string(60, 'a'));
  const ManifestFile b = Publish("b", std::string(60, 'b'));
  const auto reader = downloader_->Fetch(a, true);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(downloader_->Fetch(b, /*is_needed=*/false).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Fetch(b), std::string(60, 'b'));
  EXPECT_EQ(Fetch(a), std::string(60, 'a'));
}

TEST_F(DownloaderTest, AFullDiskRemovesOldFilesFirst) {
  SmallDisk disk(root_, 100);
  Open(1000, disk);
  const ManifestFile a = Publish("a", std::string(60, 'a'));
  const ManifestFile b = Publish("b", std::string(60, 'b'));
  Fetch(a);
  EXPECT_EQ(Fetch(b), std::string(60, 'b'));
  EXPECT_EQ(*cache_->Find(a), nullptr);
  const auto in_use = cache_->Find(b);
  const absl::Status full = downloader_->Fetch(a, true).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), HasSubstr("--data-cache"));
}

}  // namespace
}  // namespace atl::worker
