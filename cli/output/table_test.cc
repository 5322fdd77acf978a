#include "cli/output/table.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

TEST(TableTest, AlignsColumns) {
  Table table({"RUN", ">LOSS"});
  table.AddRow({"a", "1.5"});
  table.AddRow({"longer", "12.25"});
  EXPECT_EQ(table.ToString(),
            "RUN      LOSS\n"
            "a         1.5\n"
            "longer  12.25\n");
}

TEST(TableTest, NoCellBreaksALine) {
  Table table({"A"});
  table.AddRow({"x\n\x1b[31m"});
  EXPECT_EQ(table.ToString(), "A\nx??[31m\n");
}

TEST(PrintableTest, OnlyTextReachesTheTerminal) {
  EXPECT_EQ(Printable("na\u00EFve \u6A21\u578B \U0001F600"),
            "na\u00EFve \u6A21\u578B \U0001F600");
  EXPECT_EQ(Printable("\u00A0\u200D\u2027\u202F\u2065\u206A"),
            "\u00A0\u200D\u2027\u202F\u2065\u206A");
  // CSI, OSC, NEL: the 8-bit forms of control characters.
  EXPECT_EQ(Printable("\u009B31m\u009D0;x\u0085\u0080\u009F\x7F"),
            "?31m?0;x????");
  EXPECT_EQ(Printable("\u200E\u200F\u2028\u2029\u202A\u202E\u2066\u2069"),
            "????????");
  EXPECT_EQ(Printable("a\x9B\xC2 \xC0\x9B \xE2\x80"), "a?? ?? ??");
  EXPECT_EQ(Printable(std::string("\0b", 2)), "?b");
}

TEST(FieldsTest, PutsValuesInOneColumn) {
  Fields fields;
  fields.Add("run", "a");
  fields.Add("state", "ACTIVE");
  EXPECT_EQ(fields.ToString(), "run    a\nstate  ACTIVE\n");
}

TEST(FieldsTest, ASentenceGoesOnInItsColumn) {
  Fields fields;
  fields.Add("run", std::string(90, 'r'));
  const std::string word(20, 'w');
  fields.AddText("found", absl::StrCat(word, " ", word, " ", word, " ", word));
  fields.AddText("next", std::string(100, 'x'));
  EXPECT_EQ(fields.ToString(),
            absl::StrCat("run    ", std::string(90, 'r'), "\nfound  ", word,
                         " ", word, " ", word, "\n       ", word, "\nnext   ",
                         std::string(100, 'x'), "\n"));
}

TEST(WrapTest, BreaksAtSpacesAndKeepsCommandsWhole) {
  EXPECT_EQ(Wrap("one two three", 0, 2, 13), "one two three");
  EXPECT_EQ(Wrap("one two three", 1, 2, 13), "one two\n  three");
  EXPECT_EQ(Wrap("run `a b c` or `d", 0, 1, 9), "run\n `a b c`\n or `d");
  EXPECT_EQ(Wrap("a much-longer-word b", 0, 0, 6), "a\nmuch-longer-word\nb");
  EXPECT_EQ(Wrap("  kept  spaces", 0, 0), "  kept  spaces");
  EXPECT_EQ(Wrap("", 5, 2, 10), "");
}

TEST(FormatTest, NumbersForPeople) {
  EXPECT_EQ(FormatBytes(999), "999 B");
  EXPECT_EQ(FormatBytes(3430000), "3.4 MB");
  EXPECT_EQ(FormatBytes(999999), "1.0 MB");
  EXPECT_EQ(FormatCount(1234567), "1,234,567");
  EXPECT_EQ(FormatCount(-123456), "-123,456");
  EXPECT_EQ(FormatCount(12), "12");
  EXPECT_EQ(FormatLoss(1.36789), "1.3679");
  EXPECT_EQ(FormatLoss(999999.5), "999999.5000");
  EXPECT_EQ(FormatLoss(1e308), "1e+308");
  EXPECT_EQ(FormatLoss(NAN), "-");
  EXPECT_EQ(FormatSpan(absl::Seconds(185)), "3m05s");
  EXPECT_EQ(FormatSpan(absl::Hours(99)), "99h00m");
  EXPECT_EQ(FormatSpan(absl::Hours(100)), "4.17 days");
  EXPECT_EQ(FormatSpan(absl::Hours(24 * 999 - 24)), "998 days");
  EXPECT_EQ(FormatSpan(absl::Hours(24000)), "2.74 years");
  EXPECT_EQ(FormatSpan(absl::Hours(24) * 365.25 * 12345), "12345 years");
  EXPECT_EQ(FormatSpan(absl::InfiniteDuration()), "-");
  EXPECT_EQ(FormatTimestamp(absl::FromUnixSeconds(1700000000)),
            "2023-11-14T22:13:20Z");
  EXPECT_EQ(FormatTimestamp(absl::UnixEpoch()), "");
}

}  // namespace
}  // namespace atl::cli
