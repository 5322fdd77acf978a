#include "base/obs/stop_signals.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "gtest/gtest.h"

namespace atl {
namespace {

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
