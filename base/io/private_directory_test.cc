#include "base/io/private_directory.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/io/own_file.h"
#include "base/io/posix_file_system.h"
#include "base/status/refusal.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kOther = 12345;

class PrivateDirectoryTest : public testing::Test {
 protected:
  PrivateDirectoryTest()
      : root_(absl::StrCat(
            fs::canonical(testing::TempDir()).string(), "/private_",
            ::getpid(), "_",
            testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::create_directories(root_);
  }
  ~PrivateDirectoryTest() override { fs::remove_all(root_); }

  std::string Path(const std::string &name) { return root_ + "/" + name; }
  int Mode(const std::string &name) {
    return static_cast<int>(fs::status(Path(name)).permissions()) & 07777;
  }
  void Make(const std::string &name, int mode) {
    fs::create_directory(Path(name));
    ASSERT_EQ(::chmod(Path(name).c_str(), mode), 0);
  }
  void GiveAway(const std::string &name) {
    ASSERT_EQ(::lchown(Path(name).c_str(), kOther, kOther), 0);
  }
  void ExpectNotOurs(const absl::Status &status, const std::string &path) {
    EXPECT_TRUE(HasReason(status, "NOT_OURS")) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), path)) << status;
  }

  const std::string root_;
};

TEST_F(PrivateDirectoryTest, ANewOneIsForItsOwnerAlone) {
  ASSERT_TRUE(MakePrivateDirectory(Path("a/b")).ok());
  EXPECT_EQ(Mode("a/b"), 0700);
  ASSERT_TRUE(PrepareDataDirectory(Path("c/")).ok());
  EXPECT_EQ(Mode("c"), 0700);
}

TEST_F(PrivateDirectoryTest, AFileIsNoDirectory) {
  std::ofstream(Path("file")) << "x";
  EXPECT_FALSE(MakePrivateDirectory(Path("file")).ok());
}

TEST_F(PrivateDirectoryTest, AnEmptyDataDirectoryIsMadePrivate) {
  Make("a", 0755);
  ASSERT_TRUE(PrepareDataDirectory(Path("a")).ok());
  EXPECT_EQ(Mode("a"), 0700);
}

TEST_F(PrivateDirectoryTest, ADataDirectoryWithFilesKeepsItsMode) {
  Make("a", 0755);
  std::ofstream(Path("a/file")) << "x";
  ASSERT_TRUE(PrepareDataDirectory(Path("a")).ok());
  EXPECT_EQ(Mode("a"), 0755);
}

TEST_F(PrivateDirectoryTest, AGroupKeepsTheAccessThatItHas) {
  Make("volume", 02770);
  ASSERT_TRUE(PrepareDataDirectory(Path("volume")).ok());
  EXPECT_EQ(Mode("volume"), 02770);
}

TEST_F(PrivateDirectoryTest, RefusesADirectoryOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  Make("a", 0777);
  GiveAway("a");
  ExpectNotOurs(MakePrivateDirectory(Path("a")), Path("a"));
  ExpectNotOurs(PrepareDataDirectory(Path("a")), Path("a"));
  EXPECT_EQ(Mode("a"), 0777);
}

TEST_F(PrivateDirectoryTest, RefusesALinkOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  Make("mine", 0700);
  fs::create_directory_symlink("mine", Path("link"));
  EXPECT_TRUE(MakePrivateDirectory(Path("link")).ok());
  GiveAway("link");
  ExpectNotOurs(MakePrivateDirectory(Path("link")), Path("link"));
  ExpectNotOurs(MakePrivateDirectory(Path("link/")), Path("link"));
}

TEST_F(PrivateDirectoryTest, AnOwnerAboveCanLeadAPathElsewhere) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  Make("above", 0755);
  Make("above/mine", 0700);
  EXPECT_TRUE(CheckPathOwners(Path("above/mine")).ok());
  GiveAway("above");
  ExpectNotOurs(CheckPathOwners(Path("above/mine")), Path("above"));
}

TEST_F(PrivateDirectoryTest, SoCanAnyUserWithoutTheStickyBit) {
  Make("above", 0777);
  Make("above/mine", 0700);
  ExpectNotOurs(CheckPathOwners(Path("above/mine")), Path("above"));
  ASSERT_EQ(::chmod(Path("above").c_str(), 01777), 0);
  EXPECT_TRUE(CheckPathOwners(Path("above/mine")).ok());
}

TEST_F(PrivateDirectoryTest, AFileIsNotReplacedThroughALinkOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  std::ofstream(Path("secret")) << "1\n";
  fs::create_symlink("secret", Path("theirs"));
  fs::create_symlink("theirs", Path("mine"));
  GiveAway("theirs");
  for (const char *name : {"theirs", "mine"}) {
    ExpectNotOurs(ReplaceFile(PosixFileSystem(), Path(name), "x"),
                  Path("theirs"));
    ExpectNotOurs(WritePortFile(Path(name), "2"), Path("theirs"));
  }
  std::string text;
  std::ifstream(Path("secret")) >> text;
  EXPECT_EQ(text, "1");
}

TEST_F(PrivateDirectoryTest, AWriteFollowsNoLink) {
  fs::create_symlink("nowhere", Path("link"));
  for (const absl::Status &status :
       {PosixFileSystem().OpenForWrite(Path("link")).status(),
        PosixFileSystem().Lock(Path("link")).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  }
  EXPECT_FALSE(fs::exists(Path("nowhere")));
}

}  // namespace
}  // namespace atl
