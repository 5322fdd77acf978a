// Real processes: this program starts itself as each rank.

#include "tests/cuda_check/ranks.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/cuda_check/report.h"

namespace atl::engine::check {
namespace {

// Opens `fifo` once the other side has opened it too.
void Meet(const std::string& fifo, int flags) {
  const int fd = ::open(fifo.c_str(), flags);
  if (fd < 0) _exit(3);
  ::close(fd);
}

// A rank of two, as the flag `--do` says.
int Child(const std::vector<std::string>& arguments) {
  int rank = 0;
  std::string what, rendezvous;
  for (absl::string_view argument : arguments) {
    if (absl::ConsumePrefix(&argument, "--rank=")) rank = argument[0] - '0';
    if (absl::ConsumePrefix(&argument, "--do=")) what = std::string(argument);
    if (absl::ConsumePrefix(&argument, "--rendezvous=")) {
      rendezvous = std::string(argument);
    }
  }
  Report report(stdout);
  report.Check(absl::StrCat("rank ", rank, ": begin"),
               [] { return absl::OkStatus(); });
  if (what == "die" && rank == 1) (void)raise(SIGKILL);
  if (what == "crash" && rank == 1) {
    report.Check("rank 1: calls", [] {
      (void)raise(SIGKILL);
      return absl::OkStatus();
    });
  }
  // Rank 1 ends once rank 0 has begun what it never ends.
  if (what == "hang" && rank == 1) Meet(rendezvous, O_RDONLY);
  if (what == "hang" && rank == 0) {
    report.Check("rank 0: Split", [&] {
      Meet(rendezvous, O_WRONLY);
      while (true) ::pause();
      return absl::OkStatus();
    });
  }
  if (what == "wait") {
    while (true) ::pause();
  }
  return what == "fail" ? 2 : 0;
}

struct Outcome {
  int passed = 0, failed = 0, not_possible = 0;
  std::string text;
};

Outcome RunTwo(const char* what, RankRun run) {
  run.name = "ranks";
  run.size = 2;
  run.flags = {absl::StrCat("--do=", what)};
  char* text = nullptr;
  size_t size = 0;
  std::FILE* const out = open_memstream(&text, &size);
  Report report(out);
  RunRanks(run, report);
  std::fclose(out);
  const Outcome outcome = {report.passed(), report.failed(),
                           report.not_possible(), std::string(text, size)};
  std::free(text);
  return outcome;
}

bool Says(const Outcome& outcome, absl::string_view begin,
          absl::string_view end) {
  for (absl::string_view line : absl::StrSplit(outcome.text, '\n')) {
    if (absl::StartsWith(line, begin) && absl::StrContains(line, end)) {
      return true;
    }
  }
  return false;
}

TEST(RanksTest, RanksThatEndPass) {
  const Outcome outcome = RunTwo("pass", {});
  EXPECT_EQ(outcome.passed, 2 + 2) << outcome.text;
  EXPECT_EQ(outcome.failed, 0) << outcome.text;
}

TEST(RanksTest, AVictimMustKillItself) {
  const Outcome dead = RunTwo("die", {.victim = 1});
  EXPECT_EQ(dead.passed, 2 + 2) << dead.text;
  EXPECT_EQ(dead.failed, 0) << dead.text;
  const Outcome alive = RunTwo("pass", {.victim = 1});
  EXPECT_EQ(alive.failed, 1) << alive.text;
}

TEST(RanksTest, ACrashNamesWhereTheRankStood) {
  const Outcome outcome = RunTwo("crash", {});
  EXPECT_EQ(outcome.failed, 1) << outcome.text;
  EXPECT_TRUE(Says(outcome, "{\"check\": \"ranks, process 1\"",
                   "ended by signal 9 in \\\"rank 1: calls\\\""))
      << outcome.text;
}

TEST(RanksTest, ARankThatHangsAfterTheFirstEndIsKilledAndNamed) {
  std::string folder = testing::TempDir() + "/ranks-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string fifo = folder + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const Outcome outcome =
      RunTwo("hang", {.rendezvous = fifo, .end_limit = absl::ZeroDuration()});
  EXPECT_EQ(outcome.failed, 1) << outcome.text;
  EXPECT_TRUE(Says(outcome, "{\"check\": \"ranks, process 0\"",
                   "killed at the limit: it hung in \\\"rank 0: Split\\\""))
      << outcome.text;
}

TEST(RanksTest, AControlThatHangsOrFailsIsNoFailure) {
  const Outcome late =
      RunTwo("wait", {.is_control = true, .limit = absl::ZeroDuration()});
  EXPECT_EQ(late.failed, 0) << late.text;
  EXPECT_EQ(late.not_possible, 2) << late.text;
  const Outcome wrong = RunTwo("fail", {.is_control = true});
  EXPECT_EQ(wrong.failed, 0) << wrong.text;
  EXPECT_EQ(wrong.not_possible, 2) << wrong.text;
}

}  // namespace
}  // namespace atl::engine::check

int main(int argc, char** argv) {
  if (argc > 1 && absl::StartsWith(argv[1], "--rank=")) {
    return atl::engine::check::Child({argv + 1, argv + argc});
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
