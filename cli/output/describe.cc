#include "cli/output/describe.h"

#include <algorithm>
#include <limits>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/codec/codec.h"
#include "base/layout/external_model.h"
#include "base/layout/run_length.h"
#include "base/time/proto_time.h"
#include "cli/output/table.h"

namespace atl::cli {
namespace {

// A restore after the loss of a log takes the next multiple of this number as
// its commit_seq (coordinator/RESTORE.md).
constexpr int64_t kSeqJump = 1'000'000'000;

// ": why" or nothing.
std::string Because(const std::string& reason) {
  return reason.empty() ? "" : absl::StrCat(": ", reason);
}

// " of fragment 2"; empty for fragment 0.
std::string OfFragment(int32_t fragment) {
  return fragment == 0 ? "" : absl::StrCat(" of fragment ", fragment);
}

std::string DescribeRefused(const v1::ContributionsRefused& refused) {
  std::vector<std::string> parts;
  for (const v1::RoundContribution& one : refused.contributions()) {
    parts.push_back(absl::StrCat("contribution of ", one.island_id(),
                                 " refused", Because(one.reason())));
  }
  return absl::StrJoin(parts, "; ");
}

std::string DescribeCommit(const v1::Round& round,
                           const v1::ScheduleSpec& schedule) {
  std::map<std::string, int> outcomes;
  for (const v1::RoundContribution& contribution : round.contributions()) {
    ++outcomes[EnumName(contribution.outcome())];
  }
  std::vector<std::string> parts;
  for (const auto& [name, count] : outcomes) {
    parts.push_back(absl::StrCat(count, " ", name));
  }
  std::string text = absl::StrCat("round ", round.version(),
                                  OfFragment(round.fragment()), " committed");
  if (!parts.empty()) absl::StrAppend(&text, ": ", absl::StrJoin(parts, ", "));
  if (round.has_training_loss()) {
    absl::StrAppend(&text, ", training loss ",
                    FormatLoss(round.training_loss()));
  }
  if (!round.outside_band().empty()) {
    absl::StrAppend(&text, "; outside the run's band: ", round.outside_band());
  }
  if (HasTokenBudget(schedule) && round.merged_token_count() > 0) {
    absl::StrAppend(&text, ", ",
                    DescribeTokens(round.merged_token_count(), schedule),
                    " tokens");
  }
  for (const v1::RoundContribution& contribution : round.contributions()) {
    if (contribution.outcome() == v1::OUTCOME_REJECTED) {
      absl::StrAppend(&text, "; ", contribution.island_id(), " was refused",
                      Because(contribution.reason()));
    } else if (contribution.outcome() == v1::OUTCOME_MERGED &&
               contribution.norm() == 0) {
      absl::StrAppend(&text, "; ", contribution.island_id(),
                      " has changed nothing (norm 0)");
    }
  }
  return text;
}

// "unknown" for a codec of a newer program.
absl::string_view NameCodec(v1::Codec codec) {
  return codec::CodecName(codec == v1::CODEC_UNSPECIFIED
                              ? codec::CodecId::kF32
                              : static_cast<codec::CodecId>(codec));
}

}  // namespace

std::string PlannedRounds(const v1::ScheduleSpec& schedule) {
  return schedule.round_count() == 0 ? "-"
                                     : absl::StrCat(schedule.round_count());
}

std::string PlannedTokens(const v1::ScheduleSpec& schedule) {
  return HasTokenBudget(schedule) ? FormatCount(schedule.token_count()) : "-";
}

std::string DescribeShortRun(const v1::RunSpec& spec) {
  if (IsExternal(spec.model())) return "";
  const int64_t round_count = spec.schedule().round_count();
  const int64_t step_count = spec.schedule().inner_step_count();
  const int64_t warmup = spec.inner().warmup_step_count();
  // A division, because the product could overflow.
  if (round_count == 0 || step_count == 0 ||
      warmup / step_count < round_count) {
    return "";
  }
  return absl::StrCat("the run ends before its learning rate has warmed up: ",
                      round_count, " rounds of ", step_count,
                      " steps, and inner.warmup_step_count = ", warmup,
                      "; set it to about a tenth of all steps");
}

std::string DescribeRounds(int64_t done_count, int64_t round_count) {
  if (round_count == 0) return absl::StrCat(done_count);
  return absl::StrCat(done_count, " of ", round_count);
}

std::string DescribeEvaluation(const v1::Evaluation& evaluation) {
  const std::string evaluator = absl::StrCat(
      DescribeEvaluator(evaluation),
      evaluation.outside_band().empty() ? "" : "; outside the run's band: ",
      evaluation.outside_band());
  return evaluation.failure().empty()
             ? absl::StrCat("version ", evaluation.version(),
                            " evaluated: validation loss ",
                            FormatLoss(evaluation.loss()), evaluator)
             : absl::StrCat("version ", evaluation.version(), " not evaluated",
                            evaluator, Because(evaluation.failure()));
}

std::string DescribeEvaluator(const v1::Evaluation& evaluation) {
  return evaluation.island_id().empty()
             ? ""
             : absl::StrCat(", by ", evaluation.island_id());
}

std::string DescribeRestore(const v1::Restore& restore) {
  const int64_t first = restore.cut_commit_seq();
  const int64_t last = restore.commit_seq() - 1;
  std::string text = absl::StrCat(
      "to ", restore.pin_id(), ", the state after commit ", first - 1, ", at ",
      FormatTimestamp(FromProto(restore.time())));
  if (restore.commit_seq() % kSeqJump == 0) {
    return absl::StrCat(text, ": it continues from a copy, and later commits ",
                        "are lost");
  }
  if (first / kSeqJump != last / kSeqJump) {
    return absl::StrCat(text, ": commit ", first, " and all later ones are "
                        "lost");
  }
  if (first == last) absl::StrAppend(&text, ": commit ", first, " is lost");
  if (first < last) {
    absl::StrAppend(&text, ": commits ", first, " to ", last, " are lost");
  }
  return text;
}

std::string DescribeKept(const v1::Pin& pin) {
  if (pin.keep_bytes_max() == 0) return "no contributions";
  std::string text = absl::StrCat(FormatBytes(pin.kept_bytes()), " of ",
                                  FormatBytes(pin.keep_bytes_max()));
  if (pin.keep_end() > 0) {
    absl::StrAppend(&text, ", up to commit ", pin.keep_end() - 1,
                    ": its --keep-mb is used up");
  }
  return text;
}

std::string DescribeTokens(int64_t merged_token_count,
                           const v1::ScheduleSpec& schedule) {
  const std::string merged = FormatCount(merged_token_count);
  if (!HasTokenBudget(schedule)) return merged;
  return absl::StrFormat("%s of %s (%.1f %%)", merged,
                         FormatCount(schedule.token_count()),
                         100 * static_cast<double>(merged_token_count) /
                             static_cast<double>(schedule.token_count()));
}

std::string DescribeRunState(const v1::Run& run) {
  return run.has_fault()
             ? absl::StrCat(EnumName(run.state()), " (", run.fault().code(), ")")
             : EnumName(run.state());
}

std::string DescribeRun(const v1::Run& run) {
  Table table({"RUN", "STATE", "WHY"});
  table.AddRow({run.run_id(), DescribeRunState(run), run.state_reason()});
  return table.ToString();
}

std::string DescribeModel(const v1::RunSpec& spec) {
  if (spec.layout().tensors().empty()) return spec.model().architecture();
  int64_t parameter_count = 0;
  for (const v1::TensorSpec& tensor : spec.layout().tensors()) {
    int64_t element_count = 1;
    for (const int64_t dimension : tensor.shape()) element_count *= dimension;
    parameter_count += element_count;
  }
  std::string text = absl::StrCat(spec.model().architecture(), ", ",
                                  FormatCount(parameter_count), " parameters");
  if (IsExternal(spec.model())) {
    const int tensor_count = spec.layout().tensors_size();
    absl::StrAppend(&text, " in ", FormatCount(tensor_count),
                    tensor_count == 1 ? " tensor" : " tensors");
  }
  return text;
}

std::string DescribeExchange(const v1::ExchangeSpec& exchange) {
  std::string text = absl::StrCat(NameCodec(exchange.up()), " up");
  if (exchange.error_feedback()) {
    absl::StrAppend(&text, " with error feedback");
    const double decay = exchange.error_feedback_decay();
    if (decay != 0 && decay != 1)
      absl::StrAppend(&text, " (decay ", decay, ")");
  }
  absl::StrAppend(&text, ", ", NameCodec(exchange.down()), " down");
  return text;
}

std::string EnumName(v1::RunState state) {
  return std::string(absl::StripPrefix(v1::RunState_Name(state), "RUN_STATE_"));
}

std::string EnumName(v1::Outcome outcome) {
  if (outcome == v1::OUTCOME_UNSPECIFIED) return "UNDECIDED";
  return std::string(absl::StripPrefix(v1::Outcome_Name(outcome), "OUTCOME_"));
}

std::string EnumName(v1::IslandPhase phase) {
  return std::string(
      absl::StripPrefix(v1::IslandPhase_Name(phase), "ISLAND_PHASE_"));
}

std::string DescribeWork(const v1::Island& island) {
  // A newer program's phase has no name here.
  const std::string phase = EnumName(island.phase());
  return island.state() != v1::ISLAND_STATE_READY || phase.empty() ||
                 island.phase() == v1::ISLAND_PHASE_UNSPECIFIED
             ? EnumName(island.state())
             : phase;
}

std::string EnumName(v1::IslandState state) {
  return std::string(
      absl::StripPrefix(v1::IslandState_Name(state), "ISLAND_STATE_"));
}

bool HasEnded(v1::RunState state) {
  return state == v1::RUN_STATE_COMPLETED || state == v1::RUN_STATE_CANCELLED;
}

int64_t CompleteRounds(const v1::GetRunStateResponse& state) {
  if (state.cut().empty()) return 0;
  int64_t rounds = std::numeric_limits<int64_t>::max();
  for (const v1::FragmentVersion& fragment : state.cut()) {
    rounds = std::min(rounds, fragment.version());
  }
  return rounds;
}

double DoneShare(const v1::GetRunStateResponse& state) {
  const v1::ScheduleSpec& schedule = state.run().spec().schedule();
  double share = 0;
  if (schedule.round_count() > 0) {
    share = static_cast<double>(CompleteRounds(state)) /
            static_cast<double>(schedule.round_count());
  }
  if (HasTokenBudget(schedule)) {
    share = std::max(share, static_cast<double>(state.merged_token_count()) /
                                static_cast<double>(schedule.token_count()));
  }
  return std::min(share, 1.0);
}

std::string DescribeSittingOut(const v1::SittingOut& sitting,
                               int64_t commit_seq) {
  std::string text = absl::StrCat(sitting.refused_count(), " refused");
  if (commit_seq < sitting.until_commit_seq()) {
    absl::StrAppend(&text, ", sits out until commit ",
                    sitting.until_commit_seq());
  }
  return absl::StrCat(text, Because(sitting.reason()));
}

std::string DescribeLeave(const v1::IslandLeave& leave) {
  return absl::StrCat(
      leave.reason().empty() ? "it did not say why" : leave.reason(),
      " (at step ", leave.step(),
      leave.has_loss()
          ? absl::StrCat(", training loss ", FormatLoss(leave.loss()))
          : "",
      ")");
}

std::string DescribeEvent(const v1::RunEvent& event,
                          const v1::ScheduleSpec& schedule) {
  std::string text;
  switch (event.event_case()) {
    case v1::RunEvent::kRunStateChanged: {
      const v1::RunStateChanged& change = event.run_state_changed();
      text = absl::StrCat("run ", EnumName(change.state()),
                          Because(change.reason()));
      break;
    }
    case v1::RunEvent::kIslandChanged: {
      const v1::IslandChanged& change = event.island_changed();
      text = absl::StrCat(
          "island ", change.island_id(), " (slot ", change.slot(), ") ",
          EnumName(change.state()),
          change.has_leave() ? Because(DescribeLeave(change.leave())) : "");
      break;
    }
    case v1::RunEvent::kRoundOpened: {
      const v1::OpenRound& round = event.round_opened().round();
      text = absl::StrCat("round ", round.version() + 1,
                          OfFragment(round.fragment()), " opened for ",
                          round.slots_size(), " islands");
      break;
    }
    case v1::RunEvent::kRoundSealed: {
      const v1::Seal& seal = event.round_sealed();
      text = absl::StrCat("round ", seal.version() + 1,
                          OfFragment(seal.fragment()), " sealed with ",
                          seal.contributions_size(), " contributions");
      break;
    }
    case v1::RunEvent::kRoundCommitted:
      text = DescribeCommit(event.round_committed(), schedule);
      break;
    case v1::RunEvent::kRoundAborted: {
      const v1::RoundAborted& abort = event.round_aborted();
      text = absl::StrCat("round ", abort.version() + 1,
                          OfFragment(abort.fragment()), " aborted",
                          Because(abort.reason()));
      break;
    }
    case v1::RunEvent::kPinChanged: {
      const v1::PinChanged& change = event.pin_changed();
      text = absl::StrCat("pin ", change.pin().pin_id());
      absl::StrAppend(&text, change.released()
                                 ? " released"
                                 : absl::StrCat(" made at commit ",
                                                change.pin().commit_seq()));
      if (change.pin().suspect()) absl::StrAppend(&text, ", suspect");
      if (change.pin().has_mirror()) absl::StrAppend(&text, ", in the mirror");
      break;
    }
    case v1::RunEvent::kEvaluated:
      text = DescribeEvaluation(event.evaluated());
      break;
    case v1::RunEvent::kContributionsRefused:
      text = DescribeRefused(event.contributions_refused());
      break;
    case v1::RunEvent::kRunRestored:
      text = absl::StrCat("run restored ",
                          DescribeRestore(event.run_restored()));
      break;
    case v1::RunEvent::EVENT_NOT_SET:
      text = "an event unknown to this version of atoll";
      break;
  }
  return absl::StrCat(FormatTimestamp(FromProto(event.time())), "  ",
                      Printable(text));
}

std::string DescribeWait(const v1::GetRunStateResponse& state) {
  const auto longest = std::min_element(
      state.waiting_rounds().begin(), state.waiting_rounds().end(),
      [](const v1::WaitingRound& a, const v1::WaitingRound& b) {
        return FromProto(a.since_time()) < FromProto(b.since_time());
      });
  if (longest == state.waiting_rounds().end()) return "";
  std::string whom = absl::StrJoin(longest->island_ids(), ", ");
  const int more = longest->awaited_count() - longest->island_ids_size();
  if (more > 0) absl::StrAppend(&whom, " and ", more, " more");
  if (whom.empty()) whom = "an island to join or come back";
  return absl::StrCat(
      "for ", whom, " since ",
      FormatTimestamp(FromProto(longest->since_time())),
      ": round ", longest->version() + 1, OfFragment(longest->fragment()),
      " has ", longest->received_count(), " of ", longest->expected_count());
}

}  // namespace atl::cli
