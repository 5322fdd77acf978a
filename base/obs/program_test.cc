#include "base/obs/program.h"

#include <sys/resource.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

using ::testing::HasSubstr;

// Returns what RaiseOpenFileLimit logs.
std::string Raise(rlim_t soft, rlim_t hard) {
  const rlimit limit = {soft, hard};
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(RaiseOpenFileLimit(), hard);
  rlimit after = {};
  EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_EQ(after.rlim_cur, hard);
  return ::testing::internal::GetCapturedStderr();
}

// One test only: the process keeps the lowest hard limit that it set.
TEST(ProgramTest, TakesAsManyOpenFilesAsItMayHaveAndTellsIfTheyAreFew) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  if (before.rlim_max < 4096) GTEST_SKIP() << "few are allowed here";
  EXPECT_EQ(Raise(256, 4096), "");
  EXPECT_THAT(Raise(256, 4095), HasSubstr("may have 4095 open files"));
}

}  // namespace
}  // namespace atl
