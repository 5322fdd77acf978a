#include "worker/island/testing/tiny_run.h"

#include <random>

#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/layout/layout.h"
#include "coordinator/core/spec/validate_spec.h"
#include "gtest/gtest.h"

namespace atl::worker {
namespace {

TEST(TinyRunTest, HasALayoutThatEveryoneTakes) {
  for (int32_t fragment_count : {1, 2}) {
    TinyRunOptions options;
    options.fragment_count = fragment_count;
    const auto layout = RunLayout::Create(TinyRun(options).layout());
    ASSERT_TRUE(layout.ok()) << layout.status();
    EXPECT_EQ(layout->fragment_count(), fragment_count);
  }
}

TEST(TinyRunTest, TheCoordinatorAcceptsIt) {
  TinyRunOptions options;
  for (const bool adamw : {false, true}) {
    options.adamw = adamw;
    EXPECT_TRUE(coordinator::ValidateSpec(TinyRun(options)).empty());
  }
}

TEST(TinyRunTest, WritesTheSameTextForTheSameSeed) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  const auto text = [](uint64_t seed) {
    const auto read = ReadFile(PosixFileSystem(),
                               WriteTinyText(testing::TempDir(), seed, 5000));
    EXPECT_TRUE(read.ok()) << read.status();
    return *read;
  };
  EXPECT_EQ(text(seed).size(), 5000u);
  EXPECT_EQ(text(seed), text(seed));
  EXPECT_NE(text(seed), text(seed + 1));
}

}  // namespace
}  // namespace atl::worker
