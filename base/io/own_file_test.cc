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

TEST_F(OwnFileTest, AnOwnFileRemovesOnlyWhatACrashLeft) {
  const std::string id(32, 'a');
  Put("a." + id + ".tmp", "half");
  for (const std::string &name :
       {std::string("a.tmp"), std::string("a.b.tmp"), std::string("b.a.tmp"),
        "a." + id, "b." + id + ".tmp"}) {
    Put(name, "the person's own");
  }
  ASSERT_TRUE(ReplaceOwnFile(PosixFileSystem(), Path("a"), {"ne", "w"}).ok());
  EXPECT_EQ(Text("a"), "new");
  EXPECT_FALSE(fs::exists(Path("a." + id + ".tmp")));
  EXPECT_EQ(FileCount(), 6);
}

TEST_F(OwnFileTest, AnOwnFileReplacesALink) {
  Put("real", "the person's own");
  fs::create_symlink("real", Path("link"));
  ASSERT_TRUE(ReplaceOwnFile(PosixFileSystem(), Path("link"), {"new"}).ok());
  EXPECT_FALSE(fs::is_symlink(Path("link")));
  EXPECT_EQ(Text("real"), "the person's own");
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
