#include "coordinator/core/outputs/run_events.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"

namespace atl::coordinator {
namespace {

v1::ContributionsRefused ListRefused(
    const storage::v1::OutcomesSet& set,
    const std::vector<std::string>& island_ids) {
  v1::ContributionsRefused refused;
  for (const v1::ContributionOutcome& outcome : set.outcomes()) {
    if (outcome.outcome() != v1::OUTCOME_REJECTED) continue;
    v1::RoundContribution& added = *refused.add_contributions();
    *added.mutable_info()->mutable_key() = outcome.key();
    const int32_t slot = outcome.key().slot();
    if (slot >= 0 && static_cast<size_t>(slot) < island_ids.size()) {
      added.set_island_id(island_ids[slot]);
    }
    added.set_outcome(outcome.outcome());
    added.set_reason(outcome.reason());
  }
  return refused;
}

// A warning about a contribution of a committed round; empty: none is due.
std::string Warn(const v1::RoundContribution& contribution) {
  if (contribution.outcome() == v1::OUTCOME_REJECTED) {
    return absl::StrCat("refused a contribution: ", contribution.reason());
  }
  if (contribution.outcome() != v1::OUTCOME_MERGED) return "";
  if (contribution.norm() == 0) {
    return absl::StrCat("merged a contribution of island ",
                        contribution.island_id(), " with norm 0: its ",
                        contribution.info().step_count(),
                        " steps have not changed the parameters that it sends");
  }
  if (contribution.norm_bound() == 0 ||
      contribution.norm() <= contribution.norm_bound()) {
    return "";
  }
  return absl::StrCat("merged a contribution of island ",
                      contribution.island_id(), " with norm ",
                      contribution.norm(),
                      ", above the bound of enrolled islands, ",
                      contribution.norm_bound());
}

}  // namespace

std::vector<std::string> ListWarnings(const Batch& batch) {
  std::vector<std::string> warnings;
  const auto add = [&](const LogEntry& entry, const std::string& text) {
    if (text.empty() || warnings.size() == kWarningsMax) return;
    warnings.push_back(absl::StrCat("run ", entry.run_id, ": ", text));
  };
  for (const LogEntry& entry : batch.entries) {
    const storage::v1::Record& record = entry.record;
    const v1::Round& round = record.round_committed().round();
    if (!round.outside_band().empty()) {
      add(entry, absl::StrCat("commit ", round.commit_seq(),
                              " is outside the run's band: ",
                              round.outside_band()));
    }
    const v1::Evaluation& evaluation = record.evaluated().evaluation();
    if (!evaluation.outside_band().empty()) {
      add(entry, absl::StrCat("version ", evaluation.version(),
                              " is outside the run's band: ",
                              evaluation.outside_band()));
    }
    for (const v1::RoundContribution& contribution :
         record.round_committed().round().contributions()) {
      add(entry, Warn(contribution));
    }
    const v1::ContributionsRefused refused =
        ListRefused(record.outcomes_set(), {});
    for (const v1::RoundContribution& one : refused.contributions()) {
      add(entry, Warn(one));
    }
  }
  return warnings;
}

std::optional<v1::RunEvent> ToEvent(
    const storage::v1::Record& record,
    const std::vector<std::string>& island_ids) {
  v1::RunEvent event;
  event.set_revision(record.revision());
  *event.mutable_time() = record.time();
  switch (record.body_case()) {
    case storage::v1::Record::kRunCreated:
      event.mutable_run_state_changed()->set_state(v1::RUN_STATE_STARTING);
      return event;
    case storage::v1::Record::kRunStateSet:
      event.mutable_run_state_changed()->set_state(
          record.run_state_set().state());
      event.mutable_run_state_changed()->set_reason(
          record.run_state_set().reason());
      return event;
    case storage::v1::Record::kMemberSet: {
      v1::IslandChanged& changed = *event.mutable_island_changed();
      changed.set_island_id(record.member_set().island_id());
      changed.set_slot(record.member_set().slot());
      changed.set_island_epoch(record.member_set().island_epoch());
      changed.set_state(record.member_set().state());
      if (record.member_set().has_leave()) {
        *changed.mutable_leave() = record.member_set().leave();
      }
      return event;
    }
    case storage::v1::Record::kRoundOpened:
      *event.mutable_round_opened()->mutable_round() = record.round_opened();
      return event;
    case storage::v1::Record::kRoundSealed:
      *event.mutable_round_sealed() = record.round_sealed().seal();
      return event;
    case storage::v1::Record::kRoundCommitted:
      *event.mutable_round_committed() = record.round_committed().round();
      return event;
    case storage::v1::Record::kRoundAborted: {
      v1::RoundAborted& aborted = *event.mutable_round_aborted();
      aborted.set_fragment(record.round_aborted().fragment());
      aborted.set_version(record.round_aborted().version());
      aborted.set_attempt(record.round_aborted().attempt());
      aborted.set_reason(record.round_aborted().reason());
      return event;
    }
    case storage::v1::Record::kOutcomesSet: {
      v1::ContributionsRefused refused =
          ListRefused(record.outcomes_set(), island_ids);
      if (refused.contributions().empty()) break;
      *event.mutable_contributions_refused() = std::move(refused);
      return event;
    }
    case storage::v1::Record::kPinSet:
      *event.mutable_pin_changed()->mutable_pin() = record.pin_set().pin();
      return event;
    case storage::v1::Record::kPinReleased:
      event.mutable_pin_changed()->mutable_pin()->set_pin_id(
          record.pin_released().pin_id());
      event.mutable_pin_changed()->set_released(true);
      return event;
    case storage::v1::Record::kEvaluated:
      *event.mutable_evaluated() = record.evaluated().evaluation();
      return event;
    case storage::v1::Record::kRunRestored:
      *event.mutable_run_restored() = record.run_restored().restore();
      return event;
    case storage::v1::Record::kRunPlaced:
    case storage::v1::Record::kRunStarted:
    case storage::v1::Record::kRoundJudged:
    case storage::v1::Record::kWorkUnpushed:
    case storage::v1::Record::kCoordinatorStarted:
    case storage::v1::Record::kServerSet:
    case storage::v1::Record::kRunDeleted:
    case storage::v1::Record::kRunForgotten:
    case storage::v1::Record::kTokenSet:
    case storage::v1::Record::kTokenForgotten:
    case storage::v1::Record::kIdentitySet:
    case storage::v1::Record::kIdentityForgotten:
    case storage::v1::Record::kAudited:
    case storage::v1::Record::BODY_NOT_SET:
      break;
  }
  return std::nullopt;
}

}  // namespace atl::coordinator
