#include "base/obs/flags.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace atl {
namespace {

std::vector<std::string> Spell(std::vector<std::string> arguments) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  SpellFlagsWithDashes(static_cast<int>(argv.size()), argv.data());
  return arguments;
}

TEST(FlagsTest, AnUnderscoreInAFlagIsADash) {
  // style-ok(flag): the alias.
  EXPECT_EQ(Spell({"a_b", "--run_id", "x_y", "--data_dir=/d_1", "-o_", "--"}),
            (std::vector<std::string>{"a_b", "--run-id", "x_y",
                                      "--data-dir=/d_1", "-o_", "--"}));
}

TEST(FlagsTest, WhatStandsBehindTwoDashesIsNoFlag) {
  const std::string alias =
      "--"
      "x_y";
  EXPECT_EQ(Spell({"a", alias, "--", alias}),
            (std::vector<std::string>{"a", "--x-y", "--", alias}));
}

TEST(FlagsTest, AFlagIsNamedAfterItsSetting) {
  EXPECT_EQ(FlagName("tls_cert"), "--tls-cert");
  EXPECT_EQ(FlagName("coordinator"), "--coordinator");
}

}  // namespace
}  // namespace atl
