#include "base/flags/flags.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::flags {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// --- Checks ------------------------------------------------------------------

TEST(CheckTest, TakesFiniteNumbersInTheirRange) {
  for (const char* number : {"1", "0.5", "1e9", "30000"}) {
    EXPECT_EQ(Positive().find_fault(number), "");
    EXPECT_EQ(NotNegative().find_fault(number), "");
  }
  EXPECT_EQ(NotNegative().find_fault("0"), "");
}

TEST(CheckTest, SaysInAFewWordsWhatIsWrong) {
  EXPECT_EQ(Positive().find_fault("0"), "must be above 0, not 0");
  EXPECT_EQ(NotNegative().find_fault("-3"), "must be at least 0, not -3");
  for (const std::string word : {"nan", "inf", "many", "3x", ""}) {
    const std::string wrong = "'" + word + "' is not a number";
    EXPECT_EQ(Positive().find_fault(word), wrong);
    EXPECT_EQ(NotNegative().find_fault(word), wrong);
  }
  EXPECT_EQ(Range(1, 64).find_fault("65"), "Value 65 not in range 1 to 64");
  EXPECT_EQ(IsMember({"a", "b"}).find_fault("c"), "c not in {a,b}");
}

TEST(CheckTest, TheHelpShowsItsName) {
  EXPECT_EQ(Range(1, 64).name, "INT in [1 - 64]");
  EXPECT_EQ(Range(0.5, 1.0).name, "FLOAT in [0.5 - 1]");
  EXPECT_EQ(IsMember({"a", "b"}).name, "{a,b}");
  EXPECT_EQ(Positive().name, "POSITIVE");
  EXPECT_EQ(NotNegative().name, "NONNEGATIVE");
}

// --- Values ------------------------------------------------------------------

TEST(CommandTest, ReadsValuesOfEachType) {
  Command command("test", "");
  std::string text;
  int number = 0;
  int64_t large = 0;
  double real = 0;
  bool is_on = false;
  std::optional<int> given, absent;
  std::vector<std::string> list, pieces;
  std::string joined;
  command.Add("file", text);
  command.Add("--number", number);
  command.Add("--large", large);
  command.Add("--real", real);
  command.AddFlag("--on", is_on);
  command.Add("--given", given);
  command.Add("--absent", absent);
  command.Add("--list", list);
  command.Add("--pieces", pieces).Split(',');
  command.Add("--joined", joined).Join(',');
  EXPECT_EQ(
      command
          .Parse({"--number", "-3", "--large=9000000000", "--real", "2.5",
                  "--on", "--given", "7", "--list", "a", "--list", "b",
                  "--pieces", "c,d", "--joined", "e", "--joined", "f", "x_y"})
          .error,
      "");
  EXPECT_EQ(text, "x_y");
  EXPECT_EQ(number, -3);
  EXPECT_EQ(large, 9'000'000'000);
  EXPECT_EQ(real, 2.5);
  EXPECT_TRUE(is_on);
  EXPECT_EQ(given, 7);
  EXPECT_EQ(absent, std::nullopt);
  EXPECT_THAT(list, ElementsAre("a", "b"));
  EXPECT_THAT(pieces, ElementsAre("c", "d"));
  EXPECT_EQ(joined, "e,f");
}

TEST(CommandTest, AnEmptyValueIsNotTheNextArgument) {
  const auto parse = [](std::vector<std::string> arguments,
                        std::string* text) {
    Command program("test", "");
    Command& command = program.AddCommand("go", "");
    command.FallThrough();
    int number = 0;
    std::string file;
    bool is_on = false;
    command.Add("--text", *text);
    command.Add("file", file);
    command.AddFlag("--on", is_on);
    program.Add("--number", number);
    const std::string error = program.Parse(std::move(arguments)).error;
    return error.empty() ? file : error;
  };
  std::string text = "before";
  EXPECT_EQ(parse({"go", "--text=", "next"}, &text), "next");
  EXPECT_EQ(text, "");
  text = "before";
  EXPECT_EQ(parse({"go", "next", "--text="}, &text), "next");
  EXPECT_EQ(text, "");
  EXPECT_EQ(parse({"go", "--on=", "next"}, &text), "next");
  for (const std::vector<std::string>& empty :
       {std::vector<std::string>{"go", "--number=", "7"},
        {"go", "--number", "", "7"}}) {
    EXPECT_THAT(parse(empty, &text), HasSubstr("--number: needs a value"));
  }
}

TEST(CommandTest, AListTakesAllThatFollowsUnlessOneEach) {
  const auto read = [](bool one_each, std::string* run) {
    Command command("test", "");
    std::vector<std::string> names;
    command.Add("run", *run);
    const Flag flag = command.Add("--name", names);
    if (one_each) flag.OneEach();
    EXPECT_EQ(command.Parse({"--name", "a", "b"}).error, "");
    return names;
  };
  std::string run;
  EXPECT_THAT(read(false, &run), ElementsAre("a", "b"));
  EXPECT_EQ(run, "");
  EXPECT_THAT(read(true, &run), ElementsAre("a"));
  EXPECT_EQ(run, "b");
}

TEST(CommandTest, AFlagsUnderscoresAreDashes) {
  Command command("test", "");
  std::string value;
  command.Add("--run-id", value);
  // style-ok(flag): the alias.
  EXPECT_EQ(command.Parse({"--run_id=x_y"}).error, "");
  EXPECT_EQ(value, "x_y");
}

// --- Faults ------------------------------------------------------------------

std::string ErrorOf(const std::vector<std::string>& arguments) {
  Command command("test", "");
  int number = 0;
  std::string text;
  bool is_on = false;
  command.Add("--number", number).Required().Check(Range(1, 64));
  command.AddText("--text",
                  {"",
                   [](const std::string& value) {
                     return value == "x" ? "" : value + " is bad";
                   }},
                  "");
  const Flag on = command.AddFlag("--on", is_on);
  command.Add("--other", text).Needs(on);
  const ParseResult result = command.Parse(arguments);
  EXPECT_FALSE(result.ended);
  return result.error;
}

TEST(CommandTest, AWrongCommandLineIsAnErrorThatNamesTheFlag) {
  EXPECT_EQ(ErrorOf({"--number", "1", "--text", "x"}), "");
  EXPECT_EQ(ErrorOf({}), "--number is required");
  EXPECT_EQ(ErrorOf({"--number", "65"}),
            "--number: Value 65 not in range 1 to 64");
  EXPECT_EQ(ErrorOf({"--number", "1", "--text", "y"}), "--text: y is bad");
  EXPECT_EQ(ErrorOf({"--number", "1", "--other", "a"}),
            "--other requires --on");
  EXPECT_EQ(ErrorOf({"--number", "1", "--else"}),
            "The following argument was not expected: --else");
}

TEST(CommandTest, AProgramThatCannotGoOnGetsItsExitCode) {
  const auto end = [](std::vector<std::string> arguments) {
    Command command("test", "Tests.");
    int number = 0;
    command.Add("--number", number, "A number").Check(Positive());
    command.AddVersion();
    arguments.insert(arguments.begin(), "path/of/test");
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    return command.ParseOrEnd(static_cast<int>(argv.size()), argv.data());
  };
  EXPECT_EQ(end({"--number", "1"}), std::nullopt);
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(end({"--help"}), 0);
  const std::string help = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(help, HasSubstr("Usage: test [OPTIONS]"));
  EXPECT_THAT(help, HasSubstr("  --number INT:POSITIVE       A number"));
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(end({"--version"}), 0);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr("test "));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(end({"--number", "0"}), 2);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "--number: must be above 0, not 0\n"
            "Run with --help for more information.\n");
}

// --- Subcommands -------------------------------------------------------------

TEST(CommandTest, RunsTheActionOfTheChosenSubcommand) {
  Command program("test", "");
  program.RequireCommand();
  std::string done;
  Command& run = program.AddCommand("run", "").RequireCommand();
  Command& list =
      run.AddCommand("list", "").Action([&done] { done += "list"; });
  Command& show =
      run.AddCommand("show", "").Action([&done] { done += "show"; });
  EXPECT_EQ(program.Parse({"run", "show"}).error, "");
  EXPECT_EQ(done, "show");
  EXPECT_TRUE(show.IsChosen());
  EXPECT_FALSE(list.IsChosen());
  EXPECT_EQ(program.ChosenName(), "test run show");
}

TEST(CommandTest, NamesAnUnknownSubcommand) {
  Command program("test", "");
  program.RequireCommand().AddCommand("run", "").RequireCommand();
  EXPECT_EQ(program.Parse({"run", "walk"}).error,
            "there is no command \"test run walk\"");
  EXPECT_EQ(program.ChosenName(), "test run");
}

TEST(CommandTest, GivenFlagsAreThoseOfTheCommandAndItsParents) {
  Command app("app", "");
  app.FallThrough();
  std::string coordinator, format, address, hours;
  std::optional<int> nice;
  bool idle = false, battery = false, service = false;
  app.Add("--coordinator", coordinator).Default("x");
  app.Add("-o,--format", format);
  Command& join = app.AddCommand("join", "");
  join.Add("address", address);
  join.Add("--hours", hours);
  join.Add("--nice", nice);
  join.AddFlag("--only-idle", idle);
  join.AddFlag("--no-battery", battery);
  join.AddFlag("--service", service);
  EXPECT_EQ(app.Parse({"join", "atoll://secret", "--only-idle", "--service",
                       "--nice", "19", "--hours=22:00-07:00", "-o", "json"})
                .error,
            "");
  EXPECT_THAT(join.GivenFlags({"service"}),
              ElementsAre("--hours=22:00-07:00", "--nice=19", "--only-idle",
                          "--format=json"));
  EXPECT_THAT(join.Values("address"), ElementsAre("atoll://secret"));
  EXPECT_THAT(join.Values("--no-battery"), IsEmpty());
  EXPECT_THAT(join.Values("--nothing"), IsEmpty());
}

}  // namespace
}  // namespace atl::flags
