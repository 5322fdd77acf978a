#include "cli/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <stop_token>

#include "gtest/gtest.h"

namespace atl::cli {
namespace {

[[noreturn]] void WaitForever() {
  for (;;) pause();
}

class InterruptDeathTest : public testing::Test {
 protected:
  void SetUp() override {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
  }
};

TEST_F(InterruptDeathTest, TheFirstSignalAsksAndTheSecondKills) {
  EXPECT_EXIT(
      {
        const Interrupt interrupt;
        kill(getpid(), SIGTERM);
        WaitForStop(interrupt.first());
        kill(getpid(), SIGINT);
        WaitForever();
      },
      testing::KilledBySignal(SIGINT), "");
}

TEST_F(InterruptDeathTest, WhoTakesASecondRequestDiesOfTheThird) {
  EXPECT_EXIT(
      {
        int count = 0;
        const Interrupt interrupt([&](int) { ++count; }, /*kill_at=*/3);
        kill(getpid(), SIGINT);
        WaitForStop(interrupt.first());
        kill(getpid(), SIGINT);
        WaitForStop(interrupt.second());
        kill(getpid(), SIGTERM);
        if (count != 1) _exit(1);
        WaitForever();
      },
      testing::KilledBySignal(SIGTERM), "");
}

TEST_F(InterruptDeathTest, AClosedTerminalTerminates) {
  EXPECT_EXIT(
      {
        const Interrupt interrupt;
        kill(getpid(), SIGHUP);
        WaitForStop(interrupt.first());
        _exit(interrupt.terminated().stop_requested() ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(InterruptDeathTest, TellsSigtermFromCtrlC) {
  EXPECT_EXIT(
      {
        int number = 0;
        const Interrupt interrupt([&](int of) { number = of; }, /*kill_at=*/3);
        kill(getpid(), SIGTERM);
        WaitForStop(interrupt.first());
        const bool terminated = interrupt.terminated().stop_requested();
        kill(getpid(), SIGINT);
        WaitForStop(interrupt.second());
        _exit(terminated && number == SIGTERM ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        const Interrupt interrupt;
        kill(getpid(), SIGINT);
        WaitForStop(interrupt.first());
        _exit(interrupt.terminated().stop_requested() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace atl::cli
