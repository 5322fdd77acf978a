#include "cli/volunteer/data_consent.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Code = absl::StatusCode;

class DataConsentTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::canonical(testing::TempDir()) /
            absl::StrCat(
                "data_consent_", ::getpid(), "_",
                testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(root_ / "b/deep");
    fs::create_directories(root_ / "a");
    config_ = (root_ / "config/atoll").string();
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string At(const std::string& name) const {
    return (root_ / name).string();
  }
  std::vector<std::string> Allowed() const {
    const auto folders = ReadAllowedData(config_);
    EXPECT_TRUE(folders.ok()) << folders.status();
    return folders.value_or(std::vector<std::string>{"?"});
  }

  fs::path root_;
  std::string config_;
};

TEST_F(DataConsentTest, KeepsFoldersWithoutLinksForTheirOwnerAlone) {
  EXPECT_THAT(Allowed(), IsEmpty());
  fs::create_directory_symlink(root_ / "b", root_ / "link");
  EXPECT_EQ(*AllowData(config_, At("link/deep/..")), At("b"));
  EXPECT_EQ(*AllowData(config_, At("a") + "/"), At("a"));
  EXPECT_EQ(*AllowData(config_, At("a")), At("a"));
  EXPECT_THAT(Allowed(), ElementsAre(At("a"), At("b")));
  struct stat info {};
  ASSERT_EQ(::stat((config_ + "/data.consent").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(::stat(config_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(DataConsentTest, AFolderCanBeRemovedAlsoWhenItIsGone) {
  ASSERT_TRUE(AllowData(config_, At("a")).ok());
  ASSERT_TRUE(AllowData(config_, At("b")).ok());
  fs::remove(root_ / "a");
  EXPECT_EQ(*DisallowData(config_, At("a") + "/"), At("a"));
  EXPECT_THAT(Allowed(), ElementsAre(At("b")));
  EXPECT_EQ(DisallowData(config_, At("a")).status().code(), Code::kNotFound);
}

TEST_F(DataConsentTest, RefusesWhatIsNoFolderOrEverything) {
  std::ofstream(root_ / "file") << "x";
  EXPECT_EQ(AllowData(config_, At("file")).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(AllowData(config_, "/").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(AllowData(config_, At("nowhere")).status().code(), Code::kNotFound);
  EXPECT_EQ(AllowData("", At("a")).status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(Allowed(), IsEmpty());
  EXPECT_THAT(*ReadAllowedData(""), IsEmpty());
}

TEST_F(DataConsentTest, ADamagedFileAllowsNothing) {
  ASSERT_TRUE(AllowData(config_, At("a")).ok());
  for (const char* text : {"a", "/a\nb\n", "{\"folders\": []}", "/a\\"}) {
    std::ofstream(config_ + "/data.consent") << text;
    EXPECT_EQ(ReadAllowedData(config_).status().code(), Code::kDataLoss)
        << text;
  }
}

TEST_F(DataConsentTest, KeepsAnyName) {
  for (const char* name :
       {"line\nend", "\xff\xfe", "back\\slash", "\xc3\xa4"}) {
    fs::create_directories(At(name));
    EXPECT_EQ(*AllowData(config_, At(name)), At(name));
  }
  EXPECT_EQ(Allowed().size(), 4u);
  EXPECT_THAT(Allowed(), ::testing::Contains(At("line\nend")));
  EXPECT_THAT(Allowed(), ::testing::Contains(At("\xff\xfe")));
}

TEST_F(DataConsentTest, OfTwoAtOnceNoneIsLost) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    fs::create_directories(At(absl::StrCat("d", i)));
    threads.emplace_back([this, i] {
      EXPECT_TRUE(AllowData(config_, At(absl::StrCat("d", i))).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Allowed().size(), 8u);
}

}  // namespace
}  // namespace atl::cli
