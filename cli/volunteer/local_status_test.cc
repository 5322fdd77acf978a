#include "cli/volunteer/local_status.h"

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

LocalStatus Paused() {
  LocalStatus status;
  status.run_id = "spring";
  status.island_id = "kitchen";
  status.state = "paused";
  status.reason = "outside of --hours 22:00-07:00";
  status.until = absl::FromUnixSeconds(1'780'000'000);
  status.progress.version = 12;
  status.progress.round_count = 30;
  status.progress.token_count = 1'234'567;
  status.progress.contributions = {.merged_count = 11,
                                   .late_count = 1,
                                   .rejected_count = 1,
                                   .merged_tokens = 1'100'000.5,
                                   .rejected_reason = "NOT_FINITE"};
  status.day_bytes = 4'100'000'000;
  status.day_bytes_max = 20'000'000'000;
  status.last_problem =
      std::string(30, 'x') + " cannot be reached: " + std::string(40, 'y');
  return status;
}

TEST(LocalStatusTest, ShowsWhatBecameOfOnesWorkInEightyColumns) {
  const std::string text = StatusText(ToData(Paused()), absl::UTCTimeZone());
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    EXPECT_LE(line.size(), 80) << line;
  }
  EXPECT_EQ(text.substr(0, text.find("last problem")),
            "run            spring\n"
            "island         kitchen\n"
            "state          paused: outside of --hours 22:00-07:00, until "
            "2026-05-28 20:26\n"
            "round          12 of 30\n"
            "tokens read    1,234,567\n"
            "contributions  11 merged with 1,100,000 tokens, 1 late, 0 stale, "
            "1 rejected\n"
            "               (NOT_FINITE), 0 dropped\n"
            "bytes today    4.1 GB of 20.0 GB\n");
}

TEST(LocalStatusTest, TheKeysOfTheDataAreStable) {
  std::string keys;
  const Json data = ToData(Paused());
  for (const auto& entry : data.items()) keys += entry.key() + " ";
  EXPECT_EQ(keys,
            "run_id island_id state reason until version round_count step "
            "step_count token_count tokens_per_second contributions "
            "merged_tokens rejected_reason sent_bytes received_bytes day_bytes "
            "day_bytes_max last_problem ");
  EXPECT_EQ(data["contributions"].dump(),
            R"({"merged":11,"late":1,"stale":0,"rejected":1,"dropped":0})");
  EXPECT_EQ(data["until"], "2026-05-28T20:26:40Z");
  EXPECT_TRUE(ToData(LocalStatus())["until"].is_null());
  EXPECT_TRUE(ToData(LocalStatus())["day_bytes_max"].is_null());
}

TEST(LocalStatusTest, AnAnswerOfAnotherVersionIsShownAsFarAsItGoes) {
  EXPECT_FALSE(StatusText(Json::object(), absl::UTCTimeZone()).empty());
  EXPECT_FALSE(StatusText(Json(7), absl::UTCTimeZone()).empty());
  EXPECT_FALSE(
      StatusText(
          {{"state", 7}, {"until", 1}, {"contributions", {{"late", "x"}}}},
          absl::UTCTimeZone())
          .empty());
}

}  // namespace
}  // namespace atl::cli
