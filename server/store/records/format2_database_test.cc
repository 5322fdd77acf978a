#include "server/store/records/format2_database.h"

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "server/store/testing/format2_writer.h"

namespace atl::server {
namespace {

TEST(Format2DatabaseTest, HasAllRecordsAndOneHolder) {
  const std::string directory = testing::TempDir() + "/database";
  WriteFormat2(directory, {{"a", "1"}, {"b/c", std::string("\0", 1)}});
  const auto database = Format2Database::Open(directory);
  ASSERT_TRUE(database.ok()) << database.status();
  EXPECT_EQ((*database)->records(),
            (std::map<std::string, std::string>{
                {"a", "1"}, {"b/c", std::string("\0", 1)}, {"format", "2"}}));
  EXPECT_TRUE(
      absl::IsFailedPrecondition(Format2Database::Open(directory).status()));
}

TEST(Format2DatabaseTest, AnotherFormatIsNotRead) {
  const std::string directory = testing::TempDir() + "/format";
  WriteFormat2(directory, {}, "999");
  const absl::Status opened = Format2Database::Open(directory).status();
  EXPECT_TRUE(absl::IsDataLoss(opened)) << opened;
  EXPECT_TRUE(absl::StrContains(opened.message(), "999")) << opened;
}

}  // namespace
}  // namespace atl::server
