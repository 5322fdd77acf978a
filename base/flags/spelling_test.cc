#include "base/flags/spelling.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace atl::flags {
namespace {

std::vector<std::string> Spell(std::vector<std::string> arguments) {
  SpellFlagsWithDashes(arguments);
  return arguments;
}

TEST(SpellingTest, AnUnderscoreInAFlagIsADash) {
  // style-ok(flag): the alias.
  EXPECT_EQ(Spell({"a_b", "--run_id", "x_y", "--data_dir=/d_1", "-o_", "--"}),
            (std::vector<std::string>{"a_b", "--run-id", "x_y",
                                      "--data-dir=/d_1", "-o_", "--"}));
}

TEST(SpellingTest, WhatStandsBehindTwoDashesIsNoFlag) {
  const std::string alias =
      "--"
      "x_y";
  EXPECT_EQ(Spell({"a", alias, "--", alias}),
            (std::vector<std::string>{"a", "--x-y", "--", alias}));
}

TEST(SpellingTest, AFlagIsNamedAfterItsSetting) {
  EXPECT_EQ(FlagName("tls_cert"), "--tls-cert");
  EXPECT_EQ(FlagName("coordinator"), "--coordinator");
}

TEST(SpellingTest, AHelpTextHasEightyColumns) {
  const std::string words(70, 'x');
  EXPECT_EQ(WrapHelp("Usage: atoll\n\n", 12), "Usage: atoll\n\n");
  EXPECT_EQ(WrapHelp("A " + words + " sentence goes on", 12),
            "A " + words + "\nsentence goes on");
  EXPECT_EQ(WrapHelp("  --flag    " + words + " then more", 12),
            "  --flag    " + words + "\n            then more");
  // The flag is as long as its column, so its text has a line of its own.
  EXPECT_EQ(WrapHelp("            " + words + " then more", 12),
            "            " + words + "\n            then more");
  const std::string fewer(60, 'x');
  EXPECT_EQ(WrapHelp("  atoll join " + fewer + " then more", 12),
            "  atoll join " + fewer + " then\n  more");
  const std::string url(90, 'u');
  EXPECT_EQ(WrapHelp(url + " is long", 12), url + "\nis long");
}

}  // namespace
}  // namespace atl::flags
