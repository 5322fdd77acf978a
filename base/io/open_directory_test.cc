#include "base/io/open_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/io/forwarding_file_system.h"
#include "base/io/posix_file_system.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

namespace fs = std::filesystem;

class OpenDirectoryTest : public testing::Test {
 protected:
  OpenDirectoryTest()
      : root_(absl::StrCat(
            testing::TempDir(), "/open_directory_", ::getpid(), "_",
            testing::UnitTest::GetInstance()->current_test_info()->name())),
        path_(root_ + "/mine") {
    fs::create_directories(path_);
    opened_ = *OpenDirectory::Open(PosixFileSystem(), path_);
  }
  ~OpenDirectoryTest() override { fs::remove_all(root_); }

  std::string Path(const std::string &name) { return path_ + "/" + name; }
  std::string Text(const std::string &path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  const std::string root_;
  const std::string path_;
  std::unique_ptr<OpenDirectory> opened_;
};

TEST_F(OpenDirectoryTest, StaysTheSameWhenItsPathChanges) {
  fs::rename(path_, root_ + "/moved");
  fs::create_directories(path_);
  std::ofstream(Path("a")) << "of a person";
  EXPECT_EQ(*opened_->FindUse("a"), NameUse::kFree);
  {
    const auto file = opened_->Create("b");
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE((*file)->WriteAt(0, "ours").ok());
  }
  ASSERT_TRUE(opened_->Rename("b", "a").ok());
  ASSERT_TRUE(opened_->Sync().ok());
  EXPECT_EQ(opened_->List().value_or(std::vector<std::string>()),
            std::vector<std::string>{"a"});
  EXPECT_EQ(opened_->Read("a", 100).value_or(""), "ours");
  EXPECT_EQ(Text(Path("a")), "of a person");
  ASSERT_TRUE(opened_->Remove("a").ok());
  EXPECT_EQ(Text(Path("a")), "of a person");
  EXPECT_FALSE(fs::exists(root_ + "/moved/a"));
}

TEST_F(OpenDirectoryTest, ASharedDirectoryIsForOthersTooAndNoLink) {
  const mode_t mask = ::umask(0022);
  ASSERT_TRUE(opened_->MakeSharedSubdirectory("shared").ok());
  ::umask(mask);
  EXPECT_EQ(opened_->Look("shared")->st_mode & 0777, 0755u);
  EXPECT_TRUE(opened_->MakeSharedSubdirectory("shared").ok());
  EXPECT_EQ(opened_->OpenSharedSubdirectory("none").status().code(),
            absl::StatusCode::kNotFound);
  fs::create_directory_symlink("shared", Path("link"));
  EXPECT_EQ(opened_->MakeSharedSubdirectory("link").status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(OpenDirectoryTest, ALinkReplacesNothing) {
  std::ofstream(Path("a")) << "first";
  std::ofstream(Path("b")) << "second";
  EXPECT_EQ(opened_->Link("a", "b").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Text(Path("b")), "second");
  ASSERT_TRUE(opened_->Link("a", "c").ok());
  EXPECT_EQ(Text(Path("c")), "first");
  EXPECT_EQ(opened_->Link("none", "d").code(), absl::StatusCode::kNotFound);
}

TEST_F(OpenDirectoryTest, FollowsNoLinkInIt) {
  std::ofstream(root_ + "/secret") << "secret";
  fs::create_symlink("../secret", Path("link"));
  fs::create_symlink("nowhere", Path("dangling"));
  for (const char *name : {"link", "dangling"}) {
    EXPECT_EQ(*opened_->FindUse(name), NameUse::kOther);
    EXPECT_FALSE(opened_->Read(name, 100).ok());
    EXPECT_FALSE(opened_->OpenFile(name, O_RDWR | O_CREAT).ok());
    EXPECT_EQ(opened_->Create(name).status().code(),
              absl::StatusCode::kAlreadyExists);
  }
  ASSERT_TRUE(opened_->Remove("link").ok());
  EXPECT_EQ(Text(root_ + "/secret"), "secret");
  EXPECT_FALSE(fs::exists(Path("nowhere")));
}

// Puts a link in the place of a new file before it is opened for writing.
class AttackedFileSystem : public ForwardingFileSystem {
 public:
  explicit AttackedFileSystem(std::string root)
      : ForwardingFileSystem(PosixFileSystem()), root_(std::move(root)) {}

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenWritable(
      const std::string &path, bool is_private) override {
    fs::rename(root_ + "/mine/a", root_ + "/ours");
    fs::create_symlink("../secret", root_ + "/mine/a");
    return ForwardingFileSystem::OpenWritable(path, is_private);
  }

 private:
  const std::string root_;
};

TEST_F(OpenDirectoryTest, ALinkThatTakesTheNameOfANewFileGetsNoBytes) {
  std::ofstream(root_ + "/secret") << "secret";
  AttackedFileSystem attacked(root_);
  const auto opened = OpenDirectory::Open(attacked, path_);
  ASSERT_TRUE(opened.ok());
  const auto file = (*opened)->Create("a");
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->WriteAt(0, "new").ok());
  EXPECT_EQ(Text(root_ + "/secret"), "secret");
  EXPECT_EQ(Text(root_ + "/ours"), "new");
}

TEST_F(OpenDirectoryTest, KnowsFilesOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  std::ofstream(Path("a")) << "x";
  EXPECT_EQ(*opened_->FindUse("a"), NameUse::kFile);
  ASSERT_EQ(::chown(Path("a").c_str(), 1, -1), 0);
  EXPECT_EQ(*opened_->FindUse("a"), NameUse::kForeign);
  EXPECT_EQ(opened_->Read("a", 100).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(OpenDirectoryTest, ErrorsNameThePathOfThePerson) {
  for (const absl::Status &status :
       {opened_->Rename("absent", "b"), opened_->Remove("absent"),
        opened_->Read("absent", 100).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_TRUE(absl::StrContains(status.message(), Path("absent"))) << status;
  }
  std::ofstream(Path("long")) << "longer";
  const absl::Status status = opened_->Read("long", 3).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(absl::StrContains(status.message(), Path("long"))) << status;
  const auto file = opened_->Create("a");
  const absl::Status denied = (*file)->WriteAt(-1, "x");
  EXPECT_TRUE(absl::StrContains(denied.message(), Path("a"))) << denied;
}

}  // namespace
}  // namespace atl
