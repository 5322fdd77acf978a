#include "cli/volunteer/transfer_account.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/io/private_directory.h"
#include "base/object_store/object_store.h"
#include "cli/ca/ca_files.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

class TransferAccountTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = absl::StrCat(testing::TempDir(), "/transfer_", ::getpid());
    std::filesystem::remove_all(directory_);
    ASSERT_TRUE(absl::LoadTimeZone("America/New_York", &zone_));
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  TransferAccount Open() {
    return TransferAccount::Open(directory_, zone_).value();
  }
  absl::Time At(int day, int hour) const {
    return absl::FromCivil(absl::CivilSecond(2026, 1, day, hour, 0, 0), zone_);
  }

  std::string directory_;
  absl::TimeZone zone_;
};

TEST_F(TransferAccountTest, CountsALocalDayOverRestarts) {
  TransferAccount first = Open();
  first.Add(100, At(5, 8));
  ASSERT_TRUE(first.Save().ok());
  TransferAccount second = Open();
  second.Add(20, At(5, 23));
  EXPECT_EQ(second.byte_count(), 120);
  second.Add(3, At(6, 0));
  EXPECT_EQ(second.byte_count(), 3);
  EXPECT_EQ(second.day(), absl::CivilDay(2026, 1, 6));
}

TEST_F(TransferAccountTest, AClockThatGoesBackGivesNoSecondAllowance) {
  TransferAccount account = Open();
  account.Add(100, At(5, 8));
  account.Add(10, At(4, 8));
  EXPECT_EQ(account.byte_count(), 110);
  ASSERT_TRUE(account.Save().ok());
  TransferAccount later = Open();
  later.Add(1, At(4, 0));
  EXPECT_EQ(later.byte_count(), 111);
  later.Add(1, At(5, 9));
  EXPECT_EQ(later.byte_count(), 112);
}

TEST_F(TransferAccountTest, AClockThatWasFarAheadIsForgotten) {
  TransferAccount account = Open();
  account.Add(100, At(25, 8));
  account.Add(10, At(5, 8));
  EXPECT_EQ(account.byte_count(), 10);
  EXPECT_EQ(account.day(), absl::CivilDay(2026, 1, 5));
}

TEST_F(TransferAccountTest, ADamagedFileIsAnErrorThatNamesIt) {
  ASSERT_TRUE(MakePrivateDirectory(directory_).ok());
  for (const char* text : {"", "{}", R"({"day":"x","bytes":1})",
                           R"({"day":"2026-01-05","bytes":-1})"}) {
    ASSERT_TRUE(WriteFileIn(directory_, "transfer.json", text).ok());
    const auto opened = TransferAccount::Open(directory_, zone_);
    EXPECT_TRUE(absl::IsDataLoss(opened.status())) << text;
    EXPECT_NE(opened.status().message().find("transfer.json"),
              std::string::npos);
  }
}

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
