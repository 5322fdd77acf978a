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

// Syncing a directory takes two seconds.
class SlowFileSystem : public ForwardingFileSystem {
 public:
  SlowFileSystem(FileSystem& files, FakeClock& clock)
      : ForwardingFileSystem(files), clock_(clock) {}
  absl::Status SyncDirectory(const std::string& path) override {
    clock_.Advance(absl::Seconds(2));
    return ForwardingFileSystem::SyncDirectory(path);
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

TEST_F(TimedFileSystemTest, TellsTheTimeOfASyncThatFails) {
  const auto file = fs_.OpenForWrite("file");
  ASSERT_TRUE(file.ok()) << file.status();
  disk_.AddFault({FakeFileSystem::Fault::Call::kSync, "file", EIO});
  EXPECT_TRUE(absl::IsDataLoss((*file)->Sync()));
  EXPECT_EQ(syncs_.size(), 1);
}

}  // namespace
}  // namespace atl
