#include "cli/output/progress.h"

#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace atl::cli {
namespace {

TEST(ProgressTest, OffATerminalPrintsPlainLinesAtABoundedRate) {
  std::ostringstream stream;
  absl::Time now = absl::UnixEpoch();
  {
    Progress progress({.interval = absl::Seconds(2)}, stream);
    progress.Update("one", now);
    progress.Update("two", now + absl::Seconds(1));
    progress.Update("three", now + absl::Seconds(2));
    progress.Update("last", now + absl::Seconds(3));
  }
  EXPECT_EQ(stream.str(), "one\nthree\nlast\n");
}

TEST(ProgressTest, OnATerminalOverwritesOneLineAndTakesItAway) {
  std::ostringstream stream;
  {
    Progress progress({.live = true, .columns = 20}, stream);
    progress.Update("one", absl::UnixEpoch());
    progress.Note("note");
    progress.Update(std::string(50, 'x'), absl::UnixEpoch());
  }
  EXPECT_EQ(stream.str(), "\r\x1b[2Kone\r\x1b[2Knote\n\r\x1b[2Kone\r\x1b[2K" +
                              std::string(19, 'x') + "\r\x1b[2K");
}

TEST(ProgressTest, TheTextOfAPeerMovesNoCursor) {
  std::ostringstream stream;
  {
    Progress progress({}, stream);
    progress.Note("note \u009B2J");
    progress.Update("line \x1b[2J", absl::UnixEpoch());
  }
  EXPECT_EQ(stream.str(), "note ?2J\nline ?[2J\n");
}

TEST(ProgressTest, WhatSeveralThreadsSayAreWholeLines) {
  constexpr int kThreadCount = 4, kLineCount = 500;
  std::ostringstream stream;
  {
    Progress progress({.live = true}, stream);
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreadCount; ++i) {
      threads.emplace_back([&] {
        for (int k = 0; k < kLineCount; ++k) {
          progress.Update("live", absl::UnixEpoch());
          progress.Note("note");
        }
      });
    }
  }
  std::istringstream lines(stream.str());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    if (lines.eof()) break;  // The live line was taken away.
    EXPECT_TRUE(line.ends_with("\x1b[2Knote")) << line;
  }
  EXPECT_EQ(count, kThreadCount * kLineCount);
}

}  // namespace
}  // namespace atl::cli
