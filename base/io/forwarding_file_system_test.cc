#include "base/io/forwarding_file_system.h"

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/io/posix_file_system.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

std::string NewPath() {
  std::string pattern = testing::TempDir() + "/forwarded_XXXXXX";
  return std::string(mkdtemp(pattern.data())) + "/file";
}

// FileSystem::Lock has a default that locks nothing.
TEST(ForwardingFileSystemTest, LocksInTheOtherFileSystem) {
  const std::string path = NewPath();
  ForwardingFileSystem files(PosixFileSystem());
  const auto lock = files.Lock(path);
  ASSERT_TRUE(lock.ok()) << lock.status();
  EXPECT_TRUE(
      absl::IsFailedPrecondition(PosixFileSystem().Lock(path).status()));
}

// Counts calls that open a file for writing.
class CountingFileSystem : public ForwardingFileSystem {
 public:
  using ForwardingFileSystem::ForwardingFileSystem;

  int count = 0;

 protected:
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenWritable(
      const std::string& path, bool is_private) override {
    ++count;
    return ForwardingFileSystem::OpenWritable(path, is_private);
  }
};

TEST(ForwardingFileSystemTest, OneOverrideSeesPrivateFilesToo) {
  using std::filesystem::perms;
  CountingFileSystem files(PosixFileSystem());
  const std::string path = NewPath();
  ASSERT_TRUE(files.OpenPrivate(path).ok());
  EXPECT_EQ(files.count, 1);
  ASSERT_TRUE(files.OpenForWrite(path).ok());
  EXPECT_EQ(files.count, 2);
  EXPECT_EQ(std::filesystem::status(path).permissions(),
            perms::owner_read | perms::owner_write);
}

class FullFile : public ForwardingFile {
 public:
  using ForwardingFile::ForwardingFile;
  absl::Status WriteAt(int64_t offset,
                       absl::Span<const absl::string_view> pieces) override {
    return absl::ResourceExhaustedError("full");
  }
};

TEST(ForwardingFileTest, OneOverrideSeesStraightWritesToo) {
  FullFile file(*PosixFileSystem().OpenForWrite(NewPath()));
  EXPECT_TRUE(absl::IsResourceExhausted(file.WriteStraightAt(0, "bytes")));
}

}  // namespace
}  // namespace atl
