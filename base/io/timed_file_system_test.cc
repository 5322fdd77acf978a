#include "base/io/timed_file_system.h"

#include <cerrno>
#include <memory>
#include <vector>

#include "base/io/forwarding_file_system.h"
#include "base/io/testing/fake_file_system.h"
#include "base/time/testing/fake_clock.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

// A file that nothing writes through the page cache.
class StraightFile : public ForwardingFile {
 public:
  using ForwardingFile::ForwardingFile;
  absl::Status WriteAt(int64_t offset,
                       absl::Span<const absl::string_view> pieces) override {
    return absl::UnimplementedError("not straight");
  }
  absl::Status WriteStraightAt(int64_t offset,
                               absl::string_view bytes) override {
    return file().WriteAt(offset, bytes);
  }
};

// Syncing a directory takes two seconds. The file "straight" is a StraightFile.
class SlowFileSystem : public ForwardingFileSystem {
 public:
  SlowFileSystem(FileSystem& files, FakeClock& clock)
      : ForwardingFileSystem(files), clock_(clock) {}
  absl::Status SyncDirectory(const std::string& path) override {
    clock_.Advance(absl::Seconds(2));
    return ForwardingFileSystem::SyncDirectory(path);
  }

 protected:
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenWritable(
      const std::string& path, bool is_private) override {
    auto file = ForwardingFileSystem::OpenWritable(path, is_private);
    if (!file.ok() || path != "straight") return file;
    return std::make_unique<StraightFile>(*std::move(file));
  }

 private:
  FakeClock& clock_;
};

class TimedFileSystemTest : public testing::Test {
 protected:
  FakeFileSystem disk_;
  FakeClock clock_;
  SlowFileSystem slow_{disk_, clock_};
  std::vector<absl::Duration> syncs_;
  TimedFileSystem fs_{slow_, clock_, [this](absl::Duration duration) {
                        syncs_.push_back(duration);
                      }};
};

TEST_F(TimedFileSystemTest, TellsTheTimeOfEachSync) {
  const auto file = fs_.OpenForWrite("file");
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->WriteAt(0, "bytes").ok());
  EXPECT_TRUE(syncs_.empty());
  ASSERT_TRUE((*file)->Sync().ok());
  ASSERT_TRUE(fs_.SyncDirectory(".").ok());
  EXPECT_EQ(syncs_, (std::vector<absl::Duration>{absl::ZeroDuration(),
                                                 absl::Seconds(2)}));
}

TEST_F(TimedFileSystemTest, AStraightWriteStaysStraight) {
  const auto file = fs_.OpenForWrite("straight");
  ASSERT_TRUE(file.ok()) << file.status();
  const absl::Status written = (*file)->WriteStraightAt(0, "bytes");
  EXPECT_TRUE(written.ok()) << written;
}

TEST_F(TimedFileSystemTest, TellsTheTimeOfASyncThatFails) {
  const auto file = fs_.OpenForWrite("file");
  ASSERT_TRUE(file.ok()) << file.status();
  disk_.AddFault({FakeFileSystem::Fault::Call::kSync, "file", EIO});
  EXPECT_TRUE(absl::IsDataLoss((*file)->Sync()));
  EXPECT_EQ(syncs_.size(), 1);
}

}  // namespace
}  // namespace atl
