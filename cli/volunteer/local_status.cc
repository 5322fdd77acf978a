#include "cli/volunteer/local_status.h"

#include "absl/strings/str_cat.h"
#include "cli/output/describe.h"
#include "cli/output/table.h"

namespace atl::cli {
namespace {

int64_t NumberOf(const Json& data, const char* key) {
  const auto found = data.find(key);
  return found != data.end() && found->is_number()
             ? static_cast<int64_t>(found->get<double>())
             : 0;
}

std::string StateText(const Json& data, absl::TimeZone zone) {
  std::string text = TextOf(data, "state");
  const std::string reason = TextOf(data, "reason");
  if (!reason.empty()) absl::StrAppend(&text, ": ", reason);
  absl::Time until;
  std::string error;
  if (absl::ParseTime(absl::RFC3339_full, TextOf(data, "until"), &until,
                      &error)) {
    absl::StrAppend(&text, ", until ",
                    absl::FormatTime("%Y-%m-%d %H:%M", until, zone));
  }
  return text;
}

worker::ContributionTally TallyOf(const Json& data) {
  worker::ContributionTally tally;
  const auto found = data.find("contributions");
  const Json counts = found != data.end() ? *found : Json::object();
  tally.merged_count = NumberOf(counts, "merged");
  tally.late_count = NumberOf(counts, "late");
  tally.stale_count = NumberOf(counts, "stale");
  tally.rejected_count = NumberOf(counts, "rejected");
  tally.dropped_count = NumberOf(counts, "dropped");
  tally.merged_tokens = static_cast<double>(NumberOf(data, "merged_tokens"));
  tally.rejected_reason = TextOf(data, "rejected_reason");
  return tally;
}

}  // namespace

std::string TextOf(const Json& data, const char* key) {
  const auto found = data.find(key);
  return found != data.end() && found->is_string() ? found->get<std::string>()
                                                   : std::string();
}

void AddTally(const worker::ContributionTally& tally, Json& data) {
  data["contributions"] = {{"merged", tally.merged_count},
                           {"late", tally.late_count},
                           {"stale", tally.stale_count},
                           {"rejected", tally.rejected_count},
                           {"dropped", tally.dropped_count}};
  data["merged_tokens"] = static_cast<int64_t>(tally.merged_tokens);
  data["rejected_reason"] = tally.rejected_reason;
}

std::string DescribeTally(const worker::ContributionTally& tally) {
  return absl::StrCat(tally.merged_count, " merged with ",
                      FormatCount(static_cast<int64_t>(tally.merged_tokens)),
                      " tokens, ", tally.late_count, " late, ",
                      tally.stale_count, " stale, ", tally.rejected_count,
                      " rejected",
                      tally.rejected_reason.empty()
                          ? ""
                          : absl::StrCat(" (", tally.rejected_reason, ")"),
                      ", ", tally.dropped_count, " dropped");
}

Json ToData(const LocalStatus& status) {
  const worker::IslandProgress& at = status.progress;
  Json data;
  data["run_id"] = status.run_id;
  data["island_id"] = status.island_id;
  data["state"] = status.state;
  data["reason"] = status.reason;
  data["until"] =
      status.until == absl::InfiniteFuture()
          ? Json(nullptr)
          : Json(absl::FormatTime("%Y-%m-%d%ET%H:%M:%SZ", status.until,
                                  absl::UTCTimeZone()));
  data["version"] = at.version;
  data["round_count"] = at.round_count;
  data["step"] = at.step;
  data["step_count"] = at.step_count;
  data["token_count"] = at.token_count;
  data["tokens_per_second"] = at.tokens_per_second;
  AddTally(at.contributions, data);
  data["sent_bytes"] = at.sent_bytes;
  data["received_bytes"] = at.received_bytes;
  data["day_bytes"] = status.day_bytes;
  data["day_bytes_max"] =
      status.day_bytes_max > 0 ? Json(status.day_bytes_max) : Json(nullptr);
  data["last_problem"] = status.last_problem;
  return data;
}

std::string StatusText(const Json& data, absl::TimeZone zone) {
  Fields fields;
  fields.Add("run", TextOf(data, "run_id"));
  fields.Add("island", TextOf(data, "island_id"));
  fields.AddText("state", StateText(data, zone));
  fields.Add("round", DescribeRounds(NumberOf(data, "version"),
                                     NumberOf(data, "round_count")));
  fields.Add("tokens read", FormatCount(NumberOf(data, "token_count")));
  fields.AddText("contributions", DescribeTally(TallyOf(data)));
  const int64_t cap = NumberOf(data, "day_bytes_max");
  fields.Add(
      "bytes today",
      absl::StrCat(FormatBytes(NumberOf(data, "day_bytes")),
                   cap > 0 ? absl::StrCat(" of ", FormatBytes(cap)) : ""));
  const std::string problem = TextOf(data, "last_problem");
  fields.AddText("last problem", problem.empty() ? "-" : problem);
  return fields.ToString();
}

}  // namespace atl::cli
