#include "coordinator/core/coordinator.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/features/features.h"
#include "base/layout/ids.h"
#include "base/status/check.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"
#include "coordinator/core/outputs/history.h"
#include "coordinator/core/rounds/norm_bound.h"
#include "coordinator/core/spec/validate_spec.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/util/message_differencer.h"

namespace atl::coordinator {
namespace {

// The fields in which the two differ: "init, schedule"; empty: in none.
std::string ListDifferences(const v1::RunSpec& a, const v1::RunSpec& b) {
  std::vector<std::string> names;
  const google::protobuf::Descriptor& spec = *v1::RunSpec::descriptor();
  for (int f = 0; f < spec.field_count(); ++f) {
    google::protobuf::util::MessageDifferencer one;
    for (int other = 0; other < spec.field_count(); ++other) {
      if (other != f) one.IgnoreField(spec.field(other));
    }
    if (!one.Compare(a, b)) names.push_back(spec.field(f)->name());
  }
  return absl::StrJoin(names, ", ");
}

// Shortest time between two samples of the volatile series.
constexpr absl::Duration kSamplePeriod = absl::Seconds(1);

}  // namespace

absl::Duration HeartbeatInterval(int64_t island_count, absl::Duration lease) {
  const absl::Duration by_count =
      absl::Seconds(1) * static_cast<double>(island_count) / 500;
  return std::min(lease / 4,
                  std::clamp(by_count, absl::Seconds(2), absl::Seconds(20)));
}

absl::Status Coordinator::Restore(const LogSnapshot& log) {
  const storage::v1::Snapshot& snapshot = log.snapshot;
  if (snapshot.format() > kSnapshotFormat) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the snapshot of run \"", log.run_id, "\" has format ",
        snapshot.format(), ", newer than this program's ", kSnapshotFormat));
  }
  Log& restored = logs_[log.run_id];
  restored.tail.Cut(snapshot.revision(), snapshot.ByteSizeLong());
  restored.time = snapshot.time();
  if (snapshot.has_run() && !log.run_id.empty()) {
    std::unique_ptr<RunMachine>& run = runs_[log.run_id];
    run = MakeMachine(log.run_id);
    return run->Restore(snapshot.run(), snapshot.revision(),
                        FromProto(snapshot.time()));
  }
  if (!snapshot.has_coordinator() || !log.run_id.empty()) {
    return absl::DataLossError(absl::StrCat(
        "the snapshot of run \"", log.run_id, "\" belongs to another log"));
  }
  own_revision_ = snapshot.revision();
  coordinator_epoch_ = snapshot.coordinator().coordinator_epoch();
  for (const storage::v1::ServerSet& set : snapshot.coordinator().servers()) {
    SetServer(set);
  }
  for (const auto& start : snapshot.coordinator().starts()) {
    log_history_.AddStart(start);
  }
  for (const auto& deleted : snapshot.coordinator().deleted()) {
    deleted_.Add(deleted);
  }
  enrolments_.Restore(snapshot.coordinator());
  audit_rows_.Restore(snapshot.coordinator());
  return absl::OkStatus();
}

absl::Status Coordinator::Replay(const LogEntry& entry) {
  NoteRecord(entry);
  if (entry.run_id.empty()) return ReplayOwn(entry.record);
  std::unique_ptr<RunMachine>& run = runs_[entry.run_id];
  if (run == nullptr) run = MakeMachine(entry.run_id);
  return run->Replay(entry.record);
}

absl::Status Coordinator::ReplayOwn(const storage::v1::Record& record) {
  if (record.revision() != own_revision_ + 1) {
    return absl::DataLossError(
        absl::StrCat("the coordinator's log is inconsistent: record ",
                     record.revision(), " follows ", own_revision_));
  }
  own_revision_ = record.revision();
  enrolments_.Apply(record);
  audit_rows_.Apply(record);
  if (record.has_coordinator_started()) {
    coordinator_epoch_ = record.coordinator_started().coordinator_epoch();
    log_history_.AddStart(record.coordinator_started());
  } else if (record.has_server_set()) {
    SetServer(record.server_set());
  } else if (record.has_run_deleted()) {
    deleted_.Add(record.run_deleted());
  } else if (record.has_run_forgotten()) {
    deleted_.Forget(record.run_forgotten());
  } else if (!record.has_token_set() && !record.has_token_forgotten() &&
             !record.has_identity_set() && !record.has_identity_forgotten() &&
             !record.has_audited()) {
    return absl::DataLossError(absl::StrCat("the coordinator's record ",
                                            record.revision(),
                                            " has an unknown type"));
  }
  return absl::OkStatus();
}

void Coordinator::SetServer(const storage::v1::ServerSet& set) {
  ServerInfo& info = servers_[set.server_id()].info;
  info.server_id = set.server_id();
  info.address = set.address();
  info.incarnation = set.incarnation();
  info.program_version = set.program_version();
  info.directory_id = set.directory_id();
  info.features = set.features();
  info.directory_lost = set.directory_lost();
}

absl::Time Coordinator::newest_time() const {
  absl::Time newest = absl::InfinitePast();
  for (const auto& [id, log] : logs_) {
    newest = std::max(newest, FromProto(log.time));
  }
  return newest;
}

void Coordinator::Start(absl::Time now, const StartIds& ids,
                        int64_t log_index) {
  log_history_.set_index(log_index);
  storage::v1::Record record;
  storage::v1::CoordinatorStarted& start =
      *record.mutable_coordinator_started();
  start.set_coordinator_epoch(coordinator_epoch_ + 1);
  const bool is_new = log_history_.cluster_id().empty();
  start.set_cluster_id(is_new ? ids.cluster_id : log_history_.cluster_id());
  start.set_log_secret(is_new ? ids.log_secret : log_history_.secret());
  start.set_start_id(ids.start_id);
  start.set_log_index(log_index + 1);
  EmitOwn(std::move(record), now);
  BeginLife(now);
}

void Coordinator::Supersede(absl::Time now, const std::string& start_id,
                            int64_t log_index, int64_t jump_count) {
  log_history_.set_index(log_index);
  storage::v1::Record record;
  storage::v1::CoordinatorStarted& start =
      *record.mutable_coordinator_started();
  start.set_coordinator_epoch(coordinator_epoch_ + jump_count * kEpochJump);
  start.set_cluster_id(log_history_.cluster_id());
  start.set_log_secret(log_history_.secret());
  start.set_start_id(start_id);
  start.set_log_index(log_index + 1);
  start.set_supersedes(true);
  EmitOwn(std::move(record), now);
  for (auto& [id, run] : runs_) {
    run->Step(event::Supersede{jump_count}, now).IgnoreError();
  }
}

void Coordinator::BeginLife(absl::Time now) {
  for (auto& [id, server] : servers_) {
    server.info.alive = true;
    server.lease_end = now + options_.server_lease_duration;
  }
  for (auto& [id, run] : runs_)
    run->Step(event::Recovered{}, now).IgnoreError();
  NoteAllRuns();
  NoteAllServers();
}

void Coordinator::EmitOwn(storage::v1::Record record, absl::Time now) {
  record.set_revision(own_revision_ + 1);
  *record.mutable_time() = ToProto(now);
  CHECK_OK(ReplayOwn(record));
  own_entries_.push_back({"", std::move(record)});
}

absl::StatusOr<v1::CreateRunResponse> Coordinator::CreateRun(
    const v1::CreateRunRequest& request, absl::Time now,
    const std::string& run_uid) {
  std::vector<FieldViolation> violations = ValidateSpec(request.spec());
  const absl::Status id_status = ValidateId("", request.run_id());
  if (!id_status.ok()) {
    violations.insert(violations.begin(),
                      {"run_id", std::string(id_status.message())});
  } else if (request.run_id()[0] == '-' &&
             !runs_.contains(request.run_id())) {
    violations.insert(violations.begin(),
                      {"run_id",
                       "begins with '-', as a flag does: choose another id"});
  }
  if (!violations.empty()) return InvalidFields(violations);
  RETURN_IF_ERROR(CheckWritable());
  v1::CreateRunResponse response;
  const auto old = runs_.find(request.run_id());
  if (old != runs_.end()) {
    v1::RunSpec made_from = old->second->state().spec();
    if (!request.spec().outer().has_enrolled_norm_factor()) {
      made_from.mutable_outer()->clear_enrolled_norm_factor();
    }
    const std::string differences = ListDifferences(made_from, request.spec());
    if (!differences.empty()) {
      return Refuse(absl::StatusCode::kAlreadyExists, "OTHER_SPEC",
                    absl::StrCat("run ", request.run_id(), " exists with "
                                 "another spec (other in: ", differences,
                                 "): choose another id, or create it from what "
                                 "it was created from"));
    }
    *response.mutable_run() = BuildRun(*old->second, /*with_tensors=*/true);
    return response;
  }
  if (request.spec().checkpoint().mirror() && !options_.has_mirror) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "NO_MIRROR",
                  "checkpoint.mirror is true, and this coordinator has no "
                  "mirror: start it and its servers with --mirror URL, or "
                  "leave checkpoint.mirror out");
  }
  if (runs_.size() >= kRunsMax) return TooManyRuns();
  v1::RunSpec spec = request.spec();
  if (!spec.outer().has_enrolled_norm_factor() &&
      spec.durability() != v1::DURABILITY_ISLAND) {
    spec.mutable_outer()->set_enrolled_norm_factor(kEnrolledNormFactorDefault);
  }
  std::unique_ptr<RunMachine> run = MakeMachine(request.run_id());
  run->Step(event::Create{request.run_id(), std::move(spec), run_uid}, now)
      .IgnoreError();
  *response.mutable_run() = BuildRun(*run, /*with_tensors=*/true);
  if (!request.validate_only()) {
    runs_[request.run_id()] = std::move(run);
  }
  return response;
}

absl::Status Coordinator::TooManyRuns() {
  return Refuse(absl::StatusCode::kResourceExhausted, "TOO_MANY_RUNS",
                absl::StrCat("the coordinator keeps ", kRunsMax,
                             " runs, the most it can: delete one with "
                             "`atoll run delete RUN`"));
}

absl::StatusOr<RunMachine*> Coordinator::FindRun(const std::string& run_id) {
  const auto run = runs_.find(run_id);
  if (run == runs_.end()) {
    RETURN_IF_ERROR(CheckWritable());  // The newest log may have it.
    return Refuse(
        absl::StatusCode::kNotFound, "NO_SUCH_RUN",
        absl::StrCat("there is no run \"", run_id.substr(0, 64), "\""));
  }
  return run->second.get();
}

std::vector<RunToList> Coordinator::ListRuns() const {
  std::vector<RunToList> runs;
  for (const auto& [id, run] : runs_) {
    runs.push_back({BuildRunWithoutSpec(*run), run->state().shared_spec()});
  }
  return runs;
}

absl::StatusOr<v1::ReportShardsResponse> Coordinator::ReportShards(
    v1::ReportShardsRequest request, absl::Time now) {
  RETURN_IF_ERROR(CheckPeer(request.log_seen(),
                            {"server", request.server_id(), ""}, now));
  RETURN_IF_ERROR(CheckServer(request.server_id(), request.incarnation(),
                              request.directory_id()));
  Server& server = servers_[request.server_id()];
  server.lease_end = now + options_.server_lease_duration;
  if (!server.info.alive) {
    server.info.alive = true;
    TellRuns(request.server_id(), /*restarted=*/false, now);
  }
  v1::ReportShardsResponse response;
  // An equal report_seq is another part of the same report, or a repeat.
  if (request.report_seq() >= server.report_seq) {
    server.report_seq = request.report_seq();
    // Reports of another run with the same id: handled after the run's own.
    std::vector<v1::ShardReport> others;
    const auto take = [&](v1::ShardReport& report) {
      const auto run = runs_.find(report.run_id());
      if (run == runs_.end()) return;
      const absl::StatusOr<RunAnswer> answer = run->second->Step(
          event::ShardReported{request.server_id(), report,
                               request.report_seq()},
          now);
      if (answer.ok() && answer->wants_whole_report) {
        response.add_whole_report_run_ids(run->first);
      }
    };
    const auto take_part = [&](v1::ShardReport& part) {
      std::optional<v1::ShardReport> report =
          server.reports.Add(request.report_seq(), std::move(part));
      if (!report.has_value() ||
          deleted_.IsWaiting(request.server_id(), report->run_uid())) {
        return;
      }
      // Files of before there were uids may be the deleted run's.
      if (report->run_uid().empty() &&
          deleted_.IsIdWaiting(request.server_id(), report->run_id())) {
        return;
      }
      const auto run = runs_.find(report->run_id());
      if (run == runs_.end()) return;
      if (report->run_uid().empty() ||
          report->run_uid() == run->second->state().run_uid()) {
        take(*report);
      } else {
        others.push_back(*std::move(report));
      }
    };
    ForgetRuns(request, now);
    for (v1::ShardReport& part : *request.mutable_shards()) take_part(part);
    for (v1::ShardReport& part : *request.mutable_changes()) take_part(part);
    for (v1::ShardReport& report : others) take(report);
  }
  *response.mutable_lease_duration() = ToProto(options_.server_lease_duration);
  response.set_plan_revision(ServerPlanRevision(request.server_id()));
  response.set_coordinator_features(ProgramFeatures());
  return response;
}

void Coordinator::TellRuns(const std::string& server_id, bool restarted,
                           absl::Time now) {
  for (auto& [id, run] : runs_) {
    run->Step(event::ServerChanged{server_id, restarted}, now).IgnoreError();
  }
}

const ServerInfo* Coordinator::FindServer(const std::string& server_id) const {
  const auto server = servers_.find(server_id);
  return server == servers_.end() ? nullptr : &server->second.info;
}

std::vector<std::string> Coordinator::AliveServers() const {
  std::map<std::string, int> shard_counts;
  for (const auto& [id, run] : runs_) {
    if (run->state().ended()) continue;
    for (const std::string& server_id : run->state().server_ids()) {
      ++shard_counts[server_id];
    }
  }
  std::vector<std::pair<int, std::string>> alive;
  for (const auto& [id, server] : servers_) {
    if (server.info.alive) alive.emplace_back(shard_counts[id], id);
  }
  std::sort(alive.begin(), alive.end());
  std::vector<std::string> ids;
  for (auto& [count, id] : alive) ids.push_back(std::move(id));
  return ids;
}

std::unique_ptr<RunMachine> Coordinator::MakeMachine(
    const std::string& run_id) {
  return std::make_unique<RunMachine>(*this,
                                      [this, run_id] { NoteStep(run_id); });
}

void Coordinator::NoteStep(const std::string& run_id) {
  stepped_runs_.insert(run_id);
  if (!undecided_runs_.insert(run_id).second) return;
  const auto run = runs_.find(run_id);
  // It needed no Tick at the Advances since its newest event.
  if (run != runs_.end()) run->second->SkipTick(advance_time_);
}

void Coordinator::NoteAllRuns() {
  for (const auto& [id, run] : runs_) {
    NoteStep(id);
    run->Unsettle();
  }
}

void Coordinator::NoteAllServers() {
  for (const auto& [id, server] : servers_) changed_servers_.insert(id);
}

void Coordinator::NoteNames(const std::string& run_uid) {
  renamed_run_uids_.insert(run_uid);
}

void Coordinator::NoteTimers() {
  for (const std::string& id : stepped_runs_) {
    const auto run = runs_.find(id);
    if (run == runs_.end()) continue;
    Noted& noted = noted_[id];
    island_count_ += run->second->island_count() - noted.island_count;
    noted.island_count = run->second->island_count();
    const absl::Time timer = run->second->NextTimer();
    if (timer == noted.timer) continue;
    timers_.erase({noted.timer, id});
    if (timer != absl::InfiniteFuture()) timers_.emplace(timer, id);
    noted.timer = timer;
  }
}

void Coordinator::ForgetTimer(const std::string& run_id) {
  const auto noted = noted_.find(run_id);
  if (noted == noted_.end()) return;
  timers_.erase({noted->second.timer, run_id});
  island_count_ -= noted->second.island_count;
  noted_.erase(noted);
}

void Coordinator::Advance(absl::Time now) {
  if (!refusal_.ok()) return;
  for (auto& [id, server] : servers_) {
    if (!server.info.alive || server.lease_end > now) continue;
    server.info.alive = false;
    reasons_.push_back(absl::StrCat("server ", id, " is away"));
    TellRuns(id, /*restarted=*/false, now);
  }
  for (const auto& [time, id] : timers_) {
    if (time > now) break;
    NoteStep(id);
  }
  for (const std::string& id : std::set<std::string>(undecided_runs_)) {
    const auto run = runs_.find(id);
    if (run == runs_.end() || !run->second->NeedsTick(now)) continue;
    run->second->Step(event::Tick{}, now).IgnoreError();
  }
  undecided_runs_.clear();
  advance_time_ = std::max(advance_time_, now);
}

void Coordinator::AddStall(absl::Duration duration) {
  for (auto& [id, server] : servers_) server.lease_end += duration;
  for (auto& [id, run] : runs_) {
    run->AddStall(duration);
    stepped_runs_.insert(id);
  }
}

absl::Time Coordinator::NextTimer() {
  absl::Time next = absl::InfiniteFuture();
  if (!refusal_.ok()) return next;
  for (const auto& [id, server] : servers_) {
    if (server.info.alive) next = std::min(next, server.lease_end);
  }
  NoteTimers();
  return timers_.empty() ? next : std::min(next, timers_.begin()->first);
}

v1::HeartbeatResponse Coordinator::DescribeLease(const RunMachine& run) const {
  const absl::Duration lease = IslandLeaseDuration(run.state().spec());
  v1::HeartbeatResponse response;
  *response.mutable_lease_duration() = ToProto(lease);
  response.set_coordinator_features(ProgramFeatures());
  response.set_coordinator_epoch(coordinator_epoch_);
  *response.mutable_next_interval() =
      ToProto(HeartbeatInterval(island_count_, lease));
  return response;
}

void Coordinator::NoteRecord(const LogEntry& entry) {
  Log& log = logs_[entry.run_id];
  log.tail.Add(static_cast<int64_t>(entry.record.ByteSizeLong()));
  log.time = entry.record.time();
}

storage::v1::CoordinatorSnapshot Coordinator::OwnSnapshot() const {
  storage::v1::CoordinatorSnapshot snapshot;
  snapshot.set_coordinator_epoch(coordinator_epoch_);
  for (const auto& [id, server] : servers_) {
    storage::v1::ServerSet& set = *snapshot.add_servers();
    set.set_server_id(id);
    set.set_address(server.info.address);
    set.set_incarnation(server.info.incarnation);
    set.set_program_version(server.info.program_version);
    set.set_directory_id(server.info.directory_id);
    set.set_features(server.info.features);
    set.set_directory_lost(server.info.directory_lost);
  }
  for (const storage::v1::CoordinatorStarted& start : log_history_.starts()) {
    *snapshot.add_starts() = start;
  }
  for (storage::v1::RunDeleted& deleted : deleted_.ToSnapshot()) {
    *snapshot.add_deleted() = std::move(deleted);
  }
  enrolments_.AddTo(snapshot);
  audit_rows_.AddTo(snapshot);
  return snapshot;
}

void Coordinator::AddSnapshotIfDue(const std::string& run_id,
                                   Effects& effects) {
  Log& log = logs_[run_id];
  if (!log.tail.SnapshotDue(options_.snapshots)) return;
  LogSnapshot added;
  added.run_id = run_id;
  storage::v1::Snapshot& snapshot = added.snapshot;
  snapshot.set_format(kSnapshotFormat);
  *snapshot.mutable_time() = log.time;
  snapshot.set_compacted_revision(log.tail.snapshot_revision());
  if (run_id.empty()) {
    snapshot.set_revision(own_revision_);
    *snapshot.mutable_coordinator() = OwnSnapshot();
  } else {
    const RunState& state = runs_.at(run_id)->state();
    snapshot.set_revision(state.revision());
    *snapshot.mutable_run() = state.ToSnapshot();
  }
  log.tail.Cut(snapshot.revision(), snapshot.ByteSizeLong());
  effects.reasons.push_back(absl::StrCat(
      run_id.empty() ? "its own log" : absl::StrCat("run ", run_id),
      ": a snapshot of record ", snapshot.revision(), "; those up to ",
      snapshot.compacted_revision(), " are deleted"));
  effects.batch.snapshots.push_back(std::move(added));
}

std::vector<MirrorWork> Coordinator::ListMirrorWork() const {
  std::vector<MirrorWork> works;
  for (const auto& [id, run] : runs_) {
    std::optional<MirrorWork> work = run->FindMirrorWork();
    if (!work.has_value()) continue;
    work->owner = DescribeOwner(run->state());
    works.push_back(*std::move(work));
  }
  return works;
}

void Coordinator::SampleIfDue(const std::string& run_id,
                              const RunMachine& run, absl::Time now) {
  if (!run.state().started() || run.state().ended()) return;
  const auto sampled =
      sample_times_.try_emplace(run_id, absl::InfinitePast()).first;
  if (now < sampled->second + kSamplePeriod) return;
  sampled->second = now;
  SampleSeries(run, now, series_[run_id]);
}

Effects Coordinator::TakeEffects(absl::Time now) {
  Effects effects;
  effects.batch.entries = std::exchange(own_entries_, {});
  effects.reasons = std::exchange(reasons_, {});
  effects.warnings = std::exchange(warnings_, {});
  effects.changed_servers = std::exchange(changed_servers_, {});
  effects.batch.deleted_runs = std::exchange(deleted_run_ids_, {});
  for (const std::string& id : effects.batch.deleted_runs) {
    effects.changed_runs.insert(id);
  }
  NoteTimers();
  const std::set<std::string> stepped = std::exchange(stepped_runs_, {});
  for (const std::string& id : stepped) {
    const auto found = runs_.find(id);
    if (found == runs_.end()) continue;
    const std::unique_ptr<RunMachine>& run = found->second;
    for (storage::v1::Record& record : run->TakeRecords()) {
      effects.batch.entries.push_back({id, std::move(record)});
    }
    for (std::string& reason : run->TakeReasons()) {
      effects.reasons.push_back(absl::StrCat("run ", id, ": ", reason));
    }
    for (v1::SyncPhases& sync : run->TakePhases()) {
      effects.phases.push_back({id, std::move(sync)});
    }
    if (PlanChange change = run->TakePlanChange(); change.any()) {
      effects.changed_runs.insert(id);
      effects.plan_changes.emplace(id, std::move(change));
    }
    effects.mirror_due |= run->TakeMirrorDue();
    SampleIfDue(id, *run, now);
  }
  const std::set<std::string> renamed = std::exchange(renamed_run_uids_, {});
  for (const auto& [id, run] : runs_) {
    if (!renamed.contains(run->state().run_uid())) continue;
    effects.changed_runs.insert(id);
    effects.plan_changes[id].Add({.servers = true, .names = true});
  }
  if (now >= all_sampled_time_ + kSamplePeriod) {
    all_sampled_time_ = now;
    for (const auto& [id, run] : runs_) SampleIfDue(id, *run, now);
  }
  std::set<std::string> trimmed_runs;
  for (const LogEntry& entry : effects.batch.entries) {
    NoteRecord(entry);
    std::optional<HistoryRow> row = ToHistory(entry);
    if (row.has_value()) effects.batch.history.push_back(*std::move(row));
    effects.mirror_due |= ChangesClusterObject(entry);
    if (EndsTrimStep(entry.record)) trimmed_runs.insert(entry.run_id);
  }
  audit_rows_.AddTrims(effects.batch);
  for (const std::string& id : trimmed_runs) {
    AddTrims(runs_.at(id)->state(), effects.batch);
  }
  if (refusal_.ok()) {
    AddSnapshotIfDue("", effects);
    for (const std::string& id : stepped) {
      if (runs_.contains(id)) AddSnapshotIfDue(id, effects);
    }
  }
  if (!effects.batch.empty()) log_history_.set_index(log_history_.index() + 1);
  if (!effects.changed_servers.empty() || !effects.changed_runs.empty()) {
    ++plan_count_;
    deleted_.NotePlans(PlanRevision());
    NoteServerPlans(effects);
  }
  effects.plan_revision = PlanRevision();
  return effects;
}

// Grows over restarts too, so receivers compare only this number.
int64_t Coordinator::PlanRevision() const {
  return (coordinator_epoch_ << 40) + plan_count_;
}

}  // namespace atl::coordinator
