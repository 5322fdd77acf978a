#include "base/object_store/file_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/io/forwarding_file_system.h"
#include "base/io/posix_file_system.h"
#include "base/object_store/object_url.h"
#include "base/random_id/random_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Code = absl::StatusCode;

// A file that accepts `room` bytes, then is on a full disk.
class FullFile : public ForwardingFile {
 public:
  FullFile(std::unique_ptr<RandomAccessFile> file, int64_t room)
      : ForwardingFile(std::move(file)), room_(room) {}

  absl::Status WriteAt(int64_t offset,
                       absl::Span<const absl::string_view> pieces) override {
    for (const absl::string_view piece : pieces) room_ -= piece.size();
    if (room_ < 0) return absl::ResourceExhaustedError("the disk is full");
    return ForwardingFile::WriteAt(offset, pieces);
  }

 private:
  int64_t room_;
};

// The machine's file system with a full disk. Records what was synced.
class FullFileSystem : public ForwardingFileSystem {
 public:
  FullFileSystem() : ForwardingFileSystem(PosixFileSystem()) {}

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenWritable(
      const std::string& path, bool is_private) override {
    auto file = ForwardingFileSystem::OpenWritable(path, is_private);
    if (!file.ok()) return file;
    return std::make_unique<FullFile>(*std::move(file), room_bytes);
  }
  absl::Status SyncDirectory(const std::string& path) override {
    synced.push_back(std::filesystem::canonical(path));
    return ForwardingFileSystem::SyncDirectory(path);
  }

  int64_t room_bytes = 1 << 30;
  std::vector<std::string> synced;
};

class FileStoreTest : public ::testing::Test {
 protected:
  FileStoreTest()
      : root_(JoinObjectName(
            std::filesystem::canonical(::testing::TempDir()).string(),
            RandomId())),
        store_(MakeFileStore(root_, files_)) {}
  ~FileStoreTest() override { std::filesystem::remove_all(root_); }

  absl::Status Put(const std::string& name, const std::string& bytes,
                   WriteMode mode = WriteMode::kReplace) {
    auto writer = store_->Write(name, mode);
    if (!writer.ok()) return writer.status();
    const absl::Status status = (*writer)->Append(bytes);
    return status.ok() ? (*writer)->Commit() : status;
  }

  absl::StatusOr<std::string> Get(const std::string& name,
                                  const ReadRange& range = {}) {
    std::string out;
    const absl::Status status =
        store_->Read(name, range, [&out](absl::string_view bytes) {
          absl::StrAppend(&out, bytes);
          return absl::OkStatus();
        });
    if (!status.ok()) return status;
    return out;
  }

  std::vector<std::string> ListNames(const std::string& prefix) {
    const auto found = store_->List(prefix, 1000);
    EXPECT_TRUE(found.ok()) << found.status();
    std::vector<std::string> names;
    if (!found.ok()) return names;
    for (const ObjectInfo& info : *found) names.push_back(info.name);
    return names;
  }

  // All files of the directory, hidden ones too.
  int64_t CountFiles() {
    const std::filesystem::recursive_directory_iterator files(root_);
    return std::count_if(begin(files), end(files), [](const auto& entry) {
      return entry.is_regular_file();
    });
  }

  const std::string root_;
  FullFileSystem files_;
  const std::unique_ptr<ObjectStore> store_;
};

TEST_F(FileStoreTest, ReadsWhatItWrote) {
  const std::string bytes(1 << 20, 'x');
  ASSERT_TRUE(Put("a/b", bytes + "y").ok());
  EXPECT_EQ(*Get("a/b"), bytes + "y");
  EXPECT_EQ(store_->Stat("a/b")->size_bytes, bytes.size() + 1);
  EXPECT_EQ(store_->GetUrl("a/b"), absl::StrCat("file://", root_, "/a/b"));
}

TEST_F(FileStoreTest, TheEmptyNameIsTheFileOfTheUrl) {
  ASSERT_TRUE(Put("a", "bytes").ok());
  const auto file = MakeFileStore(root_ + "/a", files_);
  EXPECT_EQ(file->Stat("")->size_bytes, 5);
  EXPECT_THAT(*file->List("", 10), IsEmpty());
  EXPECT_EQ(*HashObject(*file, ""), codec::ComputeSha256("bytes"));
}

TEST_F(FileStoreTest, ListsFilesSortedByTheirWholeName) {
  for (const char* name : {"b", "a/z", "a-1", "a/b/c", "ab/c"}) {
    ASSERT_TRUE(Put(name, name).ok());
  }
  std::filesystem::create_symlink(root_ + "/b", root_ + "/link");
  EXPECT_THAT(ListNames(""), ElementsAre("a-1", "a/b/c", "a/z", "ab/c", "b"));
  EXPECT_THAT(ListNames("a"), ElementsAre("a-1", "a/b/c", "a/z", "ab/c"));
  EXPECT_THAT(ListNames("a/"), ElementsAre("a/b/c", "a/z"));
  EXPECT_THAT(ListNames("a/b"), ElementsAre("a/b/c"));
  EXPECT_THAT(ListNames("c/d"), IsEmpty());
  EXPECT_EQ(store_->List("", 5)->size(), 5u);
  EXPECT_EQ(store_->List("", 4).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(store_->List("../", 5).status().code(), Code::kInvalidArgument);
}

TEST_F(FileStoreTest, ARangeIsReadExactly) {
  ASSERT_TRUE(Put("a", "0123456789").ok());
  EXPECT_EQ(*Get("a", {2, 3}), "234");
  EXPECT_EQ(*Get("a", {8}), "89");
  EXPECT_EQ(*Get("a", {10}), "");
  EXPECT_EQ(*Get("a", {0, 0}), "");
  EXPECT_EQ(Get("a", {8, 3}).status().code(), Code::kOutOfRange);
  EXPECT_EQ(Get("a", {11}).status().code(), Code::kOutOfRange);
  EXPECT_EQ(Get("a", {-1}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Get("a", {0, -1}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Get("a", {1, INT64_MAX}).status().code(), Code::kOutOfRange);
}

TEST_F(FileStoreTest, ASinksErrorEndsTheRead) {
  ASSERT_TRUE(Put("a", std::string(1 << 20, 'x')).ok());
  int call_count = 0;
  const absl::Status status = store_->Read("a", {}, [&](absl::string_view) {
    ++call_count;
    return absl::ResourceExhaustedError("no room");
  });
  EXPECT_EQ(status, absl::ResourceExhaustedError("no room"));
  EXPECT_EQ(call_count, 1);
}

TEST_F(FileStoreTest, AReplacedFileIsNotReadAsTheOldOne) {
  ASSERT_TRUE(Put("a", "old").ok());
  const std::string etag = store_->Stat("a")->etag;
  EXPECT_EQ(*Get("a", {0, 3, etag}), "old");
  ASSERT_TRUE(Put("a", "new").ok());
  EXPECT_EQ(Get("a", {0, 3, etag}).status().code(), Code::kAborted);
}

TEST_F(FileStoreTest, AFileThatChangesDuringTheReadIsReported) {
  ASSERT_TRUE(Put("a", std::string(1 << 20, 'x')).ok());
  const absl::Status status = store_->Read("a", {}, [&](absl::string_view) {
    std::filesystem::resize_file(root_ + "/a", 10);
    return absl::OkStatus();
  });
  EXPECT_EQ(status.code(), Code::kAborted) << status;
}

TEST_F(FileStoreTest, NothingAppearsBeforeCommit) {
  auto writer = store_->Write("a", WriteMode::kReplace);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->Append("bytes").ok());
  EXPECT_EQ(Get("a").status().code(), Code::kNotFound);
  EXPECT_THAT(ListNames(""), IsEmpty());
  EXPECT_EQ(CountFiles(), 1);
  writer->reset();
  EXPECT_EQ(CountFiles(), 0);
}

TEST_F(FileStoreTest, ReplaceLeavesOneFileWithTheNewBytes) {
  ASSERT_TRUE(Put("a", "old").ok());
  ASSERT_TRUE(Put("a", "newer").ok());
  EXPECT_EQ(*Get("a"), "newer");
  EXPECT_EQ(CountFiles(), 1);
}

TEST_F(FileStoreTest, CreateKeepsTheFileThatExists) {
  ASSERT_TRUE(Put("a", "first", WriteMode::kCreate).ok());
  EXPECT_EQ(Put("a", "second", WriteMode::kCreate).code(),
            Code::kAlreadyExists);
  EXPECT_EQ(*Get("a"), "first");
  EXPECT_EQ(CountFiles(), 1);
}

TEST_F(FileStoreTest, OfTwoConcurrentCreatesOneWins) {
  auto first = store_->Write("a", WriteMode::kCreate);
  auto second = store_->Write("a", WriteMode::kCreate);
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_TRUE((*first)->Append("first").ok());
  ASSERT_TRUE((*second)->Append("second").ok());
  EXPECT_TRUE((*second)->Commit().ok());
  EXPECT_EQ((*first)->Commit().code(), Code::kAlreadyExists);
  first->reset();
  EXPECT_EQ(*Get("a"), "second");
  EXPECT_EQ(CountFiles(), 1);
}

TEST_F(FileStoreTest, NoLinkBelowTheDirectoryIsFollowedToWriteOrToRemove) {
  ASSERT_TRUE(Put("a/b", "x").ok());
  std::filesystem::create_directory_symlink(root_ + "/a", root_ + "/link");
  std::filesystem::create_symlink(root_ + "/a/b", root_ + "/file");
  EXPECT_EQ(Put("link/c", "y").code(), Code::kFailedPrecondition);
  EXPECT_EQ(Put("link/b", "y").code(), Code::kFailedPrecondition);
  EXPECT_EQ(store_->Remove("link/b").code(), Code::kFailedPrecondition);
  EXPECT_EQ(Put("file", "y", WriteMode::kCreate).code(), Code::kAlreadyExists);
  EXPECT_EQ(store_->Remove("file").code(), Code::kNotFound);
  EXPECT_EQ(*Get("a/b"), "x");
  // The URL's own directory may be a link.
  const auto linked = MakeFileStore(root_ + "/link", files_);
  EXPECT_TRUE(PutObject(*linked, "c", "y", WriteMode::kCreate).ok());
  EXPECT_EQ(*Get("a/c"), "y");
}

TEST_F(FileStoreTest, RemovesAFileAndNothingElse) {
  ASSERT_TRUE(Put("a/b", "x").ok());
  ASSERT_TRUE(Put("a/c", "x").ok());
  files_.synced.clear();
  EXPECT_TRUE(store_->Remove("a/b").ok());
  EXPECT_THAT(files_.synced, ElementsAre(root_ + "/a"));
  EXPECT_THAT(ListNames(""), ElementsAre("a/c"));
  for (const char* name : {"a/b", "a/none", "none/b"}) {
    EXPECT_TRUE(store_->Remove(name).ok()) << name;
  }
  EXPECT_EQ(store_->Remove("a").code(), Code::kNotFound);
  EXPECT_EQ(store_->Remove("../a").code(), Code::kInvalidArgument);
}

TEST_F(FileStoreTest, RemovesOnlyTheLeftoversOfThePrefix) {
  ASSERT_TRUE(Put("a/shard-1-x", "x").ok());
  std::vector<std::unique_ptr<ObjectWriter>> writers;
  for (const char* name : {"a/shard-1-y", "a/shard-11-y", "a/other"}) {
    auto writer = store_->Write(name, WriteMode::kCreate);
    ASSERT_TRUE(writer.ok()) << writer.status();
    writers.push_back(*std::move(writer));
  }
  const std::string mine = root_ + "/a/.atoll-of-a-person-shard-1-";
  std::filesystem::copy_file(root_ + "/a/shard-1-x", mine);
  EXPECT_EQ(CountFiles(), 5);
  EXPECT_TRUE(store_->RemoveUnfinished("a/shard-1-").ok());
  EXPECT_EQ(CountFiles(), 4);
  EXPECT_TRUE(writers[1]->Commit().ok());
  EXPECT_TRUE(store_->RemoveUnfinished("a/").ok());
  EXPECT_EQ(CountFiles(), 3);
  EXPECT_TRUE(std::filesystem::exists(mine));
  EXPECT_EQ(writers[2]->Commit().code(), Code::kNotFound);
  EXPECT_TRUE(store_->RemoveUnfinished("none/").ok());
  EXPECT_EQ(store_->RemoveUnfinished("../").code(), Code::kInvalidArgument);
}

TEST_F(FileStoreTest, PutsAndGetsWholeObjects) {
  ASSERT_TRUE(PutObject(*store_, "a", "0123", WriteMode::kCreate).ok());
  EXPECT_EQ(*GetObject(*store_, "a", 4), "0123");
  EXPECT_EQ(GetObject(*store_, "a", 3).status().code(),
            Code::kResourceExhausted);
  EXPECT_EQ(PutObject(*store_, "a", "x", WriteMode::kCreate).code(),
            Code::kAlreadyExists);
  EXPECT_TRUE(CheckCreatesOnce(*store_, "probe").ok());
  EXPECT_THAT(ListNames(""), ElementsAre("a"));
}

TEST_F(FileStoreTest, AFullDiskIsReportedAndNothingIsLeft) {
  files_.room_bytes = 10;
  EXPECT_EQ(Put("a", std::string(11, 'x')).code(), Code::kResourceExhausted);
  EXPECT_EQ(CountFiles(), 0);
  EXPECT_TRUE(Put("a", std::string(10, 'x')).ok());
}

TEST_F(FileStoreTest, CommitSyncsEachDirectoryWithANewName) {
  ASSERT_TRUE(Put("a/b/c", "x").ok());
  EXPECT_THAT(files_.synced,
              ElementsAre(root_ + "/a/b", root_ + "/a", root_,
                          std::filesystem::path(root_).parent_path()));
  files_.synced.clear();
  ASSERT_TRUE(Put("a/b/d", "x").ok());
  EXPECT_THAT(files_.synced, ElementsAre(root_ + "/a/b"));
}

TEST_F(FileStoreTest, OnlyRegularFilesAreObjects) {
  ASSERT_TRUE(Put("a/b", "x").ok());
  ASSERT_EQ(mkfifo((root_ + "/pipe").c_str(), 0600), 0);
  for (const char* name : {"a", "pipe", "missing", "a/b/c"}) {
    EXPECT_EQ(Get(name).status().code(), Code::kNotFound) << name;
    EXPECT_EQ(store_->Stat(name).status().code(), Code::kNotFound) << name;
  }
  EXPECT_THAT(ListNames(""), ElementsAre("a/b"));
}

TEST_F(FileStoreTest, NamesDoNotLeaveTheDirectory) {
  for (const char* name : {"../a", "/etc/passwd", "a/../../b", "a//b"}) {
    EXPECT_EQ(Get(name).status().code(), Code::kInvalidArgument) << name;
    EXPECT_EQ(store_->Stat(name).status().code(), Code::kInvalidArgument);
    EXPECT_EQ(Put(name, "x").code(), Code::kInvalidArgument) << name;
  }
}

TEST_F(FileStoreTest, AMissingDirectoryIsNotAnEmptyOne) {
  EXPECT_EQ(store_->List("", 10).status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace atl
