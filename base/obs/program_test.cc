#include "base/obs/program.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

using ::testing::HasSubstr;

// Returns what RaiseOpenFileLimit logs.
std::string Raise(rlim_t soft, rlim_t hard) {
  const rlimit limit = {soft, hard};
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(RaiseOpenFileLimit(), hard);
  rlimit after = {};
  EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_EQ(after.rlim_cur, hard);
  return ::testing::internal::GetCapturedStderr();
}

// One test only: the process keeps the lowest hard limit that it set.
TEST(ProgramTest, TakesAsManyOpenFilesAsItMayHaveAndTellsIfTheyAreFew) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  if (before.rlim_max < 4096) GTEST_SKIP() << "few are allowed here";
  EXPECT_EQ(Raise(256, 4096), "");
  EXPECT_THAT(Raise(256, 4095), HasSubstr("may have 4095 open files"));
}

TEST(ProgramTest, TellsThatTheOutputIsLost) {
  const auto flushed = [](const char* path) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::dup2(::open(path, O_WRONLY), STDOUT_FILENO);
      std::fputs("one line\n", stdout);
      const absl::Status status = FlushOutput();
      // A second call says it, too.
      ::_exit(status.ok() ? 0 : FlushOutput().ok() ? 1 : 2);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WEXITSTATUS(status);
  };
  EXPECT_EQ(flushed("/dev/null"), 0);
  EXPECT_EQ(flushed("/dev/full"), 2);
}

// The wait status of a child that runs `body` with a StopSignals.
template <typename Body>
int RunInChild(absl::Duration stop_max, Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    StopSignals signals(stop_max);
    body(signals);
    ::_exit(9);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

void Send(int number) { ::kill(::getpid(), number); }

TEST(StopSignalsTest, ASignalDuringTheStartEndsTheProcess) {
  const int status = RunInChild(absl::Minutes(1), [](StopSignals& signals) {
    Send(SIGTERM);
    signals.WaitFor(absl::Minutes(1));
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(StopSignalsTest, ASignalAfterTheStartIsWaitedFor) {
  const int status = RunInChild(absl::Minutes(1), [](StopSignals& signals) {
    signals.Started();
    Send(SIGINT);
    if (signals.WaitFor(absl::Minutes(1)) && signals.IsStopping()) ::_exit(3);
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

TEST(StopSignalsTest, AClosedTerminalIsWaitedFor) {
  const int status = RunInChild(absl::Minutes(1), [](StopSignals& signals) {
    signals.Started();
    Send(SIGHUP);
    Send(SIGHUP);
    if (signals.WaitFor(absl::Minutes(1))) ::_exit(3);
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

TEST(StopSignalsTest, ASecondSignalKills) {
  const int status = RunInChild(absl::Minutes(1), [](StopSignals& signals) {
    signals.Started();
    Send(SIGINT);
    signals.WaitFor(absl::Minutes(1));
    Send(SIGTERM);
    ::pause();
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

TEST(StopSignalsTest, AStopThatTakesTooLongEndsTheProcess) {
  const int status = RunInChild(absl::ZeroDuration(), [](StopSignals& signals) {
    signals.Started();
    Send(SIGTERM);
    ::pause();
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

}  // namespace
}  // namespace atl
