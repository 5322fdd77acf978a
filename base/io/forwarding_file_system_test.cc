#include "base/io/forwarding_file_system.h"

#include <cstdlib>
#include <string>

#include "absl/status/status.h"
#include "base/io/posix_file_system.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

// FileSystem::Lock has a default that locks nothing.
TEST(ForwardingFileSystemTest, LocksInTheOtherFileSystem) {
  std::string pattern = testing::TempDir() + "/forwarded_XXXXXX";
  const std::string path = std::string(mkdtemp(pattern.data())) + "/lock";
  ForwardingFileSystem files(PosixFileSystem());
  const auto lock = files.Lock(path);
  ASSERT_TRUE(lock.ok()) << lock.status();
  EXPECT_TRUE(
      absl::IsFailedPrecondition(PosixFileSystem().Lock(path).status()));
}

}  // namespace
}  // namespace atl
