#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "atoll/v1/training_state_service.grpc.pb.h"
#include "base/flags/flags.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"
#include "cli/commands/commands.h"
#include "cli/output/describe.h"
#include "cli/output/table.h"

namespace atl::cli {
namespace {

struct RoundListOptions {
  std::string run_id;
  int64_t after = 0;
  int64_t limit = 0;
  bool phases = false;
};

constexpr v1::Phase kPhases[] = {v1::PHASE_TRAIN, v1::PHASE_ENCODE,
                                 v1::PHASE_PUSH,  v1::PHASE_WAIT,
                                 v1::PHASE_MERGE, v1::PHASE_APPLY};

std::string Contributor(const v1::RoundContribution& contribution) {
  return contribution.island_id().empty()
             ? absl::StrCat("slot ", contribution.info().key().slot())
             : contribution.island_id();
}

// "island-0 0.3333, island-1 0.6667, island-2 LATE".
std::string DescribeContributions(const v1::Round& round) {
  std::vector<std::string> parts;
  for (const v1::RoundContribution& contribution : round.contributions()) {
    const std::string who = Contributor(contribution);
    parts.push_back(
        contribution.outcome() == v1::OUTCOME_MERGED
            ? absl::StrCat(who, " ", FormatLoss(contribution.weight()))
            : absl::StrCat(who, " ", EnumName(contribution.outcome())));
  }
  return absl::StrJoin(parts, ", ");
}

// The validation loss of the version that it made.
std::string DescribeLoss(const v1::Round& round) {
  if (!round.evaluation().failure().empty()) return "failed";
  return round.has_evaluation() ? FormatLoss(round.evaluation().loss()) : "-";
}

bool IsOutside(const v1::Round& round) {
  return !round.outside_band().empty() ||
         !round.evaluation().outside_band().empty();
}

void AddRoundRow(const v1::Round& round, Table* table) {
  int64_t payload_bytes = 0;
  for (const v1::RoundContribution& contribution : round.contributions()) {
    payload_bytes += contribution.payload_bytes();
  }
  const absl::Duration took =
      FromProto(round.commit_time()) - FromProto(round.open_time());
  table->AddRow(
      {absl::StrCat(IsOutside(round) ? "!" : "", round.commit_seq()),
       absl::StrCat(round.version()),
       absl::StrCat(round.fragment()),
       round.has_training_loss() ? FormatLoss(round.training_loss()) : "-",
       DescribeLoss(round),
       FormatBytes(payload_bytes),
       absl::StrCat(absl::ToInt64Milliseconds(took)),
       FormatTimestamp(FromProto(round.commit_time())),
       DescribeContributions(round)});
}

// A row for each contribution whose phases are known: seconds of each.
void AddPhaseRows(const v1::Round& round, Table* table) {
  for (const v1::RoundContribution& contribution : round.contributions()) {
    if (contribution.phases().empty()) continue;
    std::vector<std::string> cells = {absl::StrCat(round.commit_seq()),
                                      Contributor(contribution)};
    for (const v1::Phase phase : kPhases) {
      std::string cell = "-";
      for (const v1::PhaseTime& time : contribution.phases()) {
        if (time.phase() != phase) continue;
        cell = absl::StrFormat(
            "%.3f", absl::ToDoubleSeconds(FromProto(time.duration())));
      }
      cells.push_back(std::move(cell));
    }
    table->AddRow(std::move(cells));
  }
}

// A row for the restore between two rounds that follow each other in a run's
// one past. Each COMMIT and RESTORE takes the next number.
void AddRestoreRow(int64_t before, int64_t after, Table* table) {
  table->AddRow({absl::StrCat(after - 1), "-", "-", "-", "-", "-", "-", "-",
                 absl::StrCat("restored to the state after commit ", before)});
}

absl::Status ListRounds(Context& context, const RoundListOptions& options) {
  ASSIGN_OR_RETURN(auto client, context.MakeClient());
  Table rounds_table({">COMMIT", ">ROUND", ">FRAGMENT", ">TRAINING",
                      ">VALIDATION", ">BYTES", ">MS", "COMMITTED",
                      "CONTRIBUTIONS"});
  Table phases_table({">COMMIT", "ISLAND", ">TRAIN", ">ENCODE", ">PUSH",
                      ">WAIT", ">MERGE", ">APPLY"});
  Table& table = options.phases ? phases_table : rounds_table;
  Json rounds = Json::array();
  bool has_outside = false;
  int64_t newest = 0;  // The commit of the last row.
  v1::ListRoundsRequest request;
  request.set_run_id(options.run_id);
  request.set_after_commit_seq(options.after);
  const auto wants_more = [&] {
    return options.limit == 0 ||
           static_cast<int64_t>(rounds.size()) < options.limit;
  };
  do {
    ASSIGN_OR_RETURN(
        v1::ListRoundsResponse response,
        client->Call(&v1::TrainingStateService::Stub::ListRounds, request));
    if (request.page_token().empty() &&
        response.first_kept_commit_seq() > options.after + 1) {
      context.output().Message(absl::StrCat(
          "rounds before commit ", response.first_kept_commit_seq(),
          " are no longer kept: the run file's [history] "
          "keep_round_count bounds them"));
    }
    for (const v1::Round& round : response.rounds()) {
      if (!wants_more()) break;
      rounds.push_back(ToJson(round));
      has_outside |= IsOutside(round);
      if (options.phases) {
        AddPhaseRows(round, &table);
      } else {
        if (newest > 0 && round.commit_seq() > newest + 1) {
          AddRestoreRow(newest, round.commit_seq(), &table);
        }
        AddRoundRow(round, &table);
      }
      newest = round.commit_seq();
    }
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty() && wants_more());
  if (rounds.empty()) {
    context.output().Message("no committed rounds");
  } else if (table.empty()) {
    context.output().Message(
        "no phases: they are kept since the coordinator's start, for the "
        "newest rounds");
  }
  if (has_outside && !options.phases) {
    context.output().Message(
        "rounds with ! are outside the run's band: -o json says how "
        "(outside_band)");
  }
  context.output().PrintList("rounds", rounds,
                             table.empty() ? "" : table.ToString());
  return absl::OkStatus();
}

}  // namespace

void AddRoundList(flags::Command& app, Context& context) {
  flags::Command& command = app.AddCommand(
      "list", "List committed rounds and the outcome of each contribution");
  command.Footer(
      "Examples:\n  atoll round list laptop --after 20 -o jsonl\n"
      "  atoll round list laptop --phases");
  auto options = std::make_shared<RoundListOptions>();
  command.Add("run", options->run_id, "Id of the run").Required();
  command
      .Add("--after", options->after,
           "List only rounds with a greater commit number")
      .Check(flags::NotNegative());
  command
      .Add("--limit", options->limit, "List at most this many rounds; 0: all")
      .Check(flags::NotNegative())
      .ShowDefault();
  command.AddFlag("--phases", options->phases,
                  "Show where each island's time went, in seconds");
  SetAction(command, context, ListRounds, options);
}

}  // namespace atl::cli
