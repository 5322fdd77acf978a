#include "cli/volunteer/counting_store.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/object_store/object_store.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

TEST(CountingStoreTest, CountsWhatIsReadAndPassesItOn) {
  const std::string directory =
      absl::StrCat(testing::TempDir(), "/counting_", ::getpid());
  std::filesystem::create_directories(directory);
  std::ofstream(directory + "/a") << std::string(1000, 'a');
  int64_t count = 0;
  const worker::StoreOpener open = CountReads(
      worker::OpenStoreOfUrl, [&](int64_t bytes) { count += bytes; });
  const auto store = open("file://" + directory, [] { return false; });
  ASSERT_TRUE(store.ok()) << store.status();
  std::string read;
  const absl::Status done =
      (*store)->Read("a", {.offset = 100}, [&](absl::string_view bytes) {
        absl::StrAppend(&read, bytes);
        return absl::OkStatus();
      });
  EXPECT_TRUE(done.ok()) << done;
  EXPECT_EQ(read, std::string(900, 'a'));
  EXPECT_EQ(count, 900);
  EXPECT_FALSE(open("ftp://x", [] { return false; }).ok());
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace atl::cli
