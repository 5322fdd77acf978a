#include "cli/dev/child.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

using ::testing::HasSubstr;

class ChildTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) {
    return absl::StrCat(::testing::TempDir(), "/", ::getpid(), "-", name);
  }

  Child::Options Shell(const std::string& script) {
    Child::Options options;
    options.name = "shell";
    options.log_path = Path("log");
    options.pid_path = Path("pid");
    options.command = [script](int) {
      return std::vector<std::string>{"/bin/sh", "-c", script};
    };
    return options;
  }

  ChildExit End(Child& child) {
    for (;;) {
      if (std::optional<ChildExit> end = child.Poll()) return *end;
      // style-ok(call): a real process gives no other sign.
      absl::SleepFor(absl::Milliseconds(1));
    }
  }

  ~ChildTest() override { ::unlink(Path("log").c_str()); }
};

TEST_F(ChildTest, TellsTheExitCodeAndKeepsTheLog) {
  Child child(Shell("echo out; echo err >&2; exit 7"));
  ASSERT_TRUE(child.Start().ok());
  EXPECT_EQ(End(child).exit_code, 7);
  EXPECT_THAT(child.LogTail(10), HasSubstr("out\nerr\n"));
  EXPECT_FALSE(child.running());
  // A second start appends to the same log.
  ASSERT_TRUE(child.Start().ok());
  End(child);
  EXPECT_EQ(child.LogTail(1), "err\n");
  EXPECT_EQ(child.LogTail(9), "out\nerr\nout\nerr\n");
}

TEST_F(ChildTest, TellsTheSignal) {
  Child child(Shell("kill -9 $$"));
  ASSERT_TRUE(child.Start().ok());
  const ChildExit end = End(child);
  EXPECT_EQ(end.signal, SIGKILL);
  EXPECT_EQ(end.ToString(), "was killed by signal 9");
}

TEST_F(ChildTest, AProgramThatIsNotThereIsAnError) {
  Child::Options options = Shell("");
  options.command = [](int) {
    return std::vector<std::string>{"/no/such/program"};
  };
  Child child(options);
  EXPECT_EQ(child.Start().code(), absl::StatusCode::kNotFound);
}

TEST_F(ChildTest, DiesWithItsParent) {
  // The parent starts a child and is killed. The child's pid is in a file.
  const Child::Options options = Shell("exec sleep 600");
  const std::string pid_path = options.pid_path;
  const pid_t parent = ::fork();
  if (parent == 0) {
    Child child(options);
    if (!child.Start().ok()) ::_exit(1);
    ::raise(SIGKILL);
  }
  ASSERT_GT(parent, 0);
  int status = 0;
  ::waitpid(parent, &status, 0);
  pid_t pid = 0;
  std::ifstream(pid_path) >> pid;
  ASSERT_GT(pid, 0);
  // A dead orphan may stay a zombie of the process that adopts it.
  const auto alive = [&] {
    std::ifstream stat(absl::StrCat("/proc/", pid, "/stat"));
    std::string line;
    return std::getline(stat, line) && line.find(") Z") == std::string::npos;
  };
  for (int i = 0; i < 120000 && alive(); ++i) {
    // style-ok(call): a real process gives no other sign.
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_FALSE(alive());
  ::unlink(pid_path.c_str());
}

TEST(RestartBudgetTest, HealsAtOnceThenSlowsDownThenGivesUp) {
  RestartBudget budget(5, absl::Seconds(60));
  absl::Time now = absl::UnixEpoch();
  EXPECT_EQ(budget.Die(now), absl::ZeroDuration());
  EXPECT_EQ(budget.Die(now), absl::ZeroDuration());
  EXPECT_EQ(budget.Die(now), absl::ZeroDuration());
  EXPECT_EQ(budget.Die(now), absl::Milliseconds(100));
  EXPECT_EQ(budget.Die(now), absl::Milliseconds(200));
  EXPECT_EQ(budget.Die(now), std::nullopt);
}

TEST(RestartBudgetTest, ForgetsOldDeaths) {
  RestartBudget budget(2, absl::Seconds(60));
  absl::Time now = absl::UnixEpoch();
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(budget.Die(now), absl::ZeroDuration());
    now += absl::Seconds(40);
  }
}

}  // namespace
}  // namespace atl::cli
