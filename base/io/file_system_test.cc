// The contract of a FileSystem, for the machine's and for the fake; then what
// only the fake does.

#include "base/io/file_system.h"

#include <sys/resource.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/io/testing/fake_file_system.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

class FileSystemTest : public testing::TestWithParam<bool> {
 protected:
  FileSystemTest() {
    if (GetParam()) {
      root_ = "/root";
      file_system_ = &fake_;
      EXPECT_TRUE(fake_.CreateDirectories(root_).ok());
    } else {
      std::string pattern = testing::TempDir() + "/file_system_XXXXXX";
      root_ = mkdtemp(pattern.data());
      file_system_ = &PosixFileSystem();
    }
  }

  FileSystem& fs() { return *file_system_; }
  std::string Path(const std::string& name) { return root_ + "/" + name; }
  std::string Read(const std::string& name) {
    return ReadFile(fs(), Path(name)).value_or("(none)");
  }

  FakeFileSystem fake_;
  FileSystem* file_system_;
  std::string root_;
};

TEST_P(FileSystemTest, WritesPiecesAtOffsetsAndReadsThemBack) {
  auto file = fs().OpenForWrite(Path("a"));
  ASSERT_TRUE(file.ok()) << file.status();
  const absl::string_view pieces[] = {"cd", "", "ef"};
  ASSERT_TRUE((*file)->WriteAt(2, pieces).ok());
  ASSERT_TRUE((*file)->WriteAt(0, "ab").ok());
  EXPECT_EQ(Read("a"), "abcdef");
  EXPECT_EQ(*(*file)->Size(), 6);
  char byte[4];
  EXPECT_EQ(*(*file)->ReadAt(4, absl::MakeSpan(byte)), 2);
  EXPECT_EQ(*(*file)->ReadAt(9, absl::MakeSpan(byte)), 0);
}

TEST_P(FileSystemTest, WhatIsWrittenStraightIsThereWhateverWasCached) {
  constexpr size_t kStraight = RandomAccessFile::kStraightBytes;
  auto file = *fs().OpenForWrite(Path("a"));
  ASSERT_TRUE(file->WriteAt(0, std::string(4 * kStraight, 'a')).ok());
  EXPECT_EQ(Read("a"), std::string(4 * kStraight, 'a'));
  std::vector<char> room(3 * kStraight, 'b');
  void* begin = room.data();
  size_t size = room.size();
  char* const aligned =
      static_cast<char*>(std::align(kStraight, 2 * kStraight, begin, size));
  // Renamed before the write, as its users do.
  ASSERT_TRUE(fs().Rename(Path("a"), Path("b")).ok());
  ASSERT_TRUE(
      file->WriteStraightAt(kStraight, {aligned, 2 * kStraight}).ok());
  std::string expected = std::string(kStraight, 'a') +
                         std::string(2 * kStraight, 'b') +
                         std::string(kStraight, 'a');
  EXPECT_EQ(Read("b"), expected);
  // Unaligned bytes are written too.
  ASSERT_TRUE(file->WriteStraightAt(5, "xyz").ok());
  expected.replace(5, 3, "xyz");
  EXPECT_EQ(Read("b"), expected);
  ASSERT_TRUE(file->Sync().ok());
  EXPECT_FALSE(
      (*fs().OpenForRead(Path("b")))
          ->WriteStraightAt(0, {aligned, kStraight})
          .ok());
}

TEST_P(FileSystemTest, ReplacesAFileWhole) {
  ASSERT_TRUE(WriteFileAtomically(fs(), Path("a"), "long content").ok());
  ASSERT_TRUE(WriteFileAtomically(fs(), Path("a"), "short").ok());
  EXPECT_EQ(Read("a"), "short");
  EXPECT_FALSE(fs().Exists(Path("a.tmp")));
}

TEST_P(FileSystemTest, AnOpenFileOutlivesItsName) {
  ASSERT_TRUE(WriteFileAtomically(fs(), Path("a"), "x").ok());
  auto file = fs().OpenForRead(Path("a"));
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(fs().Remove(Path("a")).ok());
  EXPECT_FALSE(fs().Exists(Path("a")));
  char byte[1];
  EXPECT_EQ(*(*file)->ReadAt(0, absl::MakeSpan(byte)), 1);
  EXPECT_FALSE((*file)->WriteAt(0, "y").ok());
}

TEST_P(FileSystemTest, ListsAndRenames) {
  ASSERT_TRUE(fs().CreateDirectories(Path("d/e")).ok());
  ASSERT_TRUE(WriteFileAtomically(fs(), Path("d/b"), "x").ok());
  ASSERT_TRUE(WriteFileAtomically(fs(), Path("d/a"), "y").ok());
  EXPECT_EQ(*fs().List(Path("d")), (std::vector<std::string>{"a", "b", "e"}));
  ASSERT_TRUE(fs().Rename(Path("d/b"), Path("d/c")).ok());
  EXPECT_EQ(Read("d/c"), "x");
  EXPECT_EQ(Read("d/a"), "y");
  EXPECT_EQ(fs().OpenForRead(Path("d/b")).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(fs().List(Path("none")).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_P(FileSystemTest, RefusesToReadMoreThanItMay) {
  ASSERT_TRUE(WriteFileAtomically(fs(), Path("a"), "12345").ok());
  EXPECT_EQ(ReadFile(fs(), Path("a"), 4).status().code(),
            absl::StatusCode::kResourceExhausted);
}

INSTANTIATE_TEST_SUITE_P(PosixAndFake, FileSystemTest, testing::Bool());

TEST(FakeFileSystemTest, ACrashForgetsWhatWasNotSynced) {
  FakeFileSystem fs;
  ASSERT_TRUE(fs.CreateDirectories("/d").ok());
  ASSERT_TRUE(WriteFileAtomically(fs, "/d/kept", "old").ok());
  {
    auto file = fs.OpenForWrite("/d/kept");
    ASSERT_TRUE((*file)->WriteAt(0, "new").ok());
    auto unnamed = fs.OpenForWrite("/d/unnamed");
    ASSERT_TRUE((*unnamed)->WriteAt(0, "x").ok());
    ASSERT_TRUE((*unnamed)->Sync().ok());
  }
  fs.Crash();
  EXPECT_EQ(*ReadFile(fs, "/d/kept"), "old");
  EXPECT_FALSE(fs.Exists("/d/unnamed"));
}

// Every page of what was not synced is one of three, and each of the three
// happens; what was synced is there.
TEST(FakeFileSystemTest, ACrashInMidWriteKeepsSomePagesOfWhatWasNotSynced) {
  constexpr size_t kPage = 4096;
  std::set<std::string> pages;
  std::set<size_t> sizes;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    FakeFileSystem fs;
    ASSERT_TRUE(fs.CreateDirectories("/a").ok());
    auto file = *fs.OpenForWrite("/a/log");
    ASSERT_TRUE(fs.SyncDirectory("/a").ok());
    ASSERT_TRUE(file->WriteAt(0, std::string(kPage + 100, 'o')).ok());
    ASSERT_TRUE(file->Sync().ok());
    // From the middle of the second page to that of the fourth.
    ASSERT_TRUE(file->WriteAt(kPage + 100, std::string(2 * kPage, 'n')).ok());
    fs.CrashInMidWrite(seed);
    std::string bytes = *ReadFile(fs, "/a/log", 1 << 20);
    ASSERT_GE(bytes.size(), kPage + 100);
    ASSERT_LE(bytes.size(), 3 * kPage + 100);
    EXPECT_EQ(bytes.substr(0, kPage + 100), std::string(kPage + 100, 'o'));
    sizes.insert(bytes.size());
    bytes.resize(3 * kPage + 100);
    const std::string page = bytes.substr(2 * kPage, kPage);
    if (page == std::string(kPage, 'n') || page == std::string(kPage, '\0')) {
      pages.insert(page);
    }
  }
  EXPECT_EQ(pages.size(), 2);
  EXPECT_TRUE(sizes.contains(kPage + 100));
  EXPECT_TRUE(sizes.contains(3 * kPage + 100));
  EXPECT_GT(sizes.size(), 2);
}

TEST(FakeFileSystemTest, ACrashInMidWriteKeepsAnOldPageUnderTheNewOne) {
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    FakeFileSystem fs;
    auto file = *fs.OpenForWrite("/slot");
    ASSERT_TRUE(fs.SyncDirectory("/").ok());
    ASSERT_TRUE(file->WriteAt(0, "old").ok());
    ASSERT_TRUE(file->Sync().ok());
    ASSERT_TRUE(file->WriteAt(0, "new").ok());
    fs.CrashInMidWrite(seed);
    seen.insert(*ReadFile(fs, "/slot", 100));
    // The bytes that survived are durable.
    const std::string before = *ReadFile(fs, "/slot", 100);
    fs.Crash();
    EXPECT_EQ(*ReadFile(fs, "/slot", 100), before);
  }
  EXPECT_EQ(seen, (std::set<std::string>{"old", "new", std::string(3, '\0')}));
}

TEST(FakeFileSystemTest, ACrashInMidWriteKeepsARenameOrNot) {
  std::set<std::vector<std::string>> seen;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    FakeFileSystem fs;
    ASSERT_TRUE(fs.CreateDirectories("/a").ok());
    ASSERT_TRUE(WriteFileAtomically(fs, "/a/before", "x").ok());
    ASSERT_TRUE(fs.SyncDirectory("/a").ok());
    ASSERT_TRUE(fs.Rename("/a/before", "/a/after").ok());
    fs.CrashInMidWrite(seed);
    seen.insert(*fs.List("/a"));
  }
  EXPECT_EQ(seen, (std::set<std::vector<std::string>>{{"after"}, {"before"}}));
}

TEST(FakeFileSystemTest, AFullDiskRefusesAndLeavesTheOldFile) {
  FakeFileSystem fs;
  ASSERT_TRUE(WriteFileAtomically(fs, "/a", "old").ok());
  fs.SetCapacity(8);
  const absl::Status status = WriteFileAtomically(fs, "/a", "longer than 8");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(*ReadFile(fs, "/a"), "old");
  EXPECT_FALSE(fs.Exists("/a.tmp"));
  fs.SetCapacity(100);
  EXPECT_TRUE(WriteFileAtomically(fs, "/a", "longer than 8").ok());
}

TEST(FilesTest, AnAbsolutePathHasNoDots) {
  const std::string here = std::filesystem::current_path().string();
  EXPECT_EQ(AbsolutePath("a/../b/./c"), here + "/b/c");
  EXPECT_EQ(AbsolutePath("/x/../y"), "/y");
  EXPECT_EQ(AbsolutePath(""), "");
}

TEST(FilesTest, TheParentOfALinkIsThatOfItsTarget) {
  std::string pattern = testing::TempDir() + "/absolute_XXXXXX";
  const std::filesystem::path root =
      std::filesystem::canonical(mkdtemp(pattern.data()));
  std::filesystem::create_directories(root / "far" / "target");
  std::filesystem::create_symlink(root / "far" / "target", root / "link");
  EXPECT_EQ(AbsolutePath(root / "link" / ".." / "new"), root / "far" / "new");
  // A link that is not left stays: its target may change.
  EXPECT_EQ(AbsolutePath(root / "link" / "." / "file"),
            root / "link" / "file");
}

TEST(PosixFileSystemTest, ALockHasOneHolder) {
  std::string pattern = testing::TempDir() + "/lock_XXXXXX";
  const std::string path = std::string(mkdtemp(pattern.data())) + "/lock";
  auto lock = PosixFileSystem().Lock(path);
  ASSERT_TRUE(lock.ok()) << lock.status();
  EXPECT_EQ(PosixFileSystem().Lock(path).status().code(),
            absl::StatusCode::kFailedPrecondition);
  lock->reset();
  EXPECT_TRUE(PosixFileSystem().Lock(path).ok());
}

// A disk that becomes full takes only some of the bytes.
TEST(PosixFileSystemTest, AWriteThatIsCutShortSaysWhy) {
  std::string pattern = testing::TempDir() + "/short_XXXXXX";
  const std::string path = std::string(mkdtemp(pattern.data())) + "/a";
  auto file = PosixFileSystem().OpenForWrite(path);
  ASSERT_TRUE(file.ok()) << file.status();
  const std::string bytes(3000, 'x');
  const absl::string_view pieces[] = {bytes, "", bytes, bytes};
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {7000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status written = (*file)->WriteAt(0, pieces);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(written.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(written.message(), "write " + path + ": File too large");
  EXPECT_EQ(*(*file)->Size(), 7000);
  ASSERT_TRUE((*file)->WriteAt(0, pieces).ok());
  EXPECT_EQ(*(*file)->Size(), 9000);
}

TEST(FakeFileSystemTest, AFaultEndsTheCallsThatItIsForAndNoOthers) {
  using Fault = FakeFileSystem::Fault;
  FakeFileSystem fs;
  ASSERT_TRUE(fs.CreateDirectories("/d").ok());
  auto file = *fs.OpenForWrite("/d/a");
  Fault fault;
  fault.call = Fault::Call::kWrite;
  fault.path_part = "/a";
  fault.error_number = EROFS;
  fault.pass_count = 1;
  fault.fail_count = 2;
  fault.written_bytes = 3;
  fs.AddFault(fault);
  EXPECT_TRUE(file->WriteAt(0, "12345678").ok());
  const absl::string_view pieces[] = {"ab", "cd"};
  EXPECT_EQ(file->WriteAt(0, pieces),
            absl::PermissionDeniedError("write /d/a: Read-only file system"));
  EXPECT_EQ(*ReadFile(fs, "/d/a"), "abc45678");
  EXPECT_TRUE((*fs.OpenForWrite("/d/b"))->WriteAt(0, "x").ok());
  EXPECT_TRUE(file->Sync().ok());
  EXPECT_FALSE(file->WriteAt(0, "x").ok());
  EXPECT_TRUE(file->WriteAt(0, "x").ok());
  for (const auto call :
       {Fault::Call::kOpen, Fault::Call::kRead, Fault::Call::kSync,
        Fault::Call::kReserve, Fault::Call::kRename, Fault::Call::kRemove,
        Fault::Call::kSyncDirectory, Fault::Call::kList}) {
    SCOPED_TRACE(static_cast<int>(call));
    fault = Fault();
    fault.call = call;
    fault.path_part = "/d";
    fault.error_number = EIO;
    fs.AddFault(fault);
    char byte[1];
    int failed_count = 0;
    failed_count += !fs.OpenForWrite("/d/a").ok();
    failed_count += !file->ReadAt(0, absl::MakeSpan(byte)).ok();
    failed_count += !file->Sync().ok();
    failed_count += !file->Preallocate(1).ok();
    failed_count += !fs.Rename("/d/a", "/d/a").ok();
    failed_count += !fs.Remove("/d/b").ok();
    failed_count += !fs.SyncDirectory("/d").ok();
    failed_count += !fs.List("/d").ok();
    EXPECT_EQ(failed_count, 1);
    ASSERT_TRUE(WriteFileAtomically(fs, "/d/b", "x").ok());
  }
  fs.AddFault(fault);
  fs.ClearFaults();
  EXPECT_TRUE(fs.List("/d").ok());
}

TEST(FakeFileSystemTest, ABrokenDiskIsDataLoss) {
  FakeFileSystem fs;
  fs.AddFault({.call = FakeFileSystem::Fault::Call::kWrite,
               .path_part = "",
               .error_number = EIO});
  EXPECT_EQ(WriteFileAtomically(fs, "/a", "x").code(),
            absl::StatusCode::kDataLoss);
}

TEST(FakeFileSystemTest, WhatASyncHasFailedToWriteTheNextOneDoesNot) {
  FakeFileSystem fs;
  ASSERT_TRUE(fs.CreateDirectories("/d").ok());
  {
    auto file = *fs.OpenForWrite("/d/a");
    ASSERT_TRUE(file->WriteAt(0, "abc").ok());
    fs.AddFault({.call = FakeFileSystem::Fault::Call::kSync,
                 .path_part = "",
                 .error_number = ENOSPC});
    EXPECT_TRUE(absl::IsResourceExhausted(file->Sync()));
    ASSERT_TRUE(file->WriteAt(1, "B").ok());
    ASSERT_TRUE(file->Sync().ok());
    ASSERT_TRUE(fs.SyncDirectory("/d").ok());
  }
  EXPECT_EQ(*ReadFile(fs, "/d/a"), "aBc");
  fs.Crash();
  EXPECT_EQ(*ReadFile(fs, "/d/a"), std::string("\0B\0", 3));
}

}  // namespace
}  // namespace atl
