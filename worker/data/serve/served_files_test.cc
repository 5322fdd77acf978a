#include "worker/data/serve/served_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/codec/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/serve/testing/published_directory.h"

namespace atl::worker {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;
namespace fs = std::filesystem;

class ServedFilesTest : public ::testing::Test {
 protected:
  ServedFilesTest() { published_.Write("secret.txt", "secret"); }

  absl::Status OpenStatus() const {
    return ServedFiles::Open(directory_).status();
  }

  const PublishedDirectory published_;
  const std::string directory_ = published_.path();
};

TEST_F(ServedFilesTest, FindsTheManifestAndWhatItNames) {
  const auto files = ServedFiles::Open(directory_);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ((*files)->file_count(), 2);
  EXPECT_EQ((*files)->size_bytes(), 10);
  for (const char* path : {"manifest.json", "a.bin", "deep/b.bin"}) {
    const auto file = (*files)->Find(path);
    ASSERT_TRUE(file.ok()) << file.status();
    const std::string text = published_.Read(path);
    std::string read(text.size() + 1, ' ');
    EXPECT_EQ(::pread(file->fd.get(), read.data(), read.size(), 0),
              text.size());
    EXPECT_EQ(read.substr(0, text.size()), text);
    EXPECT_EQ(file->size_bytes, text.size());
    EXPECT_EQ(file->etag,
              "\"" + codec::ToHex(codec::ComputeSha256(text)) + "\"");
  }
}

TEST_F(ServedFilesTest, NothingElseIsFound) {
  const auto files = ServedFiles::Open(directory_);
  ASSERT_TRUE(files.ok()) << files.status();
  for (const char* path :
       {"", ".", "..", "secret.txt", "deep", "deep/", "./a.bin", "/a.bin",
        "deep/../a.bin", "../served/a.bin", "a.bin/", "/etc/passwd"}) {
    EXPECT_EQ((*files)->Find(path).status().code(), Code::kNotFound) << path;
  }
}

TEST_F(ServedFilesTest, NoSymbolicLinkIsFollowed) {
  const auto files = ServedFiles::Open(directory_);
  ASSERT_TRUE(files.ok()) << files.status();
  fs::remove(directory_ + "/a.bin");
  fs::create_symlink("secret.txt", directory_ + "/a.bin");
  EXPECT_EQ((*files)->Find("a.bin").status().code(), Code::kDataLoss);
  fs::rename(directory_ + "/deep", directory_ + "/other");
  fs::create_directory_symlink("other", directory_ + "/deep");
  const absl::Status status = (*files)->Find("deep/b.bin").status();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("symbolic links"));
}

TEST_F(ServedFilesTest, AChangedFileIsNotServed) {
  const auto files = ServedFiles::Open(directory_);
  ASSERT_TRUE(files.ok()) << files.status();
  published_.Write("a.bin", "abcde");
  EXPECT_EQ((*files)->Find("a.bin").status().code(), Code::kDataLoss);
  fs::remove(directory_ + "/a.bin");
  EXPECT_EQ((*files)->Find("a.bin").status().code(), Code::kNotFound);
  ASSERT_EQ(::mkfifo((directory_ + "/a.bin").c_str(), 0600), 0);
  EXPECT_EQ((*files)->Find("a.bin").status().code(), Code::kDataLoss);
}

TEST_F(ServedFilesTest, FaultsAreFoundAtTheStart) {
  published_.Write("a.bin", "ab");
  EXPECT_EQ(OpenStatus().code(), Code::kDataLoss);
  fs::remove(directory_ + "/a.bin");
  EXPECT_EQ(OpenStatus().code(), Code::kNotFound);
  published_.Write("manifest.json", "{}");
  EXPECT_EQ(OpenStatus().code(), Code::kInvalidArgument);
  fs::remove(directory_ + "/manifest.json");
  EXPECT_EQ(OpenStatus().code(), Code::kNotFound);
  fs::remove_all(directory_);
  EXPECT_EQ(OpenStatus().code(), Code::kNotFound);
}

}  // namespace
}  // namespace atl::worker
