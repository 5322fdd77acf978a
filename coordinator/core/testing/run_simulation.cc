#include "coordinator/core/testing/run_simulation.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/layout/gram.h"
#include "base/layout/run_timing.h"
#include "base/status/check.h"
#include "base/time/proto_time.h"
#include "coordinator/core/outputs/plans.h"
#include "coordinator/core/rounds/recalls.h"
#include "coordinator/core/rounds/rounds.h"
#include "coordinator/core/rounds/sit_out.h"
#include "coordinator/core/spec/validate_spec.h"
#include "coordinator/core/verdict/verdict_rule.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

constexpr char kFingerprint[] =
    "abababababababababababababababababababababababababababababababab";

using Entries = std::map<ReportedKey, std::pair<std::vector<std::string>,
                                                std::vector<std::string>>>;

// The entries of a whole report, by key.
Entries ListEntries(const v1::ShardReport& report) {
  Entries entries;
  for (const v1::StoredContribution& stored : report.stored()) {
    entries[ToReportedKey(stored.info().key())].first.push_back(
        stored.SerializeAsString());
  }
  for (const v1::RefusedContribution& refused : report.refused()) {
    entries[ToReportedKey(refused.key())].second.push_back(
        refused.SerializeAsString());
  }
  return entries;
}

// The report of changes that makes `after` of `before`; both are whole.
v1::ShardReport ListChanges(const v1::ShardReport& before,
                            const v1::ShardReport& after) {
  v1::ShardReport changes = after;
  changes.clear_stored();
  changes.clear_refused();
  const Entries old_entries = ListEntries(before);
  const Entries new_entries = ListEntries(after);
  for (const auto& [key, entries] : new_entries) {
    const auto old_one = old_entries.find(key);
    if (old_one != old_entries.end() && old_one->second == entries) continue;
    for (const std::string& stored : entries.first) {
      changes.add_stored()->ParseFromString(stored);
    }
    for (const std::string& refused : entries.second) {
      changes.add_refused()->ParseFromString(refused);
    }
  }
  for (const auto& [key, entries] : old_entries) {
    if (new_entries.contains(key)) continue;
    v1::ContributionKey& gone = *changes.add_gone();
    gone.set_run_epoch(std::get<0>(key));
    gone.set_fragment(std::get<1>(key));
    gone.set_slot(std::get<2>(key));
    gone.set_seq(std::get<3>(key));
  }
  return changes;
}

}  // namespace

v1::RunSpec SimpleSpec(int fragment_count) {
  v1::RunSpec spec;
  spec.mutable_layout()->set_fragment_count(fragment_count);
  for (int i = 0; i < fragment_count; ++i) {
    v1::TensorSpec& tensor = *spec.mutable_layout()->add_tensors();
    tensor.set_name(absl::StrCat("t", i));
    tensor.add_shape(3 * 4096);
    tensor.set_dtype(v1::DATA_TYPE_F32);
    tensor.set_tensor_class(v1::TENSOR_CLASS_MATRIX);
    tensor.set_fragment(i);
    tensor.mutable_init()->set_kind(v1::INIT_KIND_CONSTANT);
  }
  v1::ModelSpec& model = *spec.mutable_model();
  model.set_architecture("llama");
  model.set_vocab_size(2);
  model.set_hidden_size(4);
  model.set_intermediate_size(4);
  model.set_layer_count(1);
  model.set_head_count(1);
  model.set_kv_head_count(1);
  model.set_sequence_length(10);
  model.set_rope_theta(10000);
  spec.mutable_inner()->set_optimizer(v1::INNER_OPTIMIZER_KIND_SGD);
  spec.mutable_inner()->set_learning_rate(0.1);
  spec.mutable_inner()->set_batch_size(2);
  spec.mutable_outer()->set_optimizer(v1::OUTER_OPTIMIZER_KIND_FEDAVG);
  spec.mutable_outer()->set_weighting(v1::WEIGHTING_TOKENS);
  v1::ScheduleSpec& schedule = *spec.mutable_schedule();
  schedule.set_timing(v1::TIMING_STRICT);
  schedule.set_inner_step_count(4);
  schedule.set_round_count(3);
  schedule.set_island_count_min(2);
  schedule.set_min_quorum(2);
  spec.mutable_data()->set_format(v1::DATA_FORMAT_BYTES);
  spec.mutable_data()->set_fingerprint(kFingerprint);
  spec.mutable_data()->set_data_shard_count(4);
  spec.set_server_count(2);
  return spec;
}

v1::RunSpec ElasticSpec(int fragment_count) {
  v1::RunSpec spec = SimpleSpec(fragment_count);
  spec.mutable_schedule()->set_timing(v1::TIMING_ELASTIC);
  spec.mutable_schedule()->set_min_quorum(1);
  spec.mutable_schedule()->mutable_grace_window()->set_seconds(1);
  return spec;
}

v1::RunSpec AsyncSpec(int fragment_count) {
  v1::RunSpec spec = ElasticSpec(fragment_count);
  spec.mutable_schedule()->clear_grace_window();
  spec.mutable_schedule()->set_max_staleness(3);
  spec.mutable_schedule()->set_round_count(8);
  spec.mutable_outer()->set_weighting(v1::WEIGHTING_UNIFORM);
  spec.mutable_outer()->set_optimizer(
      v1::OUTER_OPTIMIZER_KIND_DELAYED_NESTEROV);
  spec.mutable_outer()->set_learning_rate(0.7);
  spec.mutable_outer()->set_momentum(0.9);
  spec.mutable_outer()->set_buffer_count(2);
  return spec;
}

RunSimulation::RunSimulation(const v1::RunSpec& spec,
                             int64_t contributions_a_step)
    : contributions_a_step_(contributions_a_step),
      machine_(MakeMachine()),
      shards_(spec.server_count()) {
  CHECK(ValidateSpec(spec).empty()) << ValidateSpec(spec)[0].field;
  machine_->Step(event::Create{"run", spec}, now_).IgnoreError();
  Collect();
}

std::unique_ptr<RunMachine> RunSimulation::MakeMachine() const {
  return std::make_unique<RunMachine>(*this, nullptr, contributions_a_step_);
}

bool RunSimulation::Collect() {
  for (int i = 0; machine_->NextTimer() <= now_ && i < 1000; ++i) {
    ++cut_count;
    machine_->Step(event::Tick{}, now_).IgnoreError();
    tick_time_ = now_;
  }
  std::vector<storage::v1::Record> records = machine_->TakeRecords();
  if (loses_next_batch_ && !records.empty()) {
    loses_next_batch_ = false;
    Replay(0);
    return false;
  }
  for (storage::v1::Record& record : records) {
    log_.push_back(std::move(record));
  }
  if (!records.empty()) snapshots_[state().revision()] = state().DebugString();
  if (checks_index) CheckDecisions();
  // Otherwise the caller would send Tick again and again.
  EXPECT_GT(machine_->NextTimer(), now_) << machine_->waits_for();
  CheckTimers();
  return true;
}

void RunSimulation::CheckTimers() const {
  const Observations& observed = machine_->observed();
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [pin_id, end] : observed.pin_ends) {
    next = std::min(next, end);
  }
  int64_t present_count = 0;
  for (const Member& member : state().members()) {
    const int32_t slot = member.record.slot();
    EXPECT_EQ(observed.leases.Find(slot) != absl::InfiniteFuture(),
              member.present())
        << "slot " << slot;
    EXPECT_TRUE(member.present() || !observed.members[slot].away);
    present_count += member.present() ? 1 : 0;
    if (state().ended()) continue;
    next = std::min({next, observed.leases.Find(slot),
                     observed.aways.Find(slot)});
  }
  EXPECT_EQ(machine_->island_count(), state().ended() ? 0 : present_count);
  if (!state().ended()) next = std::min(next, RecallTimer(state(), observed));
  if (state().state() == v1::RUN_STATE_ACTIVE) {
    next = std::min(next, SitOutTimer(state(), tick_time_));
    for (int32_t f = 0; f < state().fragments().size(); ++f) {
      if (fragment(f).phase != RoundPhase::kOpen) continue;
      next = std::min(next, SealTimer(state(), f, observed.timers[f]));
    }
  }
  EXPECT_EQ(machine_->NextTimer(), next);
}

void RunSimulation::CheckDecisions() {
  taken_.resize(shards_.size());
  oracle_.Check(*machine_, taken_);
  // Otherwise a Tick follows that may decide.
  if (tick_time_ != now_ || machine_->NeedsTick(now_)) return;
  const std::string waits_for = machine_->waits_for();
  const absl::Time next = machine_->NextTimer();
  // Marks everything. The machine's newest Tick had the same time.
  machine_->AddStall(absl::ZeroDuration());
  machine_->Step(event::Tick{}, now_).IgnoreError();
  for (const storage::v1::Record& record : machine_->TakeRecords()) {
    ADD_FAILURE() << "decided late: " << record.ShortDebugString();
  }
  EXPECT_EQ(machine_->waits_for(), waits_for);
  EXPECT_EQ(machine_->NextTimer(), next);
  if (state().started()) oracle_.CheckJudged(*machine_, now_);
}

void RunSimulation::StartServers() {
  for (int32_t shard = 0; shard < shard_count(); ++shard) {
    const std::string id = absl::StrCat("server-", shard);
    servers_[id] = {id, "127.0.0.1:1", 1, "", true};
    machine_->Step(event::ServerChanged{id, /*restarted=*/true}, now_)
        .IgnoreError();
  }
  Collect();
  for (int32_t shard = 0; shard < shard_count(); ++shard) {
    SetFault(shard, fault_at_start);
  }
}

absl::Status RunSimulation::Join(const std::string& island_id,
                                 const std::string& token_id) {
  v1::JoinRequest request;
  request.set_run_id("run");
  request.set_island_id(island_id);
  request.mutable_capabilities()->add_devices()->set_kind("cpu");
  request.mutable_capabilities()->set_data_fingerprint(kFingerprint);
  request.mutable_capabilities()->set_frozen_digest(frozen_digest);
  request.mutable_capabilities()->set_features(features);
  Island& island = islands_[island_id];
  const std::string secret =
      absl::StrCat("secret of ", island_id, " ", island.epoch);
  event::Join join{request, secret};
  join.token_id = token_id;
  join.weight_share_max = token_id.empty() ? 0 : share_of_token;
  const absl::StatusOr<RunAnswer> answer = machine_->Step(join, now_);
  if (!Collect()) return absl::UnavailableError("it restarts");
  if (!answer.ok()) return answer.status();
  const v1::JoinResponse& joined = answer->joined;
  island.slot = joined.slot();
  island.epoch = joined.island_epoch();
  island.next_seq = std::max(island.next_seq, joined.next_seq());
  island.secret = secret;
  return absl::OkStatus();
}

IslandCredentials RunSimulation::Credentials(
    const std::string& island_id) const {
  const Island& island = islands_.at(island_id);
  return {island_id, island.epoch, island.secret};
}

absl::Status RunSimulation::Ready(const std::string& island_id) {
  const absl::Status status =
      machine_
          ->Step(event::Ready{Credentials(island_id), state().commit_seq()},
                 now_)
          .status();
  Collect();
  return status;
}

absl::Status RunSimulation::Leave(const std::string& island_id) {
  const absl::Status status =
      machine_->Step(event::Leave{Credentials(island_id)}, now_).status();
  Collect();
  return status;
}

absl::Status RunSimulation::Remove(const std::string& island_id, bool readmit) {
  const absl::Status status =
      machine_->Step(event::RemoveIsland{island_id, readmit}, now_).status();
  Collect();
  return status;
}

absl::Status RunSimulation::Revoke(const std::string& island_id) {
  const absl::Status status =
      machine_->Step(event::RemoveIsland{island_id, false, true}, now_)
          .status();
  Collect();
  return status;
}

absl::StatusOr<v1::RestoreRunResponse> RunSimulation::RestoreRun(
    const std::string& from, bool dry_run) {
  v1::RestoreRunRequest request;
  request.set_run_id("run");
  request.set_from(from);
  request.set_dry_run(dry_run);
  const absl::StatusOr<RunAnswer> answer =
      machine_->Step(event::Restore{request}, now_);
  if (!Collect()) return absl::UnavailableError("it restarts");
  if (!answer.ok()) return answer.status();
  if (answer->restored.changed()) {
    // Undecided contributions belong to the old epoch.
    ever_stored_.clear();
    forgotten_.clear();
    reported_.clear();
  }
  return answer->restored;
}

absl::Status RunSimulation::Heartbeat(const std::string& island_id) {
  return machine_->Step(event::Heartbeat{Credentials(island_id)}, now_)
      .status();
}

absl::StatusOr<RunAnswer> RunSimulation::Heartbeat(
    const v1::HeartbeatRequest& request) {
  absl::StatusOr<RunAnswer> answer = machine_->Step(
      event::Heartbeat{Credentials(request.island_id()), &request}, now_);
  Collect();
  return answer;
}

void RunSimulation::SetStream(const std::string& island_id, bool is_open) {
  machine_->Step(event::PlanStream{Credentials(island_id), is_open}, now_)
      .IgnoreError();
  Collect();
}

absl::Status RunSimulation::Evaluate(const std::string& island_id,
                                     int64_t version, double loss,
                                     const std::string& failure) {
  v1::ReportProgressRequest request;
  v1::Evaluation& evaluation = *request.add_evaluations();
  evaluation.set_version(version);
  evaluation.set_loss(loss);
  evaluation.set_failure(failure);
  const absl::Status status =
      machine_->Step(event::Progress{Credentials(island_id), request}, now_)
          .status();
  Collect();
  return status;
}

const v1::ContributionInfo* RunSimulation::MakeContribution(
    const std::string& island_id, int32_t f) {
  Island& island = islands_.at(island_id);
  const FragmentState& at = fragment(f);
  if (at.phase == RoundPhase::kIdle) return nullptr;
  const auto made = island.newest.find(f);
  if (made != island.newest.end() &&
      made->second.key().run_epoch() == state().run_epoch() &&
      IsFreshEnough(state().spec().schedule(), made->second.anchor_version(),
                    at.newest.version()) &&
      !state().outcomes().Contains(made->second.key())) {
    return &made->second;
  }
  if (at.phase != RoundPhase::kOpen) return nullptr;
  for (const v1::SlotPlan& plan : at.open.slots()) {
    if (plan.slot() != island.slot) continue;
    v1::ContributionInfo info;
    info.mutable_key()->set_run_epoch(state().run_epoch());
    info.mutable_key()->set_fragment(f);
    info.mutable_key()->set_slot(island.slot);
    info.mutable_key()->set_seq(island.next_seq++);
    info.set_anchor_version(at.newest.version());
    info.set_codec(v1::CODEC_F32);
    info.set_step_count(claimed_step_count > 0 ? claimed_step_count
                                               : plan.step_count());
    info.set_token_count(claims_tokens ? plan.step_count() * 20 : 0);
    info.set_data_shard(plan.data_shard());
    info.set_data_begin(plan.data_position());
    info.set_data_end(plan.data_position() + 8 + claims_windows_more);
    if (const auto loss = training_losses.find(island_id);
        loss != training_losses.end()) {
      info.set_training_loss(loss->second);
    }
    if (!claims_tokens) {
      refused_anchors_.insert({f, island.slot, info.anchor_version()});
    }
    island.newest[f] = info;
    return &island.newest[f];
  }
  return nullptr;
}

bool RunSimulation::Train(const std::string& island_id, int32_t f) {
  return MakeContribution(island_id, f) != nullptr;
}

void RunSimulation::PushLate(const std::string& island_id, int32_t f) {
  const v1::ContributionInfo& info = islands_.at(island_id).newest.at(f);
  if (info.key().run_epoch() != state().run_epoch()) return;
  const Key key = {f, info.key().slot(), info.key().seq()};
  ever_stored_.insert(key);
  for (int32_t shard = 0; shard < shard_count(); ++shard) {
    *shards_[shard].stored[key].mutable_info() = info;
    Report(shard);
  }
}

bool RunSimulation::Push(const std::string& island_id, int32_t f,
                         int32_t shard) {
  const v1::ContributionInfo* info = MakeContribution(island_id, f);
  if (info == nullptr || shards_[shard].run_epoch != state().run_epoch()) {
    return false;
  }
  const Key key = {f, info->key().slot(), info->key().seq()};
  if (shards_[shard].refused.contains(key)) return false;
  shards_[shard].lost.erase(key);
  forgotten_.erase(key);
  v1::StoredContribution& stored = shards_[shard].stored[key];
  *stored.mutable_info() = *info;
  stored.set_norm_squared(push_norm_squared);
  ever_stored_.insert(key);
  Report(shard);
  return true;
}

void RunSimulation::PushAll(const std::string& island_id) {
  for (int32_t f = 0; f < state().fragments().size(); ++f) {
    for (int32_t shard = 0; shard < shard_count(); ++shard) {
      Push(island_id, f, shard);
    }
  }
}

void RunSimulation::RefusePush(const std::string& island_id, int32_t f,
                               int32_t shard) {
  const v1::ContributionInfo* info = MakeContribution(island_id, f);
  if (info == nullptr) return;
  const Key key = {f, info->key().slot(), info->key().seq()};
  if (shards_[shard].stored.contains(key)) return;
  Refuse(*info, shard);
}

bool RunSimulation::RefuseLate(const std::string& island_id, int32_t f,
                               int32_t shard) {
  const auto made = islands_.at(island_id).newest.find(f);
  if (made == islands_.at(island_id).newest.end()) return false;
  const v1::ContributionKey& key = made->second.key();
  if (key.run_epoch() != state().run_epoch() ||
      state().outcomes().Contains(key) ||
      shards_[shard].stored.contains({f, key.slot(), key.seq()})) {
    return false;
  }
  Refuse(made->second, shard);
  return true;
}

void RunSimulation::Refuse(const v1::ContributionInfo& info, int32_t shard) {
  const Key key = {info.key().fragment(), info.key().slot(), info.key().seq()};
  if (shards_[shard].run_epoch != state().run_epoch()) return;
  // A second push after a loss, refused.
  shards_[shard].lost.erase(key);
  shards_[shard].refused[key] = info.anchor_version();
  refused_anchors_.insert(
      {info.key().fragment(), info.key().slot(), info.anchor_version()});
  ever_stored_.insert(key);
  Report(shard);
}

void RunSimulation::FollowPlan(int32_t shard_index, bool persist) {
  if (!state().started()) return Report(shard_index);
  Shard& shard = shards_[shard_index];
  const v1::ServerRunPlan plan =
      BuildServerRunPlan(state(), machine_->observed(), shard_index);
  // Otherwise the shard would stop with SHARD_BEHIND.
  EXPECT_TRUE(plan.acknowledged_commit_seq() <= shard.persisted ||
              alter_report);
  if (plan.run_epoch() > shard.run_epoch) GoBack(plan, shard);
  const auto drop = [&](const v1::ContributionOutcome& outcome) {
    const Key key = {outcome.key().fragment(), outcome.key().slot(),
                     outcome.key().seq()};
    shard.stored.erase(key);
    shard.refused.erase(key);
  };
  for (const v1::Commit& commit : plan.commits()) {
    if (commit.commit_seq() <= shard.applied || stalled) continue;
    // A shard applies all decisions, in their order.
    EXPECT_TRUE(commit.commit_seq() == shard.applied + 1 || alter_report);
    shard.applied = commit.commit_seq();
    for (const auto& outcome : commit.outcomes()) drop(outcome);
  }
  for (const auto& outcome : plan.dropped()) drop(outcome);
  if (persist && !stalled) shard.persisted = shard.applied;
  std::vector<v1::ShardCheckpoint> held;
  for (const v1::Pin& pin : plan.pins()) {
    if (!pin.checkpoint() || !makes_durable ||
        shard.persisted < pin.commit_seq() - 1) {
      continue;
    }
    held.emplace_back().set_pin_id(pin.pin_id());
    held.back().set_commit_seq(pin.commit_seq());
    held.back().set_durable(true);
    if (!makes_copies || pin.has_mirror()) continue;
    held.back().set_mirrored(true);
    held.back().add_array_names("theta");
    held.back().add_mirrored_parts()->set_sha256(
        std::string(64, static_cast<char>('a' + shard_index)));
  }
  shard.checkpoints = std::move(held);
  shard.prepared.clear();
  shard.measured.clear();
  const bool judged =
      MakeVerdictRule(state().spec().outer().merge()) != nullptr;
  for (const v1::Seal& seal : plan.seals()) {
    const bool is_under_way =
        std::none_of(plan.commits().begin(), plan.commits().end(),
                     [&](const v1::Commit& commit) {
                       return commit.fragment() == seal.fragment() &&
                              commit.version() == seal.version() + 1;
                     });
    if (!is_under_way) continue;
    bool whole = true;
    bool is_finite = finite;
    for (const v1::SealedContribution& sealed : seal.contributions()) {
      const Key key = {seal.fragment(), sealed.key().slot(),
                       sealed.key().seq()};
      EXPECT_TRUE(shard.stored.contains(key) || shard.lost.contains(key) ||
                  shard.refused.contains(key) || alter_report)
          << "sealed what shard " << shard_index << " lacks";
      whole = whole && shard.stored.contains(key);
      is_finite = is_finite && (!whole || shard.stored[key].norm_squared() <=
                                              merge_norm_squared_max);
    }
    if (!whole) continue;
    if (judged && !seal.has_verdict()) {
      shard.measured.push_back(seal);
      continue;
    }
    shard.prepared[{seal.fragment(), seal.version(), seal.attempt()}] =
        is_finite;
  }
  Report(shard_index);
}

void RunSimulation::GoBack(const v1::ServerRunPlan& plan, Shard& shard) {
  EXPECT_EQ(plan.restored().cut_size(), state().fragments().size());
  shard.run_epoch = plan.run_epoch();
  shard.applied = plan.restored().commit_seq();
  shard.persisted = shard.applied;
  shard.stored.clear();
  shard.refused.clear();
  shard.lost.clear();
  shard.fault.clear();
}

void RunSimulation::NoteIfForgotten(const Key& key) {
  const bool is_known =
      reported_.contains(key) ||
      std::any_of(shards_.begin(), shards_.end(), [&](const Shard& shard) {
        return shard.stored.contains(key) || shard.refused.contains(key);
      });
  if (!is_known) forgotten_.insert(key);
}

bool RunSimulation::Lose(const std::string& island_id, int32_t f,
                         int32_t shard_index, bool keeps_merges) {
  const auto made = islands_.at(island_id).newest.find(f);
  if (made == islands_.at(island_id).newest.end()) return false;
  const v1::ContributionKey& key = made->second.key();
  const Key place = {f, key.slot(), key.seq()};
  Shard& shard = shards_[shard_index];
  if (key.run_epoch() != state().run_epoch() ||
      state().outcomes().Contains(key) || shard.stored.erase(place) == 0) {
    return false;
  }
  shard.lost.insert(place);
  NoteIfForgotten(place);
  for (auto it = shard.prepared.begin();
       !keeps_merges && it != shard.prepared.end();) {
    it = std::get<0>(it->first) == f ? shard.prepared.erase(it) : std::next(it);
  }
  Report(shard_index);
  return true;
}

std::vector<v1::ContributionKey> RunSimulation::NeedsRepush(
    const std::string& island_id) {
  v1::IslandPlan plan;
  AddIsland(state(), machine_->observed(), islands_.at(island_id).slot, plan);
  return {plan.needs_repush().begin(), plan.needs_repush().end()};
}

bool RunSimulation::PushAgain(const std::string& island_id) {
  bool pushed = false;
  for (const v1::ContributionKey& key : NeedsRepush(island_id)) {
    const auto made = islands_.at(island_id).newest.find(key.fragment());
    // A newer life of the island no longer has it.
    if (made == islands_.at(island_id).newest.end() ||
        made->second.key().seq() != key.seq()) {
      continue;
    }
    for (int32_t shard = 0; shard < shard_count(); ++shard) {
      pushed |= Push(island_id, key.fragment(), shard);
    }
  }
  return pushed;
}

void RunSimulation::SetFault(int32_t shard, const std::string& fault) {
  shards_[shard].fault = fault;
  Report(shard);
}

void RunSimulation::SetBlockedReason(int32_t shard,
                                     const std::string& blocked_reason) {
  shards_[shard].blocked_reason = blocked_reason;
  Report(shard);
}

void RunSimulation::FollowPlans() {
  for (int32_t shard = 0; shard < shard_count(); ++shard) FollowPlan(shard);
}

void RunSimulation::Report(int32_t shard_index) {
  const Shard& shard = shards_[shard_index];
  v1::ShardReport report;
  report.set_run_id("run");
  report.set_run_epoch(shard.run_epoch);
  report.set_shard(shard_index);
  report.set_initialized(true);
  for (size_t f = 0; f < state().fragments().size(); ++f) {
    report.add_version0_digests()->set_low(f + 1);
    if (version0_norm_squared >= 0) {
      report.add_version0_norms_squared(version0_norm_squared);
    }
  }
  report.set_fault(shard.fault);
  report.set_blocked_reason(shard.blocked_reason);
  report.set_persisted_commit_seq(shard.persisted);
  for (const auto& [key, stored] : shard.stored) {
    reported_.insert(key);
    *report.add_stored() = stored;
  }
  for (const auto& [key, anchor] : shard.refused) {
    reported_.insert(key);
    v1::RefusedContribution& refused = *report.add_refused();
    refused.mutable_key()->set_run_epoch(shard.run_epoch);
    refused.mutable_key()->set_fragment(std::get<0>(key));
    refused.mutable_key()->set_slot(std::get<1>(key));
    refused.mutable_key()->set_seq(std::get<2>(key));
    refused.set_reason(refusal);
    refused.set_anchor_version(anchor);
  }
  for (const auto& [round, is_finite] : shard.prepared) {
    v1::PreparedRound& prepared = *report.add_prepared();
    prepared.set_fragment(std::get<0>(round));
    prepared.set_version(std::get<1>(round));
    prepared.set_attempt(std::get<2>(round));
    prepared.mutable_digest()->set_low(std::get<1>(round) + 100);
    prepared.set_finite(is_finite);
    prepared.set_norm_squared(merge_norm_squared);
  }
  for (const v1::ShardCheckpoint& held : shard.checkpoints) {
    *report.add_checkpoints() = held;
  }
  for (const v1::Seal& seal : shard.measured) {
    v1::RoundStatistics& statistics = *report.add_statistics();
    statistics.set_fragment(seal.fragment());
    statistics.set_version(seal.version());
    statistics.set_attempt(seal.attempt());
    std::vector<double> products;
    for (int i = 0; i < seal.contributions_size(); ++i) {
      products.insert(products.end(), i, 0.0);
      products.push_back(overflow ? 1e300
                                  : seal.contributions(i).key().slot() + 1.0);
    }
    GramMatrix gram(seal.contributions_size());
    gram.AddProducts(products);
    statistics.add_grams(gram.ToBytes());
  }
  if (alter_report) alter_report(report);
  const bool is_whole = sends_whole && sends_whole();
  if (!Send(shard_index, report, is_whole)) {
    const bool is_taken = Send(shard_index, report, /*is_whole=*/true);
    EXPECT_TRUE(is_taken || alter_report);
  }
}

bool RunSimulation::Send(int32_t shard_index, const v1::ShardReport& report,
                         bool is_whole) {
  Shard& shard = shards_[shard_index];
  const int64_t seq = ++shard.report_seq;
  const bool has_changes = !is_whole && shard.answered_seq > 0;
  v1::ShardReport sent = report;
  if (has_changes) {
    sent = ListChanges(shard.answered, report);
    sent.set_base_report_seq(shard.answered_seq);
  }
  const absl::StatusOr<RunAnswer> answer = machine_->Step(
      event::ShardReported{absl::StrCat("server-", shard_index), sent, seq},
      now_);
  const bool is_wanted = answer.ok() && answer->wants_whole_report;
  EXPECT_TRUE(sent.base_report_seq() != 0 || !is_wanted);
  const auto& observed = machine_->observed().shards;
  taken_.resize(shards_.size());
  if (static_cast<size_t>(shard_index) < observed.size() &&
      observed[shard_index].report_seq == seq) {
    taken_[shard_index] = report;
  }
  if (has_changes) ++(is_wanted ? refused_changes_count_ : changes_count_);
  const bool is_lost = loses_answer && loses_answer();
  if (!is_lost) {
    shard.answered_seq = is_wanted ? 0 : seq;
    shard.answered = report;
  }
  Collect();
  return is_lost || !is_wanted;
}

void RunSimulation::Settle() {
  int64_t revision = -1;
  while (revision != state().revision()) {
    revision = state().revision();
    for (const auto& [id, island] : islands_) {
      if (!machine_->CheckIsland(Credentials(id)).ok()) continue;
      PushAgain(id);
      PushAll(id);
    }
    FollowPlans();
  }
}

void RunSimulation::Pass(absl::Duration duration,
                         const std::set<std::string>& silent) {
  const absl::Time end = now_ + duration;
  while (now_ < end) {
    now_ = std::min(end, now_ + absl::Milliseconds(500));
    for (const auto& [id, island] : islands_) {
      if (!silent.contains(id)) Heartbeat(id).IgnoreError();
    }
    const bool is_needed = machine_->NeedsTick(now_);
    const int64_t revision = state().revision();
    machine_->Step(event::Tick{}, now_).IgnoreError();
    tick_time_ = now_;
    if (!is_needed) {
      EXPECT_EQ(state().revision(), revision) << "the Tick was needed";
    }
    Collect();
  }
}

void RunSimulation::Restart(int64_t snapshot_revision) {
  if (Collect()) CheckUnchanged();
  Replay(snapshot_revision);
}

void RunSimulation::Replay(int64_t snapshot_revision) {
  machine_ = MakeMachine();
  oracle_ = IndexOracle();
  if (snapshot_revision > 0) {
    RunState cut;
    for (int64_t i = 0; i < snapshot_revision; ++i) {
      ASSERT_TRUE(cut.Apply(log_[i]).ok());
    }
    // Serialised, as on a disk.
    storage::v1::RunSnapshot snapshot;
    ASSERT_TRUE(snapshot.ParseFromString(cut.ToSnapshot().SerializeAsString()));
    const absl::Status restored =
        machine_->Restore(snapshot, snapshot_revision,
                          FromProto(log_[snapshot_revision - 1].time()));
    ASSERT_TRUE(restored.ok()) << restored;
  }
  for (const storage::v1::Record& record : log_) {
    if (record.revision() <= snapshot_revision) continue;
    storage::v1::Record read;
    ASSERT_TRUE(read.ParseFromString(record.SerializeAsString()));
    ASSERT_TRUE(machine_->Replay(read).ok());
  }
  const auto before = snapshots_.find(state().revision());
  ASSERT_NE(before, snapshots_.end());
  EXPECT_EQ(state().DebugString(), before->second)
      << "from a snapshot of " << snapshot_revision << " records";
  // Contributions that no shard has are unknown after a restart.
  reported_.clear();
  for (const Shard& shard : shards_) {
    for (const Key& key : shard.lost) NoteIfForgotten(key);
  }
  machine_->Step(event::Recovered{}, now_).IgnoreError();
  tick_time_ = now_;
  Collect();
}

void RunSimulation::RestartServer(int32_t shard) {
  const std::string id = absl::StrCat("server-", shard);
  servers_[id].incarnation += 1;
  shards_[shard].prepared.clear();
  shards_[shard].measured.clear();
  shards_[shard].report_seq = 0;
  shards_[shard].answered_seq = 0;
  machine_->Step(event::ServerChanged{id, /*restarted=*/true}, now_)
      .IgnoreError();
  Collect();
}

std::vector<int32_t> RunSimulation::Expected(int32_t f) const {
  std::vector<int32_t> slots;
  for (const v1::SlotPlan& plan : fragment(f).open.slots()) {
    slots.push_back(plan.slot());
  }
  return slots;
}

v1::Outcome RunSimulation::FindOutcome(const std::string& island_id,
                                       int32_t f) {
  const v1::ContributionKey& key = islands_.at(island_id).newest.at(f).key();
  for (const auto& outcome : state().outcomes().Newest(key.slot())) {
    if (outcome.key().seq() == key.seq() && outcome.key().fragment() == f) {
      return outcome.outcome();
    }
  }
  return v1::OUTCOME_UNSPECIFIED;
}

// Sealed contributions are fresh enough; an async run seals one alone.
static void CheckStaleness(const RunState& state,
                           const storage::v1::RoundSealed& sealed) {
  const v1::ScheduleSpec& schedule = state.spec().schedule();
  if (IsAsync(schedule)) {
    EXPECT_EQ(sealed.infos_size(), 1);
  }
  for (const storage::v1::SealedInfo& info : sealed.infos()) {
    EXPECT_TRUE(IsFreshEnough(schedule, info.info().anchor_version(),
                              sealed.seal().version()))
        << sealed.ShortDebugString();
  }
}

void RunSimulation::CheckNobodyIsLeftOut(const RunState& state,
                                         const v1::Seal& seal) const {
  if (state.spec().schedule().timing() != v1::TIMING_STRICT || alter_report) {
    return;
  }
  std::set<int32_t> sealed;
  for (const v1::SealedContribution& contribution : seal.contributions()) {
    sealed.insert(contribution.key().slot());
  }
  for (const v1::SlotPlan& plan :
       state.fragments()[seal.fragment()].open.slots()) {
    EXPECT_TRUE(sealed.contains(plan.slot()) ||
                !state.members()[plan.slot()].present() ||
                refused_anchors_.contains(
                    {seal.fragment(), plan.slot(), seal.version()}))
        << "slot " << plan.slot() << " is not in " << seal.ShortDebugString();
  }
}

// A restore to the present cut must bring this back. Local data positions are
// left out: another island may have taken a slot over since.
static std::string DescribePoint(const RunState& state) {
  storage::v1::RestorePoint point = state.MakeRestorePoint();
  point.clear_local_positions();
  return point.DebugString();
}

void RunSimulation::CheckUnchanged() const {
  const auto seen = snapshots_.find(state().revision());
  ASSERT_NE(seen, snapshots_.end());
  EXPECT_EQ(state().DebugString(), seen->second) << "changed without a record";
}

void RunSimulation::CheckLog() {
  if (Collect()) CheckUnchanged();
  RunState replayed;
  std::set<Key> decided;
  std::map<int32_t, v1::Seal> seals;
  std::set<std::pair<int32_t, int64_t>> versions;
  int64_t commit_seq = 0;
  std::map<int64_t, std::string> points;  // At pins, by commit_seq.
  const auto decide = [&](const v1::ContributionOutcome& outcome) {
    EXPECT_TRUE(decided
                    .insert({outcome.key().fragment(), outcome.key().slot(),
                             outcome.key().seq()})
                    .second)
        << "decided twice: " << outcome.ShortDebugString();
  };
  for (const storage::v1::Record& record : log_) {
    if (record.has_pin_set()) {
      // A pin never moves to another cut.
      const v1::Pin& pin = record.pin_set().pin();
      const auto held = replayed.pins().find(pin.pin_id());
      EXPECT_TRUE(held == replayed.pins().end() ||
                  held->second.pin_set().pin().commit_seq() == pin.commit_seq())
          << pin.ShortDebugString();
    }
    if (record.has_round_opened() || record.has_round_sealed()) {
      EXPECT_EQ(replayed.state(), v1::RUN_STATE_ACTIVE);
    }
    if (record.has_round_sealed()) {
      const v1::Seal& seal = record.round_sealed().seal();
      seals[seal.fragment()] = seal;
      double sum = 0;
      bool all_limited = true;
      std::pair<int32_t, int64_t> last = {-1, 0};
      for (const auto& sealed : seal.contributions()) {
        sum += sealed.weight();
        const Member& member = replayed.members()[sealed.key().slot()];
        all_limited = all_limited && member.record.weight_share_max() > 0;
        const std::pair<int32_t, int64_t> place = {sealed.key().slot(),
                                                   sealed.key().seq()};
        EXPECT_LT(last, place);
        last = place;
      }
      CheckStaleness(replayed, record.round_sealed());
      CheckNobodyIsLeftOut(replayed, seal);
      const double tolerance = 1e-6 * seal.contributions_size();
      EXPECT_LE(sum, 1 + tolerance);
      EXPECT_TRUE(all_limited || sum >= 1 - tolerance);
    } else if (record.has_round_committed()) {
      const v1::Commit& commit = record.round_committed().commit();
      EXPECT_EQ(commit.commit_seq(), ++commit_seq);
      EXPECT_TRUE(
          versions.insert({commit.fragment(), commit.version()}).second);
      std::set<std::pair<int32_t, int64_t>> sealed;
      std::set<std::pair<int32_t, int64_t>> merged;
      for (const auto& c : seals[commit.fragment()].contributions()) {
        sealed.insert({c.key().slot(), c.key().seq()});
      }
      for (const auto& outcome : commit.outcomes()) {
        decide(outcome);
        if (outcome.outcome() == v1::OUTCOME_MERGED) {
          merged.insert({outcome.key().slot(), outcome.key().seq()});
        }
      }
      EXPECT_EQ(sealed, merged);
    } else if (record.has_round_aborted()) {
      for (const auto& o : record.round_aborted().outcomes()) decide(o);
    } else if (record.has_outcomes_set()) {
      for (const auto& o : record.outcomes_set().outcomes()) decide(o);
    }
    if (record.has_run_restored()) {
      const v1::Restore& restore = record.run_restored().restore();
      EXPECT_EQ(restore.commit_seq(), ++commit_seq);
      std::erase_if(versions, [&](const auto& one) {
        return one.second > record.run_restored().cut(one.first).version();
      });
      seals.clear();
    }
    if (record.has_pin_set()) {
      points[replayed.commit_seq()] = DescribePoint(replayed);
    }
    const absl::Status applied = replayed.Apply(record);
    ASSERT_TRUE(applied.ok()) << applied;
    if (record.has_run_restored()) {
      const int64_t cut = record.run_restored().restore().cut_commit_seq();
      EXPECT_EQ(DescribePoint(replayed), points[cut - 1]);
    }
    const auto snapshot = snapshots_.find(record.revision());
    if (snapshot != snapshots_.end()) {
      ASSERT_EQ(replayed.DebugString(), snapshot->second);
    }
  }
}

void RunSimulation::CheckAllDecided() {
  for (const Key& key : ever_stored_) {
    if (forgotten_.contains(key)) continue;
    v1::ContributionKey wanted;
    wanted.set_fragment(std::get<0>(key));
    wanted.set_slot(std::get<1>(key));
    wanted.set_seq(std::get<2>(key));
    EXPECT_TRUE(state().outcomes().Contains(wanted))
        << "never decided: " << wanted.ShortDebugString();
  }
}

const ServerInfo* RunSimulation::FindServer(
    const std::string& server_id) const {
  const auto server = servers_.find(server_id);
  return server == servers_.end() ? nullptr : &server->second;
}

std::vector<std::string> RunSimulation::AliveServers() const {
  std::vector<std::string> ids;
  for (const auto& [id, server] : servers_) {
    if (server.alive) ids.push_back(id);
  }
  return ids;
}

}  // namespace atl::coordinator
