#include "server/parameter_server.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/failpoint/test_point.h"
#include "base/features/features.h"
#include "base/layout/ids.h"
#include "base/obs/log.h"
#include "base/obs/log_pace.h"
#include "base/obs/version.h"
#include "base/rpc/retry.h"
#include "base/status/annotate.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "base/time/clock.h"
#include "base/time/proto_time.h"
#include "server/advertise.h"
#include "server/core/faults.h"
#include "server/directory/deleted_runs.h"
#include "server/store/shard_names.h"

namespace atl::server {
namespace {

constexpr int kBackgroundNice = 10;
constexpr absl::Duration kReportIntervalMax = absl::Seconds(5);

// Between calls that the coordinator does not take.
constexpr absl::Duration kWaitMin = absl::Milliseconds(50);
constexpr absl::Duration kRefusedWaitMax = absl::Seconds(5);

// Largest message: a chunk of 1 MiB, its header, and some slack.
constexpr int kMessageBytesMax = rpc::kDataMessageBytesMax;

// Bytes that a stream may send ahead of the chunk that is read. They take
// memory and are lost when the connection breaks, so this is small on any link.
constexpr int kReceiveWindowBytes = 256 << 10;

// The server id belongs to another data directory.
bool IsOtherDirectory(const absl::Status& status) {
  return HasReason(status, "OTHER_DIRECTORY");
}

absl::Status Stopping() {
  return Refuse(absl::StatusCode::kUnavailable, "STOPPING",
                "the server is stopping: call again, it may come back");
}

}  // namespace

absl::StatusOr<std::unique_ptr<ParameterServer>> ParameterServer::Start(
    const Options& options, const Environment& environment) {
  RETURN_IF_ERROR(ValidateId("server_id", options.server_id));
  if (options.merge_thread_count < 1 || options.finish_thread_count < 1) {
    return absl::InvalidArgumentError("thread counts must be >= 1");
  }
  RETURN_IF_ERROR(rpc::CheckListener(options.listener));
  if (!options.advertise.empty()) {
    // Any port shows whether it is well-formed.
    RETURN_IF_ERROR(ResolveAdvertise(options.advertise, options.server_id, 1)
                        .status());
  }
  ASSIGN_OR_RETURN(std::unique_ptr<ServerDirectory> directory,
                   ServerDirectory::Open(environment.fs, options.data_dir,
                                         options.server_id));
  std::unique_ptr<ParameterServer> server(
      new ParameterServer(options, environment, std::move(directory)));
  RETURN_IF_ERROR(server->Recover());
  ParameterServer* const raw = server.get();
  rpc::RpcServer::Spec spec;
  server->service_ = std::make_unique<ParameterServiceImpl>(ServiceContext{
      [raw](const std::string& run_id) { return raw->FindForCall(run_id); },
      server->access_, server->push_watchdog_, server->pull_watchdog_,
      std::make_shared<BufferPool>(), server->held_, server->metrics_});
  spec.listener = options.listener;
  spec.services = {server->service_.get()};
  spec.message_bytes_max = kMessageBytesMax;
  spec.receive_window_bytes = kReceiveWindowBytes;
  spec.metrics = &environment.metrics;
  ASSIGN_OR_RETURN(server->rpc_, rpc::RpcServer::Start(spec));
  server->advertised_ = server->address();
  if (!options.advertise.empty()) {
    ASSIGN_OR_RETURN(server->advertised_,
                     ResolveAdvertise(options.advertise, options.server_id,
                                      server->port()));
  }
  server->ShowReady(absl::OkStatus());
  server->ShowHealth();
  server->plan_thread_ =
      std::jthread([raw](std::stop_token stop) { raw->FollowPlan(stop); });
  server->report_thread_ =
      std::jthread([raw](std::stop_token stop) { raw->SendReports(stop); });
  return server;
}

ParameterServer::ParameterServer(const Options& options,
                                 const Environment& environment,
                                 std::unique_ptr<ServerDirectory> directory)
    : options_(options),
      environment_(environment),
      directory_(std::move(directory)),
      metrics_(environment.metrics),
      tile_pool_(options.merge_thread_count),
      merger_(tile_pool_),
      merge_queue_(1),
      // Work after the commit must not slow down what islands wait for.
      disk_queue_(1, kBackgroundNice),
      finish_queue_(options.finish_thread_count),
      low_queue_(1, kBackgroundNice),
      budget_queue_(1),
      images_(ImagePool::Create(options.image_bytes_max)),
      held_(std::make_shared<ReceiveBudget>(
          options.live_merge_bytes_max,
          rpc::RpcServer::Spec().memory_bytes_max / 4,
          [this](std::function<void()> task) {
            budget_queue_.Post(std::move(task));
          })),
      push_watchdog_(options.stream_limits, SystemClock()),
      pull_watchdog_(options.stream_limits, SystemClock()),
      mirror_(options.mirror.has_value()
                  ? std::make_unique<CheckpointMirror>(*options.mirror)
                  : nullptr) {}

ParameterServer::~ParameterServer() { Stop(); }

// --- Shards -----------------------------------------------------------------

ShardResources ParameterServer::Resources() {
  return {merger_,
          merge_queue_,
          disk_queue_,
          finish_queue_,
          low_queue_,
          images_,
          *held_,
          metrics_,
          [this] {
            MutexLock lock(&mutex_);
            ++change_count_;
            changed_.SignalAll();
          },
          [this] { return directory_->log_seen(); },
          [this] { return directory_->PersistLog(); },
          mirror_.get()};
}

absl::Status ParameterServer::Recover() {
  ASSIGN_OR_RETURN(std::vector<FoundShard> shards, directory_->OpenShards());
  const auto count = static_cast<int>(shards.size());
  for (int i = 0; i < count; ++i) {
    environment_.metrics.SetReady(absl::UnavailableError(absl::StrCat(
        "recovering: ", i, " of ", count, " shards are open")));
    metrics_.SetShards({count - i, 0, 0, i});
    OpenShard(std::move(shards[i]));
  }
  low_queue_.Post([this] {
    RemoveDeletedRuns(environment_.fs, options_.data_dir);
  });
  return absl::OkStatus();
}

void ParameterServer::OpenShard(FoundShard found) {
  const std::string run_id = found.run_id;
  {
    MutexLock lock(&mutex_);
    if (entries_.count(run_id) > 0) {
      LOG(ERROR) << "run " << run_id
                 << " is here twice; the directory with run_uid "
                 << found.run_uid << " is left alone";
      return;
    }
  }
  Entry entry = MakeEntry(std::move(found));
  MutexLock lock(&mutex_);
  entries_[run_id] = std::move(entry);
}

ParameterServer::Entry ParameterServer::MakeEntry(FoundShard found,
                                                  const absl::Status& fault,
                                                  int64_t failed_run_epoch) {
  const std::string& run_id = found.run_id;
  const records::RunRecord& record = found.record;
  Entry entry;
  entry.shard_number = found.shard;
  entry.directory =
      ShardNames(options_.data_dir, run_id, found.run_uid, found.shard)
          .run_directory();
  if (IsKnownRun(found.run_uid)) entry.run_uid = found.run_uid;
  entry.run_epoch = record.run().run_epoch();
  absl::StatusOr<std::shared_ptr<Shard>> shard =
      found.status.ok()
          ? Shard::Create(Resources(), environment_.fs, *found.records,
                          options_.data_dir, record, fault,
                          failed_run_epoch)
          : absl::StatusOr<std::shared_ptr<Shard>>(found.status);
  entry.records = std::move(found.records);
  if (shard.ok()) {
    entry.shard = *std::move(shard);
    directory_->NoteLog(entry.shard->store().log_seen(), 0);
    LOG(INFO) << "run " << run_id << ": shard " << record.shard() << " of "
              << record.shard_count() << " is open";
  } else {
    // Other runs continue; this run's report has the reason.
    entry.fault = ToFault(shard.status());
    LOG(ERROR) << "run " << run_id
               << " cannot be opened: " << ToText(*entry.fault);
  }
  return entry;
}

absl::Status ParameterServer::CreateShard(const v1::ServerRunPlan& plan,
                                          const v1::Run& run) {
  RETURN_IF_ERROR(ValidateId("run_id", run.run_id()));
  ASSIGN_OR_RETURN(
      FoundShard found,
      directory_->CreateShard(run, plan.shard(), plan.shard_count()));
  OpenShard(std::move(found));
  MutexLock lock(&mutex_);
  const auto made = entries_.find(run.run_id());
  if (made == entries_.end() || !made->second.fault.has_value()) {
    return absl::OkStatus();
  }
  const v1::Fault fault = *made->second.fault;
  // It passes: the run must not wait for a restart.
  if (fault.code() != "RESOURCE_EXHAUSTED" && fault.code() != "UNAVAILABLE") {
    return absl::OkStatus();
  }
  entries_.erase(made);
  return absl::UnavailableError(ToText(fault));
}

std::shared_ptr<Shard> ParameterServer::FindShard(const std::string& run_id) {
  MutexLock lock(&mutex_);
  const auto it = entries_.find(run_id);
  return it == entries_.end() ? nullptr : it->second.shard;
}

absl::StatusOr<std::shared_ptr<Shard>> ParameterServer::FindForCall(
    const std::string& run_id) {
  MutexLock lock(&mutex_);
  const auto it = entries_.find(run_id);
  if (it != entries_.end() && it->second.shard != nullptr) {
    return it->second.shard;
  }
  if (it == entries_.end() || !it->second.is_restoring) {
    return ShardNotHere(run_id);
  }
  return Refuse(absl::StatusCode::kUnavailable, "STARTING",
                absl::StrCat("this server takes its shard of run \"", run_id,
                             "\" back to an earlier cut; call again"));
}

// --- The agent --------------------------------------------------------------

bool ParameterServer::Register(std::stop_token stop) {
  v1::RegisterServerRequest request;
  request.set_server_id(options_.server_id);
  request.set_address(advertised_);
  request.set_incarnation(incarnation());
  request.set_program_version(kProgramVersion);
  request.set_directory_id(directory_->directory_id());
  request.set_features(ProgramFeatures());
  absl::Duration wait = kWaitMin;
  LogPace pace;
  while (!stop.stop_requested()) {
    const v1::LogPosition seen = directory_->log_seen();
    if (!seen.cluster_id().empty()) *request.mutable_log_seen() = seen;
    absl::StatusOr<v1::RegisterServerResponse> response =
        environment_.coordinator.RegisterServer(request);
    if (response.ok()) {
      const absl::Status taken = TakeAnswer(*response);
      if (!taken.ok()) response = taken;
    }
    if (response.ok()) {
      LOG(INFO) << "registered as " << options_.server_id << ", incarnation "
                << incarnation() << ", at coordinator epoch "
                << response->coordinator_epoch();
      MutexLock lock(&mutex_);
      lease_ = FromProto(response->lease_duration());
      if (lease_ <= absl::ZeroDuration()) lease_ = absl::Seconds(15);
      NoteFeatures(response->coordinator_features());
      registered_ = true;
      has_to_report_whole_ = true;
      ++change_count_;
      changed_.SignalAll();
      return true;
    }
    if (absl::IsAborted(response.status()) ||
        absl::IsInvalidArgument(response.status()) ||
        absl::IsPermissionDenied(response.status()) ||
        (IsOtherDirectory(response.status()) && HoldsNothing())) {
      End(response.status());
      return false;
    }
    if (pace.IsDue(response.status().message(), SystemClock().Now())) {
      LOG(WARNING) << "cannot register yet, trying again: "
                   << response.status().message();
    }
    MutexLock lock(&mutex_);
    if (!stopping_) {
      changed_.WaitWithTimeout(&mutex_,
                               rpc::DelayAsked(wait, response.status()));
    }
    // A coordinator that refuses this directory may do so until an operator
    // acts. Meanwhile islands can pull the versions that are here.
    wait = std::min(wait * 2, absl::IsFailedPrecondition(response.status())
                                  ? kRefusedWaitMax
                                  : absl::Seconds(1));
  }
  return false;
}

void ParameterServer::NoteFeatures(uint64_t features) {
  if (std::exchange(coordinator_features_, features) == features) return;
  const uint64_t missing = ProgramFeatures() & ~PeerFeatures(features);
  if (missing == 0) return;
  LOG(INFO) << "the coordinator is an older program; it lacks: "
            << DescribeFeatures(missing);
}

bool ParameterServer::HoldsNothing() {
  MutexLock lock(&mutex_);
  return entries_.empty();
}

absl::Status ParameterServer::TakeAnswer(
    const v1::RegisterServerResponse& response) {
  RETURN_IF_ERROR(fence_->Take(response));
  directory_->NoteLog(response.log(), response.coordinator_epoch());
  const absl::Status kept = directory_->PersistLog();
  // Nothing was decided by it yet; whatever is deleted for good tries again.
  if (!kept.ok()) {
    LOG(WARNING) << "cannot keep what was seen of the coordinator's log: "
                 << kept.ToString();
  }
  return absl::OkStatus();
}

void ParameterServer::End(const absl::Status& status) {
  absl::Status end = Annotate(status, "this server must end");
  if (absl::IsAborted(status) || IsOtherDirectory(status)) {
    end = absl::AbortedError(absl::StrCat(
        end.message(), "; another process serves as ", options_.server_id,
        HoldsNothing()
            ? ", or this data directory, which has no run, is not its own: "
              "give its own --data-dir, or another --server-id"
            : ", or this data directory is an old copy: give another "
              "--server-id",
        "; if the server's own directory is lost, `atoll server replace ",
        options_.server_id, "` accepts this one"));
  }
  LOG(ERROR) << end.message();
  MutexLock lock(&mutex_);
  if (end_.ok()) end_ = end;
  changed_.SignalAll();
}

absl::Status ParameterServer::WaitForEnd(absl::Duration timeout) {
  MutexLock lock(&mutex_);
  const absl::Time deadline = absl::Now() + timeout;
  while (end_.ok() && !stopping_) {
    if (changed_.WaitWithDeadline(&mutex_, deadline)) break;
  }
  return end_;
}

void ParameterServer::FollowPlan(std::stop_token stop) {
  fence_.emplace(directory_->log_seen().cluster_id(),
                 directory_->coordinator_epoch());
  if (!Register(stop)) return;
  absl::Duration wait = kWaitMin;
  coordinator::PlanPosition position;
  while (!stop.stop_requested()) {
    const absl::StatusOr<v1::ServerPlan> plan =
        environment_.coordinator.WaitForPlan(position, absl::Milliseconds(500),
                                             stop);
    if (plan.ok()) {
      position = coordinator::ToPosition(*plan);
      wait = kWaitMin;
      TakePlan(*plan);
    } else if (absl::IsAborted(plan.status())) {
      End(plan.status());
      return;
    } else if (!stop.stop_requested() && TakeStreamLost(plan.status())) {
      {
        MutexLock lock(&mutex_);
        registered_ = false;
        if (!stopping_) changed_.WaitWithTimeout(&mutex_, wait);
      }
      wait = std::min(wait * 2, kRefusedWaitMax);
      if (!Register(stop)) return;
    }
    std::optional<v1::ServerPlan> unfinished;
    Shards shards;
    {
      MutexLock lock(&mutex_);
      std::swap(unfinished, unfinished_plan_);
      for (auto& [run_id, entry] : entries_) {
        if (entry.shard != nullptr) shards.push_back(entry.shard);
      }
    }
    bool no_room = false;
    for (const auto& shard : shards) no_room |= shard->TakeNoRoom();
    for (const auto& shard : shards) {
      if (no_room) shard->GiveUpKept();
      shard->Tick();
    }
    ContinueRestores();
    FinishDeletions();
    if (unfinished.has_value() && absl::IsDeadlineExceeded(plan.status())) {
      ApplyPlan(*unfinished);
    } else if (unfinished.has_value()) {
      MutexLock lock(&mutex_);
      unfinished_plan_ = std::move(unfinished);
    }
  }
}

bool ParameterServer::TakeStreamLost(const absl::Status& status) {
  if (absl::IsDeadlineExceeded(status)) {
    if (!access_.TakeOverdue()) return false;
    LOG(WARNING) << "the coordinator answers, but its newest plan has not come "
                    "for a lease: asking for it again";
    return true;
  }
  // Not registered, or the stream ended: the coordinator has restarted.
  MutexLock lock(&mutex_);
  plan_is_current_ = false;
  return true;
}

void ParameterServer::TakePlan(const v1::ServerPlan& plan) {
  const absl::Status taken = fence_->Take(plan);
  {
    MutexLock lock(&mutex_);
    plan_is_current_ = taken.ok();
  }
  if (!taken.ok()) {
    if (logged_plan_ != taken.message()) {
      LOG(ERROR) << "plan " << plan.revision()
                 << " is not taken: " << taken.message();
      logged_plan_ = std::string(taken.message());
    }
    return;
  }
  logged_plan_.clear();
  // Noted before anything is done with the plan.
  directory_->NoteLog(plan.log(), plan.coordinator_epoch());
  ApplyPlan(plan);
}

void ParameterServer::ApplyPlan(const v1::ServerPlan& plan) {
  access_.TakePlan(plan);
  push_watchdog_.CheckAllowed();
  pull_watchdog_.CheckAllowed();
  BeginDeletions(plan);
  FinishDeletions();
  bool complete = true;
  for (const v1::ServerRunPlan& run : plan.runs()) {
    complete &= ApplyRunPlan(run);
  }
  ContinueRestores();
  for (const auto& shard : ShardsWithout(plan)) shard->OnUnplanned();
  MutexLock lock(&mutex_);
  plan_revision_ = plan.revision();
  unfinished_plan_.reset();
  if (!complete) unfinished_plan_ = plan;
  ++change_count_;
  changed_.SignalAll();
}

ParameterServer::Shards ParameterServer::ShardsWithout(
    const v1::ServerPlan& plan) {
  std::set<std::string> planned;
  for (const v1::ServerRunPlan& run : plan.runs()) planned.insert(run.run_id());
  Shards shards;
  MutexLock lock(&mutex_);
  for (const auto& [run_id, entry] : entries_) {
    if (entry.shard != nullptr && planned.count(run_id) == 0) {
      shards.push_back(entry.shard);
    }
  }
  return shards;
}

bool ParameterServer::ApplyRunPlan(const v1::ServerRunPlan& plan) {
  if (BeginRestore(plan)) return false;
  {
    MutexLock lock(&mutex_);
    const auto it = entries_.find(plan.run_id());
    if (it != entries_.end() && it->second.shard == nullptr) {
      Entry& entry = it->second;
      if (entry.is_deleted) return false;  // Its directory goes first.
      entry.run_epoch = std::max(entry.run_epoch, plan.run_epoch());
      entry.plan_fault = FindOtherRun(entry.run_uid, plan.run_uid());
      // A run's directory that cannot be read does not tell it.
      entry.shard_number = plan.shard();
      return true;
    }
  }
  std::shared_ptr<Shard> shard = FindShard(plan.run_id());
  if (shard == nullptr) {
    const absl::Status placed = PlaceRun(plan);
    if (!placed.ok()) {
      LOG(WARNING) << "run " << plan.run_id()
                   << " is in the plan but cannot be placed here: "
                   << placed.ToString();
      return false;
    }
    if (BeginRestore(plan)) return false;
    shard = FindShard(plan.run_id());
    if (shard == nullptr) return true;
  }
  shard->OnPlan(plan);
  return true;
}

absl::Status ParameterServer::PlaceRun(const v1::ServerRunPlan& plan) {
  // The plan only places the run; its spec is fetched once.
  ASSIGN_OR_RETURN(v1::Run run, environment_.get_run(plan.run_id()));
  RETURN_IF_ERROR(CheckSameRun(plan.run_uid(), run.run_uid()));
  // The run continues from the mirror, and this shard has never been at the
  // cut: it is of the epoch before, and goes there at once.
  if (plan.restored().mirror_run_epoch() > 0 &&
      plan.acknowledged_commit_seq() < plan.restored().commit_seq()) {
    run.set_run_epoch(plan.run_epoch() - 1);
  }
  RETURN_IF_ERROR(directory_->PersistLog());
  return CreateShard(plan, run);
}

v1::ShardReport ParameterServer::FaultReport(const std::string& run_id,
                                             const Entry& entry) {
  v1::ShardReport report;
  report.set_run_id(run_id);
  report.set_run_uid(entry.run_uid);
  report.set_run_epoch(entry.run_epoch);
  report.set_shard(entry.shard_number);
  const std::optional<v1::Fault>& fault =
      entry.plan_fault.has_value() ? entry.plan_fault : entry.fault;
  if (fault.has_value()) {
    report.set_fault(ToText(*fault));
    *report.mutable_fault_detail() = *fault;
  }
  return report;
}

absl::Status ParameterServer::ReportOnce() {
  v1::ReportShardsRequest request;
  const v1::LogPosition seen = directory_->log_seen();
  if (!seen.cluster_id().empty()) *request.mutable_log_seen() = seen;
  if (environment_.health) *request.mutable_health() = environment_.health();
  Shards shards;
  bool has_plan;
  bool takes_changes;
  {
    MutexLock lock(&mutex_);
    has_plan = plan_revision_ > 0;
    takes_changes =
        !std::exchange(has_to_report_whole_, false) &&
        (coordinator_features_.value_or(0) & kReportsOfChanges) != 0;
    request.set_server_id(options_.server_id);
    request.set_incarnation(incarnation());
    request.set_report_seq(++report_seq_);
    request.set_plan_revision(plan_revision_);
    for (const auto& [run_id, entry] : entries_) {
      if (entry.shard != nullptr) {
        shards.push_back(entry.shard);
      } else {
        *request.add_shards() = FaultReport(run_id, entry);
      }
    }
  }
  for (const auto& shard : shards) {
    // Only a plan tells which run of this run_id it is. Until then the report
    // could pass for that of a run that was created again.
    if (!has_plan && !IsKnownRun(shard->run_uid())) continue;
    v1::ShardReport report =
        shard->Report(request.report_seq(), takes_changes);
    // A coordinator that has become an older program does not read the latter.
    (report.base_report_seq() == 0 ? *request.add_shards()
                                   : *request.add_changes()) =
        std::move(report);
  }
  const absl::StatusOr<v1::ReportShardsResponse> answered =
      environment_.coordinator.ReportShards(std::move(request));
  if (!answered.ok()) {
    for (const auto& shard : shards) shard->ReportWhole();
    return answered.status();
  }
  const v1::ReportShardsResponse& answer = *answered;
  const std::set<std::string> wholes(answer.whole_report_run_ids().begin(),
                                     answer.whole_report_run_ids().end());
  for (const auto& shard : shards) {
    if (wholes.contains(shard->store().run().run_id())) shard->ReportWhole();
  }
  const absl::Duration lease = FromProto(answer.lease_duration());
  MutexLock lock(&mutex_);
  if (lease > absl::ZeroDuration()) lease_ = lease;
  NoteFeatures(answer.coordinator_features());
  if (!wholes.empty()) ++change_count_;  // They are sent at once.
  // While the plan is not current, an answer that names a newer one still tells
  // that the coordinator is there.
  if (plan_is_current_ || answer.plan_revision() > plan_revision_) {
    access_.NoteAnswer(answer.plan_revision(), lease_);
  }
  return absl::OkStatus();
}

void ParameterServer::SendReports(std::stop_token stop) {
  int64_t reported = -1;
  int64_t shown = -1;  // change_count_ at the last ShowHealth.
  absl::Time last = absl::InfinitePast();
  std::string logged;
  while (!stop.stop_requested()) {
    int64_t seen;
    bool is_due;
    {
      MutexLock lock(&mutex_);
      const absl::Duration interval = std::min(lease_ / 3, kReportIntervalMax);
      const Clock& clock = SystemClock();
      const auto due = [&] {
        mutex_.AssertHeld();
        return registered_ &&
               (change_count_ != reported || clock.Now() - last >= interval);
      };
      while (!stopping_ && change_count_ == shown && !due()) {
        changed_.WaitWithTimeout(&mutex_, registered_
                                              ? last + interval - clock.Now()
                                              : absl::Milliseconds(200));
      }
      if (stopping_) return;
      seen = change_count_;
      is_due = due();
    }
    ShowHealth();
    shown = seen;
    if (!is_due) continue;
    last = SystemClock().Now();
    const absl::Status status = ReportOnce();
    if (status.ok()) {
      reported = seen;
      logged.clear();
      continue;
    }
    if (absl::IsAborted(status)) return End(status);
    if (status.ToString() != logged) {
      logged = status.ToString();
      LOG(WARNING) << "cannot report: " << logged;
    }
    // After FAILED_PRECONDITION and other errors FollowPlan registers again.
    MutexLock lock(&mutex_);
    if (!stopping_) {
      changed_.WaitWithTimeout(
          &mutex_, rpc::DelayAsked(absl::Milliseconds(100), status));
    }
  }
}

void ParameterServer::ShowReady(const absl::Status& ready) {
  environment_.metrics.SetReady(ready);
  if (rpc_ != nullptr) rpc_->SetServing(ready.ok());
}

void ParameterServer::ShowHealth() {
  std::map<std::string, std::shared_ptr<const Shard>> shards;
  {
    MutexLock lock(&mutex_);
    if (draining_ || stopping_) return;
    for (const auto& [run_id, entry] : entries_) {
      const bool is_in_order = entry.is_restoring && !entry.fault.has_value();
      if (!entry.is_deleted && !is_in_order) {
        shards[run_id] = entry.shard;
      }
    }
  }
  std::map<std::string, bool> serves = {{kShardsHealth, true}};
  ServerMetrics::ShardCounts counts = {};
  for (const auto& [run_id, shard] : shards) {
    const bool does = shard != nullptr && !shard->has_stopped();
    const ShardState state = !does                 ? ShardState::kStopped
                             : shard->is_blocked() ? ShardState::kBlocked
                                                   : ShardState::kServing;
    ++counts[static_cast<size_t>(state)];
    serves[absl::StrCat(kShardsHealth, "/", run_id)] = does;
    serves[kShardsHealth] &= does;
  }
  metrics_.SetShards(counts);
  for (const auto& [name, serving] : serves) {
    const auto shown = shown_health_.find(name);
    if (shown != shown_health_.end() && shown->second == serving) continue;
    rpc_->SetServing(name, serving);
  }
  for (const auto& [name, serving] : shown_health_) {
    // The run is deleted: nothing is wrong with it.
    if (serves.count(name) == 0) rpc_->SetServing(name, true);
  }
  shown_health_ = std::move(serves);
}

absl::Status ParameterServer::Drain(absl::Time deadline) {
  {
    MutexLock lock(&mutex_);
    draining_ = true;
  }
  ShowReady(Stopping());
  push_watchdog_.Close(Stopping());
  pull_watchdog_.Close(Stopping());
  TestPoint("a drain waits for pushes");
  if (!push_watchdog_.WaitUntilEmpty(deadline) ||
      !pull_watchdog_.WaitUntilEmpty(deadline)) {
    LOG(WARNING) << "some streams have not ended in time and are cut";
  }
  // From here on the server acknowledges no contribution.
  finish_queue_.Stop();
  absl::Status flushed = FlushShards();
  Stop();
  // Again, for what merges and commits wrote meanwhile.
  flushed.Update(FlushShards());
  return flushed;
}

absl::Status ParameterServer::FlushShards() {
  Shards shards;
  {
    MutexLock lock(&mutex_);
    for (const auto& [run_id, entry] : entries_) {
      if (entry.shard != nullptr) shards.push_back(entry.shard);
    }
  }
  absl::Status flushed;
  for (const auto& shard : shards) {
    const absl::Status status =
        Annotate(shard->store().Flush(),
                 absl::StrCat("run ", shard->store().run().run_id(),
                              ": what was acknowledged is not durable yet"));
    if (!status.ok()) LOG(ERROR) << status.ToString();
    flushed.Update(status);
  }
  return flushed;
}

void ParameterServer::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  ShowReady(Stopping());
  if (rpc_ != nullptr) rpc_->Stop();
  plan_thread_.request_stop();
  report_thread_.request_stop();
  if (plan_thread_.joinable()) plan_thread_.join();
  if (report_thread_.joinable()) report_thread_.join();
  finish_queue_.Stop();
  merge_queue_.Stop();
  disk_queue_.Stop();
  low_queue_.Stop();
  budget_queue_.Stop();
}

}  // namespace atl::server
