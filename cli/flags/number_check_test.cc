#include "cli/flags/number_check.h"

#include <string>

#include "gtest/gtest.h"

namespace atl::cli {
namespace {

TEST(NumberCheckTest, TakesFiniteNumbersInTheirRange) {
  for (const char* text : {"1", "0.5", "1e9", "30000"}) {
    std::string number = text;
    EXPECT_EQ(Positive()(number), "");
    EXPECT_EQ(NotNegative()(number), "");
  }
  std::string zero = "0";
  EXPECT_EQ(NotNegative()(zero), "");
}

TEST(NumberCheckTest, SaysInAFewWordsWhatIsWrong) {
  std::string text = "0";
  EXPECT_EQ(Positive()(text), "must be above 0, not 0");
  text = "-3";
  EXPECT_EQ(NotNegative()(text), "must be at least 0, not -3");
  for (const char* word : {"nan", "inf", "many", "3x", ""}) {
    text = word;
    const std::string wrong = "'" + text + "' is not a number";
    EXPECT_EQ(Positive()(text), wrong);
    EXPECT_EQ(NotNegative()(text), wrong);
  }
}

}  // namespace
}  // namespace atl::cli
