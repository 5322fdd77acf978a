#include "base/sandbox/landlock.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

using ::testing::HasSubstr;

std::string Write(const std::string& path) {
  std::ofstream(path) << "secret";
  return path;
}

// 0, or the errno of opening `path`.
int Open(const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0600);
  if (fd < 0) return errno;
  ::close(fd);
  return 0;
}

int ErrnoOf(int result) { return result == 0 ? 0 : errno; }

class LandlockTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (LandlockAbi() == 0) GTEST_SKIP() << "this kernel has no Landlock";
    std::string name = ::testing::TempDir() + "/landlock.XXXXXX";
    directory_ = ::mkdtemp(name.data());
    for (const char* folder : {"read", "write", "socket", "outside"}) {
      ::mkdir(In(folder).c_str(), 0700);
      Write(In(folder) + "/file");
    }
    rules_ = {{In("read"), PathAccess::kRead},
              {In("write"), PathAccess::kWrite},
              {In("socket"), PathAccess::kSocket},
              {In("missing"), PathAccess::kRead}};
  }

  std::string In(const std::string& name) { return directory_ + "/" + name; }

  // Returns the result of `act` in a child that may use rules_ alone.
  int Inside(const std::function<int()>& act, int abi = LandlockAbi()) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::_exit(LimitPaths(abi, rules_, true).ok() ? act() : 255);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 254;
  }

  std::string directory_;
  std::vector<PathRule> rules_;
};

TEST_F(LandlockTest, ReadsWhatARuleNamesAndNothingElse) {
  EXPECT_EQ(Inside([&] { return Open(In("read/file"), O_RDONLY); }), 0);
  EXPECT_EQ(Inside([&] { return Open(In("read"), O_RDONLY); }), 0);
  EXPECT_EQ(Inside([&] { return Open(In("outside/file"), O_RDONLY); }), EACCES);
  EXPECT_EQ(Inside([&] { return Open(In("outside"), O_RDONLY); }), EACCES);
  EXPECT_EQ(Inside([&] { return Open("/etc/passwd", O_RDONLY); }), EACCES);
}

TEST_F(LandlockTest, ALinkOutsideIsNoWayOut) {
  ASSERT_EQ(::symlink(In("outside/file").c_str(), In("read/link").c_str()), 0);
  EXPECT_EQ(Inside([&] { return Open(In("read/link"), O_RDONLY); }), EACCES);
  // Nor is another name of the file made: the right is the directory's.
  EXPECT_NE(Inside([&] {
              return ErrnoOf(::link(In("outside/file").c_str(),
                                    In("write/second").c_str()));
            }),
            0);
}

TEST_F(LandlockTest, WritesOnlyWhereARuleSaysSo) {
  EXPECT_EQ(Inside([&] { return Open(In("read/file"), O_WRONLY); }), EACCES);
  EXPECT_EQ(Inside([&] { return Open(In("read/new"), O_WRONLY | O_CREAT); }),
            EACCES);
  EXPECT_EQ(Inside([&] {
              return ErrnoOf(::unlink(In("read/file").c_str()));
            }),
            EACCES);
  EXPECT_EQ(Inside([&] {
              return Open(In("write/new"), O_RDWR | O_CREAT) +
                     ErrnoOf(::rename(In("write/new").c_str(),
                                      In("write/file").c_str())) +
                     ErrnoOf(::unlink(In("write/file").c_str())) +
                     ErrnoOf(::mkdir(In("write/deep").c_str(), 0700));
            }),
            0);
}

TEST_F(LandlockTest, TruncatesAndRenamesNothingOutside) {
  if (LandlockAbi() >= 3) {
    EXPECT_EQ(Inside([&] {
                return ErrnoOf(::truncate(In("outside/file").c_str(), 0));
              }),
              EACCES);
  }
  EXPECT_NE(Inside([&] {
              return ErrnoOf(::rename(In("outside/file").c_str(),
                                      In("write/taken").c_str()));
            }),
            0);
  EXPECT_NE(Inside([&] {
              return ErrnoOf(::rename(In("write/file").c_str(),
                                      In("outside/file").c_str()));
            }),
            0);
  EXPECT_EQ(Open(In("outside/file"), O_RDONLY), 0);
}

TEST_F(LandlockTest, ASocketsDirectoryIsNotRead) {
  EXPECT_EQ(Inside([&] { return Open(In("socket/file"), O_RDONLY); }), EACCES);
  EXPECT_EQ(Inside([&] {
              return ErrnoOf(::mknod((In("socket") + "/new").c_str(),
                                     S_IFSOCK | 0600, 0));
            }),
            0);
}

TEST_F(LandlockTest, HoldsAfterExecve) {
  rules_.push_back({"/usr", PathAccess::kExecute});
  rules_.push_back({"/lib", PathAccess::kExecute});
  rules_.push_back({"/lib64", PathAccess::kExecute});
  const std::string text = In("outside/file");
  EXPECT_EQ(Inside([&] {
              ::execl("/usr/bin/cat", "cat", text.c_str(), nullptr);
              return 253;
            }),
            1);
  EXPECT_EQ(Inside([&] {
              ::execl("/usr/bin/cat", "cat", In("read/file").c_str(), nullptr);
              return 253;
            }),
            0);
}

TEST_F(LandlockTest, GainsNoPrivileges) {
  EXPECT_EQ(Inside([] {
              return ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
            }),
            1);
}

TEST_F(LandlockTest, SendsNoSignalOutside) {
  if (LandlockAbi() < 6) GTEST_SKIP() << "needs ABI 6";
  const pid_t parent = ::getpid();
  EXPECT_EQ(Inside([&] { return ErrnoOf(::kill(parent, 0)); }), EPERM);
  EXPECT_EQ(Inside([&] { return ErrnoOf(::kill(::getpid(), 0)); }), 0);
}

TEST_F(LandlockTest, AnOlderKernelsRightsAreEnough) {
  for (int abi = 1; abi <= LandlockAbi(); ++abi) {
    EXPECT_EQ(Inside([&] { return Open(In("write/file"), O_RDWR); }, abi), 0);
    EXPECT_EQ(Inside([&] { return Open(In("outside/file"), O_RDONLY); }, abi),
              EACCES);
  }
}

TEST_F(LandlockTest, APipeNeedsNoRule) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  rules_.push_back({"/proc/self/fd/" + std::to_string(ends[0]),
                    PathAccess::kRead});
  EXPECT_EQ(Inside([&] { return Open(In("read/file"), O_RDONLY); }), 0);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(LandlockRightsTest, AFileHasNoRightsOfDirectories) {
  const uint64_t write = LandlockRights(PathAccess::kWrite, true);
  const uint64_t of_file = LandlockRights(PathAccess::kWrite, false);
  EXPECT_EQ(of_file & write, of_file);
  EXPECT_LT(of_file, write);
  EXPECT_EQ(LandlockRights(PathAccess::kList, false), 0u);
  EXPECT_EQ(LandlockRights(PathAccess::kSocket, false), 0u);
}

TEST(LandlockRightsTest, WithoutLandlockNothingIsLimited) {
  const absl::Status status = LimitPaths(0, {}, true);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no Landlock"));
}

}  // namespace
}  // namespace atl
