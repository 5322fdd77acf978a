#include "tests/benchmarks/control/island_fleet.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "atoll/v1/island_service.grpc.pb.h"
#include "base/features/features.h"
#include "base/rpc/call.h"
#include "base/status/annotate.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"

namespace atl::benchmarks {
namespace {

using Stub = v1::IslandService::Stub;

// As in worker/island/control_link.cc and coordinator/client.
constexpr absl::Duration kHeartbeatEvery = absl::Seconds(2);
constexpr absl::Duration kAwayWait = absl::Milliseconds(500);
constexpr absl::Duration kReportEvery = absl::Seconds(1);
constexpr absl::Duration kIdleEvery = absl::Seconds(10);
constexpr absl::Duration kHeartbeatTimeout = absl::Seconds(5);
constexpr absl::Duration kTimeout = absl::Seconds(10);
constexpr absl::Duration kWatchWait = absl::Milliseconds(300);

constexpr int kJoinsMax = 64;
// Plan streams that are opened at once.
constexpr int kOpensMax = 512;

// The coordinator has no place for a further plan stream.
bool IsFull(const absl::Status& status) {
  return HasReason(status, "TOO_MANY_STREAMS");
}

v1::ReportProgressRequest MakeProgress() {
  v1::ReportProgressRequest progress;
  progress.set_step(1);
  progress.set_token_count(1);
  progress.set_tokens_per_second(1);
  progress.set_loss(3);
  progress.set_loss_step_count(1);
  return progress;
}

// An attempt that is made again gets seqs of its own.
constexpr int64_t kAttemptsMax = 16;

}  // namespace

IslandFleet::IslandFleet(CallLoop& loop, ControlPlane& control,
                         const FleetOptions& options)
    : loop_(loop), control_(control), options_(options) {
  islands_.resize(options.island_count);
  for (int i = 0; i < options.island_count; ++i) {
    islands_[i].id = absl::StrCat("island-", i);
  }
}

template <typename Request>
Request IslandFleet::For(int island) const {
  Request request;
  request.set_run_id(RunId(island));
  request.set_island_id(islands_[island].id);
  request.set_island_epoch(islands_[island].epoch);
  return request;
}

absl::Duration IslandFleet::Draw(absl::Duration interval) {
  return interval * std::uniform_real_distribution<double>(0.9, 1.1)(random_);
}

absl::Duration IslandFleet::Jitter(absl::Duration mean) {
  return mean * std::uniform_real_distribution<double>(0.5, 1.5)(random_);
}

absl::Status IslandFleet::Join(absl::Duration timeout) {
  const absl::Time now = absl::Now();
  for (int i = 0; i < options_.island_count; ++i) {
    const int first = i - i % options_.islands_per_connection;
    if (first < i) {
      islands_[i].channel = islands_[first].channel;
    } else {
      ASSIGN_OR_RETURN(
          islands_[i].channel,
          control_.Dial(absl::StrCat("island:", islands_[i].id)));
    }
  }
  SetIdle(true);
  BeginJoins();
  const bool all = loop_.Run(
      [this] {
        return ready_count_ == options_.island_count ||
               absl::IsInvalidArgument(last_error_) ||
               (absl::IsResourceExhausted(last_error_) &&
                !IsAway(last_error_)) ||
               absl::IsPermissionDenied(last_error_);
      },
      now + timeout);
  if (ready_count_ == options_.island_count) return absl::OkStatus();
  return Annotate(all || !last_error_.ok()
                      ? last_error_
                      : absl::DeadlineExceededError("no error, too slow"),
                  absl::StrCat("only ", ready_count_, " of ",
                               options_.island_count, " islands joined"));
}

absl::Status IslandFleet::Watch(absl::Duration timeout) {
  watches_ = true;
  ForgetPlans();
  last_error_ = absl::OkStatus();
  const absl::Time deadline = absl::Now() + timeout;
  // In parts: the coordinator refuses calls when too many wait.
  for (int end = 0; end < options_.island_count && absl::Now() < deadline;) {
    const int begin = end;
    end = std::min(options_.island_count, begin + kOpensMax);
    for (int i = begin; i < end; ++i) OpenStream(i);
    const bool all = loop_.Run(
        [this, end] { return planned_count_ >= end || IsFull(last_error_); },
        deadline);
    if (!all || IsFull(last_error_)) break;
  }
  if (planned_count_ == options_.island_count) return absl::OkStatus();
  return Annotate(last_error_.ok()
                      ? absl::DeadlineExceededError("no error, too slow")
                      : last_error_,
                  absl::StrCat("only ", planned_count_, " of ",
                               options_.island_count, " islands have a plan"));
}

void IslandFleet::SetIdle(bool idle) {
  is_idle_ = idle;
  // Ends the rhythm of before: an idle island's next call may be far away.
  ++rhythm_;
  for (int i = 0; i < options_.island_count; ++i) {
    const double part = static_cast<double>(i) / options_.island_count;
    HeartbeatAfter(i, part * (idle ? kIdleEvery : kHeartbeatEvery));
    ReportAfter(i, part * kReportEvery);
  }
}

void IslandFleet::StopWatching() {
  watches_ = false;
  for (Island& island : islands_) {
    if (island.stream != nullptr) island.stream->Cancel();
    island.stream = nullptr;
  }
}

v1::ContributionInfo IslandFleet::MakeContribution(
    int index, const v1::OpenRound& round) const {
  const Island& island = islands_[index];
  v1::ContributionInfo info;
  v1::ContributionKey& key = *info.mutable_key();
  key.set_run_epoch(island.run_epoch);
  key.set_fragment(round.fragment());
  key.set_slot(island.slot);
  key.set_seq(island.first_seq + round.version() * kAttemptsMax +
              std::min(round.attempt(), kAttemptsMax - 1));
  info.set_anchor_version(round.version());
  info.mutable_digest()->set_high(key.seq());
  info.mutable_digest()->set_low(key.slot());
  info.set_codec(v1::CODEC_F32);
  info.set_step_count(kStepCount);
  info.set_token_count(kStepCount * kStepWindowCount);
  info.set_data_shard(island.data_shard);
  info.set_data_begin(round.version() * kStepCount * kStepWindowCount);
  info.set_data_end((round.version() + 1) * kStepCount * kStepWindowCount);
  return info;
}

void IslandFleet::ForgetPlans() {
  planned_count_ = 0;
  for (Island& island : islands_) island.has_plan = false;
}

void IslandFleet::Rejoin(int index) {
  islands_[index].has_left = false;
  JoinNow(index);
}

void IslandFleet::Leave(int index) {
  Island& island = islands_[index];
  if (!island.is_member) return;
  if (island.stream != nullptr) island.stream->Cancel();
  island.stream = nullptr;
  island.is_member = false;
  island.has_left = true;
  loop_.Call<Stub, v1::LeaveRequest, v1::LeaveResponse>(
      island.channel, &Stub::AsyncLeave, For<v1::LeaveRequest>(index), kTimeout,
      island.session,
      [this](const absl::Status& status, v1::LeaveResponse&, absl::Duration) {
        ++(status.ok() ? counts_.answers : counts_.errors);
      });
}

void IslandFleet::BeginJoins() {
  while (begun_count_ < options_.island_count &&
         begun_count_ - ready_count_ < joins_max_) {
    JoinNow(begun_count_++);
  }
}

void IslandFleet::JoinNow(int index) {
  Island& island = islands_[index];
  if (island.is_joining) return;
  island.is_joining = true;
  v1::JoinRequest request;
  request.set_run_id(RunId(index));
  request.set_island_id(island.id);
  v1::IslandCapabilities& capabilities = *request.mutable_capabilities();
  capabilities.add_devices()->set_kind("cpu");
  capabilities.set_thread_count(1);
  capabilities.set_features(ProgramFeatures());
  loop_.Call<Stub, v1::JoinRequest, v1::JoinResponse>(
      island.channel, &Stub::AsyncJoin, request, kTimeout, "",
      [this, index](const absl::Status& status, v1::JoinResponse& joined,
                    absl::Duration) {
        Island& island = islands_[index];
        island.is_joining = false;
        ++counts_.joins;
        if (status.ok()) return TakeJoined(index, joined);
        last_error_ = status;
        ++counts_.errors;
        joins_max_ = std::max(1, joins_max_ / 2);
        const int doublings = std::min(island.join_failures++, 4);
        loop_.At(absl::Now() + Jitter(absl::Milliseconds(100) *
                                      (1 << doublings)),
                 [this, index] {
                   if (!islands_[index].has_left) JoinNow(index);
                 });
      });
}

void IslandFleet::TakeJoined(int index, const v1::JoinResponse& joined) {
  Island& island = islands_[index];
  ++counts_.answers;
  island.join_failures = 0;
  island.is_member = true;
  island.epoch = joined.island_epoch();
  island.session = rpc::ToHex(joined.session_secret());
  island.slot = joined.slot();
  island.run_epoch = joined.plan().run_epoch();
  island.data_shard = joined.data_shard();
  TakeFeatures(index, joined.coordinator_features());
  if (island.first_seq == 0) island.first_seq = joined.next_seq();
  if (island.stream != nullptr) island.stream->Cancel();
  island.stream = nullptr;
  if (watches_) OpenStream(index);
  ReportReady(index, joined.plan().commit_seq());
}

void IslandFleet::ReportReady(int index, int64_t commit_seq) {
  Island& island = islands_[index];
  auto request = For<v1::ReportReadyRequest>(index);
  request.set_commit_seq(commit_seq);
  loop_.Call<Stub, v1::ReportReadyRequest, v1::ReportReadyResponse>(
      island.channel, &Stub::AsyncReportReady, request, kTimeout,
      island.session,
      [this, index, commit_seq, epoch = island.epoch](
          const absl::Status& status, v1::ReportReadyResponse&,
          absl::Duration) {
        Island& island = islands_[index];
        TakeStatus(index, epoch, status);
        if (status.ok()) {
          if (!island.is_ready) {
            ++ready_count_;
            joins_max_ = std::min(kJoinsMax, joins_max_ + 1);
            BeginJoins();
          }
          island.is_ready = true;
          return;
        }
        // The run has no version 0 yet, or the coordinator is away.
        loop_.At(absl::Now() + Jitter(kAwayWait),
                 [this, index, commit_seq, epoch] {
                   const Island& island = islands_[index];
                   if (island.is_member && island.epoch == epoch) {
                     ReportReady(index, commit_seq);
                   }
                 });
      });
}

void IslandFleet::TakeStatus(int index, int64_t epoch,
                             const absl::Status& status) {
  ++(status.ok() ? counts_.answers : counts_.errors);
  if (status.ok()) return;
  last_error_ = status;
  Island& island = islands_[index];
  // A run without version 0 also refuses ReportReady with this code.
  if (island.epoch != epoch || !island.is_member || !island.is_ready) return;
  if (absl::IsFailedPrecondition(status) || absl::IsAborted(status)) {
    island.is_member = false;
    JoinNow(index);
  }
}

void IslandFleet::HeartbeatAfter(int index, absl::Duration wait) {
  loop_.At(absl::Now() + wait, [this, index, rhythm = rhythm_] {
    if (rhythm == rhythm_) Heartbeat(index);
  });
}

void IslandFleet::ReportAfter(int index, absl::Duration wait) {
  loop_.At(absl::Now() + wait, [this, index, rhythm = rhythm_] {
    if (rhythm == rhythm_) ReportProgress(index);
  });
}

void IslandFleet::TakeFeatures(int index, uint64_t coordinator_features) {
  islands_[index].reports_in_heartbeats =
      (coordinator_features & kReportingHeartbeat) != 0;
}

void IslandFleet::Heartbeat(int index) {
  Island& island = islands_[index];
  if (!island.is_member) return HeartbeatAfter(index, kAwayWait);
  auto request = For<v1::HeartbeatRequest>(index);
  if (island.reports_in_heartbeats) {
    request.set_plan_revision(island.plan_revision);
    request.set_phase(v1::ISLAND_PHASE_TRAIN);
    if (island.is_ready && !is_idle_) {
      *request.mutable_progress() = MakeProgress();
    }
  }
  loop_.Call<Stub, v1::HeartbeatRequest, v1::HeartbeatResponse>(
      island.channel, &Stub::AsyncHeartbeat, request, kHeartbeatTimeout,
      island.session,
      [this, index, epoch = island.epoch, rhythm = rhythm_,
       has_progress = request.has_progress()](const absl::Status& status,
                                              v1::HeartbeatResponse& answer,
                                              absl::Duration took) {
        counts_.heartbeat_ms.push_back(absl::ToDoubleMilliseconds(took));
        TakeStatus(index, epoch, status);
        absl::Duration wait = kAwayWait;
        if (status.ok()) {
          TakeFeatures(index, answer.coordinator_features());
          counts_.progress += has_progress ? 1 : 0;
          const absl::Duration next =
              absl::Seconds(answer.next_interval().seconds()) +
              absl::Nanoseconds(answer.next_interval().nanos());
          wait = is_idle_ ? kIdleEvery
                 : next > absl::ZeroDuration() ? next
                                               : kHeartbeatEvery;
        }
        if (rhythm == rhythm_) HeartbeatAfter(index, Draw(wait) / load_);
      });
}

void IslandFleet::ReportProgress(int index) {
  Island& island = islands_[index];
  if (!island.is_member || !island.is_ready || is_idle_ ||
      island.reports_in_heartbeats) {
    return ReportAfter(index, kReportEvery);
  }
  auto request = For<v1::ReportProgressRequest>(index);
  request.MergeFrom(MakeProgress());
  loop_.Call<Stub, v1::ReportProgressRequest, v1::ReportProgressResponse>(
      island.channel, &Stub::AsyncReportProgress, request, kTimeout,
      island.session,
      [this, index, epoch = island.epoch, rhythm = rhythm_](
          const absl::Status& status, v1::ReportProgressResponse&,
          absl::Duration) {
        TakeStatus(index, epoch, status);
        counts_.progress += status.ok() ? 1 : 0;
        if (rhythm == rhythm_) ReportAfter(index, kReportEvery / load_);
      });
}

void IslandFleet::OpenStream(int index) {
  Island& island = islands_[index];
  if (!watches_ || !island.is_member || island.stream != nullptr) return;
  island.stream = loop_.Open(
      island.channel, "/atoll.v1.IslandService/WatchPlan",
      For<v1::WatchPlanRequest>(index), island.session,
      {.on_message =
           [this, index](grpc::ByteBuffer& message) {
             TakePlan(index, message);
           },
       .on_end =
           [this, index, epoch = island.epoch](const absl::Status& status) {
             islands_[index].stream = nullptr;
             last_error_ = status;
             if (absl::IsFailedPrecondition(status) ||
                 absl::IsAborted(status)) {
               return TakeStatus(index, epoch, status);
             }
             loop_.At(absl::Now() + Jitter(kWatchWait),
                      [this, index] { OpenStream(index); });
           }});
}

void IslandFleet::TakePlan(int index, grpc::ByteBuffer& message) {
  ++counts_.plans;
  counts_.plan_bytes += static_cast<int64_t>(message.Length());
  Island& island = islands_[index];
  if (!island.has_plan) ++planned_count_;
  island.has_plan = true;
  if (!on_plan_ && !island.reports_in_heartbeats) return;
  v1::WatchPlanResponse response;
  if (!ParseMessage(message, response).ok()) return;
  island.plan_revision = response.plan().revision();
  if (on_plan_) on_plan_(index, response.plan());
}

}  // namespace atl::benchmarks
