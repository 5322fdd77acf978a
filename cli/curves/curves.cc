#include "cli/curves/curves.h"

#include <limits>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"

namespace atl::cli {

std::vector<CurvePoint> PointsOf(const v1::Round& round,
                                 std::optional<double> tokens_per_second) {
  std::vector<CurvePoint> points;
  const absl::Time open = FromProto(round.open_time());
  const absl::Time seal = FromProto(round.seal_time());
  const absl::Time commit = FromProto(round.commit_time());
  const auto add = [&](const std::string& tag, double value) {
    points.push_back({tag, round.commit_seq(), commit, value});
  };
  if (round.has_training_loss()) {
    add("loss_metrics/global_avg_loss", round.training_loss());
  }
  if (tokens_per_second.has_value()) add("throughput(tps)", *tokens_per_second);
  const std::map<std::string, double> metrics(round.metrics().begin(),
                                              round.metrics().end());
  for (const auto& [name, mean] : metrics) {
    add(absl::StrCat("metrics/", name), mean);
  }
  add("outer/gradient_norm", round.outer_gradient_norm());
  add("rounds/merged_tokens", static_cast<double>(round.merged_token_count()));
  add("rounds/collect_seconds", absl::ToDoubleSeconds(seal - open));
  add("rounds/merge_seconds", absl::ToDoubleSeconds(commit - seal));
  return points;
}

CurvePoint PointOf(const v1::Evaluation& evaluation, absl::Time time) {
  return {"loss_metrics/outer_validation_loss", evaluation.commit_seq(), time,
          evaluation.loss()};
}

std::optional<double> Curves::TokensPerSecond(const v1::Round& round) {
  const absl::Time time = FromProto(round.commit_time());
  std::optional<double> rate;
  if (round.commit_seq() == commit_seq_ + 1 && time > commit_time_ &&
      round.merged_token_count() > merged_token_count_) {
    // The first round began when it was opened.
    const absl::Time since =
        commit_seq_ == 0 ? FromProto(round.open_time()) : commit_time_;
    rate =
        static_cast<double>(round.merged_token_count() - merged_token_count_) /
        absl::ToDoubleSeconds(time - since);
  }
  commit_seq_ = round.commit_seq();
  merged_token_count_ = round.merged_token_count();
  commit_time_ = time;
  return rate;
}

absl::Status Curves::Add(const v1::Round& round) {
  if (round.commit_seq() > commit_seq_) {
    const std::optional<double> rate = TokensPerSecond(round);
    if (events_ != nullptr) {
      RETURN_IF_ERROR(events_->Add(PointsOf(round, rate)));
    }
    if (csv_ != nullptr) RETURN_IF_ERROR(csv_->Add(round, rate));
  }
  if (!round.has_evaluation()) return absl::OkStatus();
  return Add(round.evaluation(), FromProto(round.commit_time()));
}

absl::Status Curves::Add(const v1::Restore& restore) {
  if (restore.commit_seq() <= commit_seq_) return absl::OkStatus();
  commit_seq_ = restore.commit_seq();
  // The tokens before the next commit are not known here: it gets no rate.
  merged_token_count_ = std::numeric_limits<int64_t>::max();
  if (events_ != nullptr) {
    RETURN_IF_ERROR(events_->Add(
        {CurvePoint{"run/restored_to_commit", restore.commit_seq(),
                    FromProto(restore.time()),
                    static_cast<double>(restore.cut_commit_seq() - 1)}}));
  }
  return csv_ != nullptr ? csv_->Add(restore) : absl::OkStatus();
}

absl::Status Curves::Add(const v1::Evaluation& evaluation, absl::Time time) {
  if (!evaluation.failure().empty()) return absl::OkStatus();
  if (events_ != nullptr) {
    RETURN_IF_ERROR(events_->Add({PointOf(evaluation, time)}));
  }
  return csv_ != nullptr ? csv_->Add(evaluation) : absl::OkStatus();
}

}  // namespace atl::cli
