#include "base/io/own_file.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/io/posix_file_system.h"
#include "base/io/testing/fake_file_system.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

namespace fs = std::filesystem;

class OwnFileTest : public testing::Test {
 protected:
  OwnFileTest()
      : root_(absl::StrCat(
            testing::TempDir(), "/own_file_", ::getpid(), "_",
            testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::create_directories(root_);
  }
  ~OwnFileTest() override { fs::remove_all(root_); }

  std::string Path(const std::string &name) { return root_ + "/" + name; }
  void Put(const std::string &name, const std::string &bytes) {
    std::ofstream(Path(name)) << bytes;
  }
  std::string Text(const std::string &name) {
    std::ifstream in(Path(name));
    return {std::istreambuf_iterator<char>(in), {}};
  }
  int FileCount() {
    return static_cast<int>(std::distance(fs::directory_iterator(root_), {}));
  }

  const std::string root_;
};

TEST_F(OwnFileTest, ReplacesOneFileAndNoOther) {
  Put("a", "old");
  Put("a.tmp", "the person's own");
  ASSERT_TRUE(ReplaceFile(PosixFileSystem(), Path("a"), "new").ok());
  EXPECT_EQ(Text("a"), "new");
  EXPECT_EQ(Text("a.tmp"), "the person's own");
  EXPECT_EQ(FileCount(), 2);
}

TEST_F(OwnFileTest, FollowsALink) {
  Put("real", "old");
  fs::create_symlink("real", Path("link"));
  ASSERT_TRUE(ReplaceFile(PosixFileSystem(), Path("link"), "new").ok());
  EXPECT_TRUE(fs::is_symlink(Path("link")));
  EXPECT_EQ(Text("real"), "new");
}

TEST_F(OwnFileTest, AFullDiskLeavesTheOldFileAlone) {
  FakeFileSystem files;
  ASSERT_TRUE(ReplaceFile(files, "/a", "old").ok());
  files.SetFull();
  EXPECT_EQ(ReplaceFile(files, "/a", "new and longer").code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(*files.List("/"), std::vector<std::string>({"a"}));
}

TEST_F(OwnFileTest, MakesOnlyNewFiles) {
  ASSERT_TRUE(CreateNewFile(Path("new")).ok());
  EXPECT_EQ(CreateNewFile(Path("new")).code(),
            absl::StatusCode::kAlreadyExists);
  fs::create_symlink("nowhere", Path("link"));
  EXPECT_EQ(CreateNewFile(Path("link")).code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_FALSE(fs::exists(Path("nowhere")));
  EXPECT_EQ(*FindNameUse(Path("new")), NameUse::kFile);
  EXPECT_EQ(*FindNameUse(Path("link")), NameUse::kOther);
  EXPECT_EQ(*FindNameUse(root_), NameUse::kOther);
  EXPECT_EQ(*FindNameUse(Path("absent")), NameUse::kFree);
}

TEST_F(OwnFileTest, APortFileReplacesOnlyAPortFile) {
  ASSERT_TRUE(WritePortFile(Path("port"), "4711").ok());
  EXPECT_EQ(Text("port"), "4711\n");
  ASSERT_TRUE(WritePortFile(Path("port"), "host:4712").ok());
  ASSERT_TRUE(WritePortFile(Path("port"), "4713").ok());
  for (const std::string &text :
       {std::string("127.0.0.1 localhost\n"), std::string("4711"),
        std::string("4711\n4712\n"), std::string("\n"),
        std::string(1000, '1')}) {
    Put("port", text);
    EXPECT_EQ(WritePortFile(Path("port"), "4714").code(),
              absl::StatusCode::kAlreadyExists);
    EXPECT_EQ(Text("port"), text);
  }
}

}  // namespace
}  // namespace atl
