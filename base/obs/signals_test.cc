#include "base/obs/signals.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "gtest/gtest.h"

namespace atl {
namespace {

// The wait status of a child that runs `body`, and exits with what it returns.
template <typename Body>
int RunInChild(Body body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

void Send(int number) { ::kill(::getpid(), number); }

// Waits for nothing that is not there.
int NextOf(EndSignals& signals) { return signals.Next(absl::ZeroDuration()); }

TEST(SignalsTest, AReaderThatHasGoneEndsNoProgram) {
  const int status = RunInChild([] {
    PrepareProcess();
    int ends[2];
    if (::pipe(ends) != 0) return 1;
    ::close(ends[0]);
    return ::write(ends[1], "x", 1) == -1 && errno == EPIPE ? 7 : 1;
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(SignalsTest, AFileOfTheGreatestSizeEndsNoProgram) {
  const int status = RunInChild([] {
    PrepareProcess();
    const rlimit none = {0, 0};
    const int file = ::memfd_create("file", 0);
    if (::setrlimit(RLIMIT_FSIZE, &none) != 0) return 1;
    return ::write(file, "x", 1) == -1 && errno == EFBIG ? 7 : 1;
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(SignalsTest, NoFileTakesThePlaceOfAClosedStream) {
  const int status = RunInChild([] {
    for (const int fd : {0, 1, 2}) ::close(fd);
    PrepareProcess();
    char byte = 0;
    if (::open("/dev/null", O_RDWR) < 3) return 1;
    if (::read(0, &byte, 1) != -1) return 2;
    if (::write(1, "x", 1) != -1 || ::write(2, "x", 1) != -1) return 3;
    return 7;
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(SignalsTest, AHangUpAsksAndIsNeverTheSecondSignal) {
  const int status = RunInChild([] {
    EndSignals signals;
    if (NextOf(signals) != 0) return 1;
    Send(SIGHUP);
    if (NextOf(signals) != SIGHUP) return 2;
    Send(SIGHUP);
    if (NextOf(signals) != 0) return 3;
    Send(SIGTERM);
    return NextOf(signals) == SIGTERM ? 7 : 4;
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(SignalsTest, NohupKeepsItsMeaning) {
  const int status = RunInChild([] {
    ::signal(SIGHUP, SIG_IGN);
    EndSignals signals;
    Send(SIGHUP);
    if (NextOf(signals) != 0) return 1;
    Send(SIGINT);
    return NextOf(signals) == SIGINT ? 7 : 2;
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(SignalsTest, EndsByTheSignalsOwnAction) {
  const int status = RunInChild([] {
    EndSignals().DieBy(SIGINT);
    return 1;
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGINT);
}

}  // namespace
}  // namespace atl
