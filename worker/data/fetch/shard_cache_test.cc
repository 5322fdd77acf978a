#include "worker/data/fetch/shard_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/codec/sha256.h"
#include "base/io/posix_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::worker {
namespace {

using ::testing::HasSubstr;

ManifestFile FileOf(const std::string& bytes) {
  return {"tokens.bin", static_cast<int64_t>(bytes.size()),
          codec::ToHex(codec::ComputeSha256(bytes)), 2, false};
}

class ShardCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = absl::StrCat(
        testing::TempDir(), "/shard_cache_", ::getpid(), "_",
        testing::UnitTest::GetInstance()->current_test_info()->name());
    cache_ = Open(100);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::unique_ptr<ShardCache> Open(int64_t bytes_max) {
    auto cache = ShardCache::Open(root_, bytes_max, PosixFileSystem());
    EXPECT_TRUE(cache.ok()) << cache.status();
    return *std::move(cache);
  }

  std::string PathOf(const std::string& bytes) {
    const std::string sha256 = FileOf(bytes).sha256;
    return absl::StrCat(root_, "/", sha256.substr(0, 2), "/", sha256);
  }

  std::shared_ptr<const DataFileReader> Put(const std::string& bytes) {
    auto part = cache_->Write(FileOf(bytes));
    EXPECT_TRUE(part.ok()) << part.status();
    EXPECT_TRUE((*part)->Append(bytes).ok());
    EXPECT_TRUE((*part)->Check().ok());
    auto reader = (*part)->Commit();
    EXPECT_TRUE(reader.ok()) << reader.status();
    return *std::move(reader);
  }

  // Makes the file's last use `seconds` after the epoch.
  void SetLastUse(const std::string& path, int64_t seconds) {
    const timespec times[2] = {{seconds, 0}, {seconds, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }

  bool Has(const std::string& bytes) {
    return std::filesystem::exists(PathOf(bytes));
  }

  std::string Read(const DataFileReader& reader, int64_t count) {
    std::string bytes(count, '\0');
    EXPECT_TRUE(reader.ReadAt(0, absl::MakeSpan(bytes)).ok());
    return bytes;
  }

  std::string root_;
  std::unique_ptr<ShardCache> cache_;
};

TEST_F(ShardCacheTest, FindsWhatWasWritten) {
  EXPECT_EQ(*cache_->Find(FileOf("hello")), nullptr);
  EXPECT_EQ(Read(*Put("hello"), 5), "hello");
  const auto found = Open(100)->Find(FileOf("hello"));
  ASSERT_TRUE(found.ok() && *found != nullptr);
  EXPECT_EQ(Read(**found, 5), "hello");
  EXPECT_FALSE(std::filesystem::exists(PathOf("hello") + ".part"));
  EXPECT_EQ(cache_->Write(FileOf("hello")).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_FALSE(std::filesystem::exists(PathOf("hello") + ".part"));
}

TEST_F(ShardCacheTest, ALaterWriterGoesOnWithAPart) {
  {
    auto part = cache_->Write(FileOf("hello"));
    ASSERT_TRUE((*part)->Append("hel").ok());
  }
  EXPECT_EQ(cache_->GetPartBytes(FileOf("hello")), 3);
  EXPECT_EQ(*cache_->Find(FileOf("hello")), nullptr);
  auto part = Open(100)->Write(FileOf("hello"));
  EXPECT_EQ((*part)->size_bytes(), 3);
  ASSERT_TRUE((*part)->Append("lo").ok());
  EXPECT_TRUE((*part)->Check().ok());
  EXPECT_EQ(Read(**(*part)->Commit(), 5), "hello");
}

TEST_F(ShardCacheTest, OneWriterAtATime) {
  auto part = cache_->Write(FileOf("hello"));
  const auto other = Open(100);
  EXPECT_EQ(other->Write(FileOf("hello")).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_TRUE(other->Write(FileOf("other")).ok());
  part->reset();
  EXPECT_TRUE(other->Write(FileOf("hello")).ok());
}

TEST_F(ShardCacheTest, WrongBytesGetNoName) {
  auto part = cache_->Write(FileOf("hello"));
  ASSERT_TRUE((*part)->Append("jello").ok());
  const absl::Status wrong = (*part)->Check();
  EXPECT_EQ(wrong.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(wrong.message()), HasSubstr(FileOf("jello").sha256));
  EXPECT_EQ((*part)->size_bytes(), 0);
  ASSERT_TRUE((*part)->Append("hello").ok());
  EXPECT_TRUE((*part)->Check().ok());
  EXPECT_TRUE((*part)->Commit().ok());
}

TEST_F(ShardCacheTest, APartThatIsTooLongStartsAgain) {
  std::filesystem::create_directories(
      std::filesystem::path(PathOf("hello")).parent_path());
  std::ofstream(PathOf("hello") + ".part") << "hello and more";
  EXPECT_EQ((*cache_->Write(FileOf("hello")))->size_bytes(), 0);
}

TEST_F(ShardCacheTest, ADamagedFileIsRemovedWhenItIsFound) {
  for (const std::string bad : {"jello", "hell", "hello!"}) {
    Put("hello");
    std::ofstream(PathOf("hello"), std::ios::trunc) << bad;
    EXPECT_EQ(*cache_->Find(FileOf("hello")), nullptr);
    EXPECT_FALSE(Has("hello"));
  }
}

TEST_F(ShardCacheTest, RemovesTheLeastRecentlyUsedFirst) {
  const std::string a(30, 'a'), b(30, 'b'), c(30, 'c');
  Put(a);
  Put(b);
  Put(c);
  SetLastUse(PathOf(a), 1000);
  SetLastUse(PathOf(b), 2000);
  SetLastUse(PathOf(c), 3000);
  EXPECT_TRUE(cache_->MakeRoom(10));
  EXPECT_TRUE(Has(a) && Has(b) && Has(c));
  ASSERT_NE(*cache_->Find(FileOf(a)), nullptr);  // A use.
  EXPECT_TRUE(cache_->MakeRoom(11));
  EXPECT_TRUE(Has(a) && !Has(b) && Has(c));
  EXPECT_EQ(cache_->Evict(1), 30);
  EXPECT_TRUE(Has(a) && !Has(c));
}

TEST_F(ShardCacheTest, RemovesNothingThatIsInUse) {
  const std::string a(30, 'a'), b(30, 'b');
  auto reader = Put(a);
  Put(b);
  auto part = cache_->Write(FileOf("hello"));
  ASSERT_TRUE((*part)->Append("hel").ok());
  SetLastUse(PathOf(a), 1000);
  const auto other = Open(40);
  EXPECT_FALSE(other->MakeRoom(10));
  EXPECT_TRUE(Has(a) && !Has(b));
  EXPECT_EQ(cache_->GetPartBytes(FileOf("hello")), 3);
  reader.reset();
  part->reset();
  EXPECT_TRUE(other->MakeRoom(40));
  EXPECT_FALSE(Has(a));
  EXPECT_EQ(cache_->GetPartBytes(FileOf("hello")), 0);
}

// Others may write /tmp: what they put there beforehand is not ours.
class SharedCacheTest : public ShardCacheTest {
 protected:
  void SetUp() override {
    ShardCacheTest::SetUp();
    secret_ = root_ + "/secret";
    std::ofstream(secret_) << "of a person";
    directory_ = std::filesystem::path(PathOf("hello")).parent_path();
  }
  void ExpectRefused() {
    EXPECT_EQ(cache_->Write(FileOf("hello")).status().code(),
              absl::StatusCode::kFailedPrecondition);
    ExpectSecret();
  }
  void ExpectSecret() {
    std::ifstream file(secret_);
    std::string text;
    std::getline(file, text);
    EXPECT_EQ(text, "of a person");
  }

  std::string secret_;
  std::string directory_;
};

TEST_F(SharedCacheTest, ALinkInThePlaceOfAPartIsNotFollowed) {
  std::filesystem::create_directory(directory_);
  std::filesystem::create_symlink(secret_, PathOf("hello") + ".part");
  ExpectRefused();
}

TEST_F(SharedCacheTest, ASecondNameOfAFileIsNotWritten) {
  std::filesystem::create_directory(directory_);
  std::filesystem::create_hard_link(secret_, PathOf("hello") + ".part");
  ExpectRefused();
}

TEST_F(SharedCacheTest, ALinkInThePlaceOfADirectoryIsNotFollowed) {
  std::filesystem::create_directory(root_ + "/elsewhere");
  std::filesystem::create_directory_symlink("elsewhere", directory_);
  ExpectRefused();
  EXPECT_TRUE(std::filesystem::is_empty(root_ + "/elsewhere"));
  EXPECT_FALSE(cache_->Find(FileOf("hello")).ok());
}

TEST_F(SharedCacheTest, ALinkInThePlaceOfAManifestIsReplaced) {
  std::filesystem::create_directory(root_ + "/manifests");
  for (const char* name : {"/manifests/f", "/manifests/f.tmp"}) {
    std::filesystem::create_symlink(secret_, root_ + name);
  }
  EXPECT_TRUE(cache_->WriteManifestText("f", "text").ok());
  EXPECT_EQ(*cache_->ReadManifestText("f"), "text");
  ExpectSecret();
}

TEST_F(SharedCacheTest, WhatBelongsToAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  std::filesystem::create_directory(directory_);
  std::ofstream(PathOf("hello")) << "hello";
  ASSERT_EQ(::chown(PathOf("hello").c_str(), 1, -1), 0);
  EXPECT_THAT(std::string(cache_->Find(FileOf("hello")).status().message()),
              HasSubstr(PathOf("hello")));
  std::filesystem::remove(PathOf("hello"));
  ASSERT_EQ(::chown(directory_.c_str(), 1, -1), 0);
  ExpectRefused();
  ASSERT_EQ(::chown(root_.c_str(), 1, -1), 0);
  EXPECT_EQ(ShardCache::Open(root_, 100, PosixFileSystem()).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(ShardCacheTest, IsForItsOwnerAlone) {
  Put("hello");
  struct stat status = {};
  ASSERT_EQ(::stat(root_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0700u);
}

TEST_F(ShardCacheTest, KeepsManifestsByFingerprint) {
  EXPECT_EQ(cache_->ReadManifestText("f").status().code(),
            absl::StatusCode::kNotFound);
  ASSERT_TRUE(cache_->WriteManifestText("f", "text").ok());
  EXPECT_EQ(*cache_->ReadManifestText("f"), "text");
  EXPECT_EQ(cache_->Evict(1000), 0);
}

}  // namespace
}  // namespace atl::worker
