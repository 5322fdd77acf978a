#include "coordinator/core/run_queries.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/layout/ids.h"
#include "base/layout/layout.h"
#include "base/layout/run_timing.h"
#include "base/status/cut_utf8.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"
#include "coordinator/core/outputs/history.h"
#include "coordinator/core/outputs/island_warning.h"
#include "coordinator/core/outputs/plans.h"
#include "coordinator/core/rounds/contributions.h"
#include "coordinator/core/rounds/measured_speeds.h"
#include "coordinator/core/rounds/sit_out.h"

namespace atl::coordinator {
namespace {

constexpr int64_t kPageSizeDefault = 50;
constexpr int64_t kPageSizeMax = 500;
// A page token of ListRuns is this and a run_id.
constexpr absl::string_view kAfterRun = "after ";
constexpr size_t kPreviewSpecBytesMax = 12 << 10;
constexpr size_t kPreviewReasonBytesMax = 200;
// Islands that GetRunState names for one reason.
constexpr int kNamedIslandsMax = 64;

// INVALID_ARGUMENT: page_token is not one that the method returned.
absl::Status WrongPageToken() {
  return InvalidFields(
      {{"page_token", "is not one that this method returned"}});
}

// The size of a page: 0 means 50, more than 500 means 500.
//
// INVALID_ARGUMENT: negative.
absl::StatusOr<int64_t> PageSize(int32_t page_size) {
  if (page_size < 0) {
    return InvalidFields({{"page_size", "must be at least 0"}});
  }
  if (page_size == 0) return kPageSizeDefault;
  return std::min<int64_t>(page_size, kPageSizeMax);
}

// The number before the page; 0 for the first page.
absl::StatusOr<int64_t> PageStart(const std::string& token) {
  if (token.empty()) return 0;
  int64_t start = 0;
  if (!absl::SimpleAtoi(token, &start) || start <= 0) return WrongPageToken();
  return start;
}

ItemsPage TakePage(size_t begin, size_t count, int64_t size) {
  return {begin, begin + std::min(static_cast<size_t>(size), count - begin), ""};
}

using CheckpointPlace = std::pair<int64_t, std::string>;  // commit_seq, pin_id.

std::optional<CheckpointPlace> ParseCheckpointName(const std::string& name) {
  const size_t space = name.find(' ');
  CheckpointPlace place;
  if (space == std::string::npos ||
      !absl::SimpleAtoi(name.substr(0, space), &place.first)) {
    return std::nullopt;
  }
  place.second = name.substr(space + 1);
  return place;
}

// Since when nothing has arrived for the open round of `fragment`.
absl::Time WaitsSince(const RunMachine& machine, size_t fragment) {
  return std::max(machine.state().fragments()[fragment].open_time,
                  machine.observed().timers[fragment].wait.received_time);
}

// True if only a delivery can advance the open round of `fragment`.
bool IsWaiting(const RunState& state, size_t fragment) {
  return state.state() == v1::RUN_STATE_ACTIVE &&
         !IsAsync(state.spec().schedule()) &&
         state.fragments()[fragment].phase == RoundPhase::kOpen;
}

void AddWaitingRounds(const RunMachine& machine,
                      v1::GetRunStateResponse& response) {
  const RunState& state = machine.state();
  for (size_t f = 0; f < state.fragments().size(); ++f) {
    if (!IsWaiting(state, f)) continue;
    const v1::OpenRound& open = state.fragments()[f].open;
    const RoundWait& wait = machine.observed().timers[f].wait;
    v1::WaitingRound& round = *response.add_waiting_rounds();
    round.set_fragment(open.fragment());
    round.set_version(open.version());
    round.set_expected_count(open.slots_size());
    round.set_received_count(wait.received_count);
    round.set_awaited_count(wait.awaited_count);
    for (const int32_t slot : wait.awaited) {
      round.add_island_ids(state.members()[slot].record.island_id());
    }
    *round.mutable_since_time() = ToProto(WaitsSince(machine, f));
  }
}

void AddSittingOut(const RunState& state, v1::GetRunStateResponse& response) {
  for (const Member& member : state.members()) {
    if (response.sitting_out_size() == kNamedIslandsMax) return;
    if (!member.present() || !SitsOut(state, member)) continue;
    *response.add_sitting_out() = ToSittingOut(member);
  }
}

void AddHindered(const RunMachine& machine,
                 v1::GetRunStateResponse& response) {
  const std::vector<Member>& members = machine.state().members();
  for (size_t slot = 0; slot < members.size(); ++slot) {
    if (response.hindered_islands_size() == kNamedIslandsMax) return;
    const auto& progress = machine.observed().members[slot].progress;
    if (!members[slot].present() || !progress.has_value() ||
        progress->hindrance().empty()) {
      continue;
    }
    v1::HinderedIsland& hindered = *response.add_hindered_islands();
    hindered.set_island_id(members[slot].record.island_id());
    hindered.set_hindrance(progress->hindrance());
  }
}

void AddWarnings(const RunMachine& machine,
                 v1::GetRunStateResponse& response) {
  const std::vector<Member>& members = machine.state().members();
  for (size_t slot = 0; slot < members.size(); ++slot) {
    if (response.warnings_size() == kNamedIslandsMax) return;
    std::string text = WarnOfIsland(machine.state(), machine.observed(),
                                    static_cast<int32_t>(slot));
    if (text.empty()) continue;
    v1::IslandWarning& warning = *response.add_warnings();
    warning.set_island_id(members[slot].record.island_id());
    warning.set_warning(std::move(text));
  }
}

void AddSilentTrainers(const RunMachine& machine,
                       v1::GetRunStateResponse& response) {
  const std::vector<Member>& members = machine.state().members();
  for (size_t slot = 0; slot < members.size(); ++slot) {
    const auto& progress = machine.observed().members[slot].progress;
    if (!members[slot].present() || !progress.has_value() ||
        progress->trainer_silence_seconds() < kTrainerSilenceSecondsMin) {
      continue;
    }
    v1::SilentTrainer& silent = *response.add_silent_trainers();
    silent.set_island_id(members[slot].record.island_id());
    silent.set_silence_seconds(progress->trainer_silence_seconds());
  }
}

}  // namespace

LiveTotals ComputeTotals(const RunMachine& machine) {
  LiveTotals totals;
  const std::vector<Member>& members = machine.state().members();
  for (size_t slot = 0; slot < members.size(); ++slot) {
    const auto& progress = machine.observed().members[slot].progress;
    if (progress.has_value()) {
      totals.sent_bytes += progress->sent_bytes();
      totals.received_bytes += progress->received_bytes();
    }
    if (!members[slot].present()) continue;
    ++totals.count;
    if (!progress.has_value()) continue;
    totals.tokens_per_second += progress->tokens_per_second();
    if (progress->loss_step_count() > 0) {
      totals.loss_sum += progress->loss();
      ++totals.loss_count;
    }
  }
  return totals;
}

absl::Time FindWaitStart(const RunMachine& machine) {
  absl::Time start = absl::InfiniteFuture();
  for (size_t f = 0; f < machine.state().fragments().size(); ++f) {
    if (!IsWaiting(machine.state(), f)) continue;
    start = std::min(start, WaitsSince(machine, f));
  }
  return start;
}

v1::RunMirror BuildMirror(const RunMachine& machine,
                          const ServerDirectory& servers) {
  const RunState& state = machine.state();
  v1::RunMirror mirror;
  for (const auto& [pin_id, pin_state] : state.pins()) {
    const v1::Pin& pin = pin_state.pin_set().pin();
    if (!IsMirrored(pin) || pin.commit_seq() <= mirror.commit_seq()) continue;
    mirror.set_commit_seq(pin.commit_seq());
    *mirror.mutable_last_success_time() = pin.mirror().create_time();
  }
  absl::Time wait_start = absl::InfiniteFuture();
  for (const auto& [pin_id, pin_state] : state.pins()) {
    const v1::Pin& pin = pin_state.pin_set().pin();
    if (!pin.checkpoint() || pin.commit_seq() <= mirror.commit_seq()) continue;
    wait_start = std::min(wait_start, FromProto(pin_state.create_time()));
  }
  if (wait_start != absl::InfiniteFuture()) {
    // A restore sends an old checkpoint there again.
    if (!state.restores().empty()) {
      wait_start =
          std::max(wait_start, FromProto(state.restores().back().time()));
    }
    *mirror.mutable_wait_start_time() = ToProto(wait_start);
  }
  mirror.set_lag(CountPast(state.restores(),
                           std::max<int64_t>(1, mirror.commit_seq()),
                           state.commit_seq() + 1));
  mirror.set_error(servers.HasMirror()
                       ? machine.observed().mirror_error
                       : "this coordinator has no mirror: start it with "
                         "--mirror");
  return mirror;
}

namespace {

v1::RunSpec BuildWholeSpec(const RunState& state) {
  v1::RunSpec spec = state.spec();
  // Only the coordinator reads these. An older island or server would refuse a
  // spec with fields that it does not know.
  spec.clear_guard();
  if (!spec.checkpoint().mirror()) spec.clear_checkpoint();
  return spec;
}

// Without the layout's tensors, which are by far the most of it.
v1::RunSpec BuildListedSpec(const v1::RunSpec& whole) {
  v1::RunSpec spec;
  spec.mutable_layout()->set_fragment_count(whole.layout().fragment_count());
  *spec.mutable_init() = whole.init();
  *spec.mutable_model() = whole.model();
  *spec.mutable_inner() = whole.inner();
  *spec.mutable_outer() = whole.outer();
  *spec.mutable_schedule() = whole.schedule();
  *spec.mutable_data() = whole.data();
  *spec.mutable_evaluation() = whole.evaluation();
  *spec.mutable_exchange() = whole.exchange();
  *spec.mutable_history() = whole.history();
  spec.set_durability(whole.durability());
  spec.set_server_count(whole.server_count());
  spec.set_checkpoint_every_round_count(
      whole.checkpoint_every_round_count());
  *spec.mutable_checkpoint() = whole.checkpoint();
  *spec.mutable_guard() = whole.guard();
  return spec;
}

}  // namespace

v1::Run BuildRunWithoutSpec(const RunMachine& machine) {
  const RunState& state = machine.state();
  v1::Run run;
  run.set_run_id(state.run_id());
  run.set_state(state.state());
  run.set_state_reason(state.state_reason().empty() ? machine.waits_for()
                                                    : state.state_reason());
  run.set_run_epoch(state.run_epoch());
  run.set_layout_fingerprint(state.layout().fingerprint());
  *run.mutable_create_time() = ToProto(state.create_time());
  if (state.ended()) *run.mutable_end_time() = ToProto(state.end_time());
  run.set_revision(state.revision());
  run.set_run_uid(state.run_uid());
  if (!state.restores().empty()) {
    *run.mutable_restored() = state.restores().back();
  }
  std::optional<v1::Fault> fault = machine.fault();
  if (fault.has_value()) *run.mutable_fault() = *std::move(fault);
  return run;
}

v1::Run BuildRun(const RunMachine& machine, bool with_tensors) {
  v1::Run run = BuildRunWithoutSpec(machine);
  *run.mutable_spec() = with_tensors
                            ? BuildWholeSpec(machine.state())
                            : BuildListedSpec(machine.state().spec());
  return run;
}

v1::ListRunsResponse BuildRuns(const std::vector<RunToList>& runs) {
  v1::ListRunsResponse response;
  for (const RunToList& listed : runs) {
    v1::Run& run = *response.add_runs();
    run = listed.run;
    *run.mutable_spec() = BuildListedSpec(*listed.spec);
  }
  return response;
}

std::shared_ptr<const std::string> EncodeSpecPart(RunMachine& machine) {
  std::shared_ptr<const std::string>& part = machine.encoded_spec();
  if (part == nullptr) {
    v1::GetRunResponse response;
    *response.mutable_run()->mutable_spec() = BuildWholeSpec(machine.state());
    part = std::make_shared<const std::string>(response.SerializeAsString());
  }
  return part;
}

v1::GetRunResponse BuildRunAnswer(const RunMachine& machine,
                                  const ServerDirectory& servers) {
  v1::GetRunResponse answer;
  *answer.mutable_run() = BuildRunWithoutSpec(machine);
  const RunState& state = machine.state();
  if (state.state() != v1::RUN_STATE_COMPLETED) return answer;
  for (const FragmentState& fragment : state.fragments()) {
    *answer.add_cut() = fragment.newest;
  }
  *answer.mutable_shards() = BuildPlacement(state, servers);
  answer.set_placement_epoch(state.placement_epoch());
  return answer;
}

v1::RunPreview BuildRunPreview(const RunMachine& machine) {
  v1::Run run = BuildRun(machine, /*with_tensors=*/false);
  v1::RunSpec& spec = *run.mutable_spec();
  spec.mutable_init()->clear_fragment_digests();
  // An older program would not know them, and islands need not.
  spec.clear_checkpoint();
  spec.clear_guard();
  const RunLayout& layout = machine.state().layout();
  for (int32_t f = 0; f < layout.fragment_count(); ++f) {
    v1::TensorSpec& tensor = *spec.mutable_layout()->add_tensors();
    tensor.add_shape(layout.fragment_element_count(f));
    tensor.set_fragment(f);
  }
  v1::RunPreview preview;
  if (spec.ByteSizeLong() <= kPreviewSpecBytesMax) {
    *preview.mutable_spec() = std::move(spec);
  }
  preview.set_state(run.state());
  preview.set_state_reason(
      std::string(CutUtf8(run.state_reason(), kPreviewReasonBytesMax)));
  return preview;
}

v1::GetRunStateResponse BuildRunState(const RunMachine& machine,
                                      const ServerDirectory& servers) {
  const RunState& state = machine.state();
  v1::GetRunStateResponse response;
  *response.mutable_run() = BuildRun(machine, /*with_tensors=*/false);
  if (state.started()) {
    for (const FragmentState& fragment : state.fragments()) {
      *response.add_cut() = fragment.newest;
      if (fragment.phase == RoundPhase::kOpen) {
        *response.add_open_rounds() = fragment.open;
      } else if (fragment.phase == RoundPhase::kSealed) {
        *response.add_sealed_rounds() = fragment.sealed.seal();
      }
    }
    AddWaitingRounds(machine, response);
  }
  AddSilentTrainers(machine, response);
  AddSittingOut(state, response);
  AddHindered(machine, response);
  AddWarnings(machine, response);
  response.set_commit_seq(state.commit_seq());
  const LiveTotals totals = ComputeTotals(machine);
  response.set_live_island_count(totals.count);
  response.set_tokens_per_second(totals.tokens_per_second);
  if (totals.loss_count > 0) {
    response.set_training_loss(totals.loss_sum / totals.loss_count);
  }
  response.set_sent_bytes(totals.sent_bytes);
  response.set_received_bytes(totals.received_bytes);
  for (const v1::ShardPlacement& placement : BuildPlacement(state, servers)) {
    v1::ServerState& server = *response.add_servers();
    *server.mutable_placement() = placement;
    const ServerInfo* info = servers.FindServer(placement.server_id());
    server.set_alive(info != nullptr && info->alive);
    const ObservedShard& shard = machine.observed().shards[placement.shard()];
    server.set_persisted_commit_seq(shard.report.persisted_commit_seq());
    server.set_acknowledged_commit_seq(
        AcknowledgedCommitSeq(state, machine.observed(), placement.shard()));
    server.set_fault(shard.report.fault());
    server.set_blocked_reason(shard.report.blocked_reason());
  }
  response.set_merged_token_count(state.merged_token_count());
  if (state.newest_evaluation() != nullptr) {
    *response.mutable_evaluation() = *state.newest_evaluation();
  }
  if (state.newest_failed_evaluation() != nullptr) {
    *response.mutable_failed_evaluation() = *state.newest_failed_evaluation();
  }
  if (state.FindHeld() != nullptr) {
    response.set_outside_band(state.FindHeld()->reason());
  }
  if (state.spec().checkpoint().mirror()) {
    *response.mutable_mirror() = BuildMirror(machine, servers);
  }
  if (state.commit_seq() > 0) {
    *response.mutable_last_commit_time() = ToProto(state.last_commit_time());
  }
  return response;
}

absl::StatusOr<ItemsPage> PlanIslands(size_t count,
                                      const v1::ListIslandsRequest& request) {
  ASSIGN_OR_RETURN(const int64_t size, PageSize(request.page_size()));
  ASSIGN_OR_RETURN(const int64_t start, PageStart(request.page_token()));
  // A forged token may hold any number.
  ItemsPage page =
      TakePage(std::min(count, static_cast<size_t>(start)), count, size);
  if (page.end < count) page.next_page_token = absl::StrCat(page.end);
  return page;
}

absl::StatusOr<ItemsPage> PlanCheckpoints(
    const std::vector<std::string>& names,
    const v1::ListCheckpointsRequest& request) {
  ASSIGN_OR_RETURN(const int64_t size, PageSize(request.page_size()));
  auto begin = names.begin();
  if (!request.page_token().empty()) {
    // That of the last checkpoint of the previous page.
    const std::optional<CheckpointPlace> after =
        ParseCheckpointName(request.page_token());
    if (!after.has_value()) return WrongPageToken();
    begin = std::partition_point(begin, names.end(), [&](const auto& name) {
      return ParseCheckpointName(name) <= after;
    });
  }
  ItemsPage page = TakePage(static_cast<size_t>(begin - names.begin()),
                            names.size(), size);
  if (page.end < names.size()) page.next_page_token = names[page.end - 1];
  return page;
}

absl::StatusOr<ItemsPage> PlanRuns(const std::vector<std::string>& run_ids,
                                   const v1::ListRunsRequest& request) {
  ASSIGN_OR_RETURN(const int64_t size, PageSize(request.page_size()));
  // A token names the last run of the previous page.
  absl::string_view after = request.page_token();
  if (!after.empty() && (!absl::ConsumePrefix(&after, kAfterRun) ||
                         !ValidateId("", after).ok())) {
    return WrongPageToken();
  }
  const auto begin = std::upper_bound(run_ids.begin(), run_ids.end(), after);
  ItemsPage page = TakePage(static_cast<size_t>(begin - run_ids.begin()),
                            run_ids.size(), size);
  if (page.end < run_ids.size()) {
    page.next_page_token = absl::StrCat(kAfterRun, run_ids[page.end - 1]);
  }
  return page;
}

v1::ListIslandsResponse BuildIslands(const RunMachine& machine) {
  const RunState& state = machine.state();
  const size_t count = state.members().size();
  // By slot: the data shards of its open rounds.
  std::vector<std::set<int32_t>> open_shards(count);
  for (const FragmentState& fragment : state.fragments()) {
    for (const v1::SlotPlan& plan : fragment.open.slots()) {
      if (static_cast<size_t>(plan.slot()) < count) {
        open_shards[plan.slot()].insert(plan.data_shard());
      }
    }
  }
  v1::ListIslandsResponse response;
  for (size_t slot = 0; slot < count; ++slot) {
    const Member& member = state.members()[slot];
    const ObservedMember& observed = machine.observed().members[slot];
    v1::Island& island = *response.add_islands();
    island.set_island_id(member.record.island_id());
    island.set_slot(member.record.slot());
    island.set_island_epoch(member.record.island_epoch());
    island.set_state(member.record.state());
    if (member.record.has_leave()) {
      *island.mutable_leave() = member.record.leave();
    }
    *island.mutable_capabilities() = member.record.capabilities();
    if (observed.progress.has_value()) {
      *island.mutable_progress() = *observed.progress;
    }
    if (observed.last_heard != absl::InfinitePast()) {
      *island.mutable_last_heard_time() = ToProto(observed.last_heard);
    }
    island.set_merged_count(member.merged_count);
    island.set_unmerged_count(member.unmerged_count);
    *island.mutable_totals() = member.totals;
    island.set_steps_per_second(MeasuredSpeed(observed));
    if (member.refused_count > 0) {
      *island.mutable_sitting_out() = ToSittingOut(member);
    }
    if (!member.present()) continue;
    island.set_phase(observed.phase);
    island.set_phase_reason(observed.phase_reason);
    std::set<int32_t>& shards = open_shards[slot];
    shards.insert(member.record.data_shard());
    for (int32_t shard : shards) island.add_data_shards(shard);
  }
  return response;
}

namespace {

// Adds the shards' reports of a cut. A checkpoint gets all shards, and whether
// all hold it; a lease gets shards that no longer keep contributions for it.
void AddShards(const RunMachine& machine, v1::Checkpoint& checkpoint) {
  const v1::Pin& pin = checkpoint.pin();
  bool durable = pin.checkpoint();
  const std::vector<ObservedShard>& shards = machine.observed().shards;
  for (size_t shard = 0; shard < shards.size(); ++shard) {
    v1::CheckpointShard added;
    added.set_shard(static_cast<int32_t>(shard));
    added.set_server_id(machine.state().server_ids()[shard]);
    bool is_named = pin.checkpoint();
    for (const v1::ShardCheckpoint& reported :
         shards[shard].report.checkpoints()) {
      if (reported.pin_id() != pin.pin_id() ||
          reported.commit_seq() != pin.commit_seq()) {
        continue;
      }
      if (pin.checkpoint()) added.set_durable(reported.durable());
      added.set_fault(reported.fault());
      is_named = true;
    }
    durable = durable && added.durable();
    if (is_named) *checkpoint.add_shards() = std::move(added);
  }
  checkpoint.set_durable(durable);
}

}  // namespace

v1::ListCheckpointsResponse BuildCheckpoints(const RunMachine& machine) {
  std::map<std::pair<int64_t, std::string>, const storage::v1::PinSnapshot*>
      ordered;
  for (const auto& [pin_id, pin] : machine.state().pins()) {
    ordered[{pin.pin_set().pin().commit_seq(), pin_id}] = &pin;
  }
  v1::ListCheckpointsResponse response;
  for (const auto& [place, pin] : ordered) {
    v1::Checkpoint& checkpoint = *response.add_checkpoints();
    *checkpoint.mutable_pin() = pin->pin_set().pin();
    *checkpoint.mutable_create_time() = pin->create_time();
    const auto end = machine.observed().pin_ends.find(place.second);
    if (end != machine.observed().pin_ends.end()) {
      *checkpoint.mutable_expire_time() = ToProto(end->second);
    }
    if (checkpoint.pin().checkpoint() ||
        checkpoint.pin().keep_bytes_max() > 0) {
      AddShards(machine, checkpoint);
    }
  }
  return response;
}

std::string CheckpointName(const v1::Checkpoint& checkpoint) {
  return absl::StrCat(checkpoint.pin().commit_seq(), " ",
                      checkpoint.pin().pin_id());
}

absl::StatusOr<RoundsPage> PlanRounds(const RunState& state,
                                      const v1::ListRoundsRequest& request) {
  ASSIGN_OR_RETURN(const int64_t size, PageSize(request.page_size()));
  ASSIGN_OR_RETURN(const int64_t start, PageStart(request.page_token()));
  if (request.after_commit_seq() < 0) {
    return InvalidFields({{"after_commit_seq", "must be at least 0"}});
  }
  const int64_t end = state.commit_seq() + 1;
  RoundsPage page;
  page.restores = state.restores();
  page.first_kept = FirstKeptCommit(state);
  const int64_t after =
      std::max({start, request.after_commit_seq(), page.first_kept - 1});
  page.begin = end;
  page.end = end;
  // Written without a sum: a token may hold any number.
  if (after >= end) return page;
  page.begin = std::min(end, SkipToPast(state.restores(), after + 1));
  page.end = std::min(page.begin + size,
                      FindGap(state.restores(), page.begin, end));
  page.end = std::max(page.begin, page.end);
  page.last = SkipToPast(state.restores(), page.end) >= end;
  return page;
}

v1::GetMetricsResponse BuildMetrics(const RunMachine& machine,
                                    const VolatileSeries& series) {
  const RunState& state = machine.state();
  const std::map<std::string,
                 std::pair<std::string, const std::deque<v1::MetricPoint>*>>
      all = {
          {"loss_metrics/global_avg_loss",
           {"nats_per_token", &state.loss_points()}},
          {"loss_metrics/outer_validation_loss",
           {"nats_per_token", &state.evaluation_points()}},
          {"throughput(tps)", {"tokens_per_second", &series.tokens_per_second}},
          {"islands/live_count", {"count", &series.live_count}},
          {"outer/gradient_norm", {"count", &state.norm_points()}},
          {"rounds/wait", {"seconds", &series.round_wait}},
          {"shards/hindered_count", {"count", &series.hindered_count}},
          {"shards/stopped_count", {"count", &series.stopped_count}},
          {"wire/sent_bytes", {"bytes", &series.sent_bytes}},
          {"wire/received_bytes", {"bytes", &series.received_bytes}},
      };
  v1::GetMetricsResponse response;
  for (const v1::Restore& restore : state.restores()) {
    *response.add_restores() = restore;
  }
  for (const auto& [name, row] : all) {
    v1::MetricSeries& added = *response.add_series();
    added.set_name(name);
    added.set_unit(row.first);
    for (const v1::MetricPoint& point : *row.second) {
      if (IsSuperseded(state.restores(), point.commit_seq())) continue;
      *added.add_points() = point;
    }
  }
  return response;
}

void SampleSeries(const RunMachine& machine, absl::Time now,
                  VolatileSeries& series) {
  const LiveTotals totals = ComputeTotals(machine);
  const int64_t commit_seq = machine.state().commit_seq();
  PushPoint(series.tokens_per_second, now, commit_seq,
            totals.tokens_per_second);
  PushPoint(series.live_count, now, commit_seq, totals.count);
  PushPoint(series.round_wait, now, commit_seq,
            std::max(0.0, absl::ToDoubleSeconds(now - FindWaitStart(machine))));
  PushPoint(series.sent_bytes, now, commit_seq,
            static_cast<double>(totals.sent_bytes));
  PushPoint(series.received_bytes, now, commit_seq,
            static_cast<double>(totals.received_bytes));
  int stopped_count = 0, hindered_count = 0;
  for (const ObservedShard& shard : machine.observed().shards) {
    stopped_count += !shard.report.fault().empty();
    hindered_count += !shard.report.blocked_reason().empty();
  }
  PushPoint(series.stopped_count, now, commit_seq, stopped_count);
  PushPoint(series.hindered_count, now, commit_seq, hindered_count);
}

}  // namespace atl::coordinator
