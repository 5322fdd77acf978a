#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/failpoint/failpoint.h"
#include "base/layout/digest.h"
#include "base/layout/exchange.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "base/time/clock.h"
#include "island_command.pb.h"
#include "server/client/idle_watch.h"
#include "worker/island/island_part.h"

namespace atl::worker {
namespace {

// Longest time between two exchanges of transfer states.
constexpr absl::Duration kTick = absl::Milliseconds(50);

// One process's transfer, on a thread of its own.
class RunningTransfer {
 public:
  RunningTransfer(
      server::CallBounds bounds,
      absl::FunctionRef<server::TransferOutcome(const server::CallBounds&)>
          call)
      : outer_stop_(bounds.stop, [this] { stop_.request_stop(); }) {
    bounds.stop = stop_.get_token();
    bounds.on_progress = [this](int64_t bytes) { stored_bytes_ = bytes; };
    thread_ = std::thread([this, bounds, call] {
      server::TransferOutcome outcome = call(bounds);
      MutexLock lock(&mutex_);
      outcome_ = std::move(outcome);
      ended_.SignalAll();
    });
  }
  ~RunningTransfer() {
    Stop();
    thread_.join();
  }

  void Stop() { stop_.request_stop(); }

  // Waits for the end, at most a tick; returns the state.
  wire::TransferState Look() {
    wire::TransferState state;
    state.set_stored_bytes(stored_bytes_);
    MutexLock lock(&mutex_);
    ended_.AwaitWithTimeout(&mutex_, kTick,
                            [this] { return outcome_.has_value(); });
    if (!outcome_.has_value()) return state;
    *state.mutable_end() = ToWire(outcome_->status);
    int64_t bytes = 0;
    for (const auto& shard : outcome_->shards) bytes += shard.payload_bytes;
    state.set_payload_bytes(bytes);
    return state;
  }

  // Requires: the transfer has ended.
  server::TransferOutcome TakeOutcome() {
    MutexLock lock(&mutex_);
    return *std::move(outcome_);
  }

 private:
  std::stop_source stop_;
  const std::stop_callback<std::function<void()>> outer_stop_;
  std::atomic<int64_t> stored_bytes_{0};
  Mutex mutex_;
  CondVar ended_;
  std::optional<server::TransferOutcome> outcome_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

// As IslandGroup::Agree: the first error that is not CANCELLED, else the first.
absl::Status FirstError(const std::vector<wire::TransferState>& states,
                        int own_index, const absl::Status& own) {
  int first = -1;
  const auto cancelled = [&](int i) {
    return states[i].end().code() ==
           static_cast<int32_t>(absl::StatusCode::kCancelled);
  };
  for (int i = 0; i < static_cast<int>(states.size()); ++i) {
    if (states[i].end().code() == 0) continue;
    if (first < 0 || (cancelled(first) && !cancelled(i))) first = i;
  }
  if (first < 0) return absl::OkStatus();
  if (first == own_index) return own;
  wire::Status end = states[first].end();
  end.set_message(
      absl::StrCat("process ", first, " of the island: ", end.message()));
  return FromWire(end);
}

}  // namespace

absl::Status IslandPart::Together(Lane lane, bool is_push,
                                  server::CallBounds bounds, Call call,
                                  server::TransferOutcome& outcome,
                                  PartResult& result) {
  const absl::Time begin = absl::Now();
  const absl::Cleanup measure = [&] { result.moved_in += absl::Now() - begin; };
  if (group_ == nullptr) {
    outcome = call(bounds);
    for (const auto& shard : outcome.shards) {
      result.moved_bytes += shard.payload_bytes;
    }
    return outcome.status;
  }
  // A push ends when all processes have pushed: one may be idle alone.
  server::IdleWatch idle(bounds.idle_max, SystemClock().Now());
  if (is_push) bounds.idle_max = absl::InfiniteDuration();
  bool was_idle = false;
  int64_t told_route_count = -1;
  RunningTransfer running(bounds, call);
  std::vector<wire::TransferState> states(group_->process_count());
  for (bool all_done = false; !all_done;) {
    wire::TransferState own = running.Look();
    if (group_->leads()) {
      MutexLock lock(&mutex_);
      if (route_count_ != told_route_count) {
        told_route_count = route_count_;
        own.mutable_routes()->set_placement_epoch(routes_.placement_epoch);
        own.mutable_routes()->mutable_shards()->Add(routes_.shards.begin(),
                                                    routes_.shards.end());
      }
    }
    const absl::StatusOr<std::vector<std::string>> told =
        group_->Exchange(lane, own.SerializeAsString());
    RETURN_IF_ERROR(told.status());
    all_done = true;
    bool failed = false;
    int64_t stored_bytes = 0;
    for (size_t i = 0; i < told->size(); ++i) {
      states[i].ParseFromString((*told)[i]);
      all_done = all_done && states[i].has_end();
      failed = failed || states[i].end().code() != 0;
      stored_bytes += states[i].stored_bytes();
    }
    if (!group_->leads() && states[0].has_routes()) {
      SetRoutes(server::ToRoutes(states[0].routes()));
    }
    if (is_push && group_->leads() &&
        idle.IsIdle(stored_bytes, SystemClock().Now())) {
      was_idle = true;
    }
    if (failed || was_idle) running.Stop();
  }
  outcome = running.TakeOutcome();
  for (const auto& state : states) result.moved_bytes += state.payload_bytes();
  const absl::Status status =
      FirstError(states, group_->process_index(), outcome.status);
  if (was_idle && absl::IsCancelled(status)) {
    return absl::DeadlineExceededError(
        "no process of the island has pushed any bytes for too long");
  }
  return status;
}

// Checks that the parts that processes pulled of a shard add up to the shard's
// digest, and all shards to the committed digest.
absl::Status IslandPart::CheckDigests(
    Lane lane, const server::TransferOutcome& outcome,
    const std::optional<Digest128>& expected) const {
  wire::PullDigests own;
  for (const server::ShardDigest& digest : outcome.digests) {
    wire::ShardDigest* const shard = own.add_shards();
    shard->set_shard(digest.shard);
    *shard->mutable_came() = digest.came.ToProto();
    *shard->mutable_all() = digest.all.ToProto();
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> told,
                   group_->Exchange(lane, own.SerializeAsString()));
  Digest128 sum;
  std::map<int32_t, Digest128> came, all;
  for (const std::string& text : told) {
    wire::PullDigests digests;
    digests.ParseFromString(text);
    for (const wire::ShardDigest& shard : digests.shards()) {
      sum += Digest128::FromProto(shard.came());
      came[shard.shard()] += Digest128::FromProto(shard.came());
      all[shard.shard()] = Digest128::FromProto(shard.all());
    }
  }
  for (const auto& [shard, digest] : all) {
    if (came[shard] != digest) {
      return absl::DataLossError(absl::StrCat(
          "the values that the island's processes pulled of shard ", shard,
          " do not match the shard's digest"));
    }
  }
  if (expected.has_value() && sum != *expected) {
    return absl::DataLossError(absl::StrCat(
        "the values that the island's processes pulled have digest ",
        sum.ToHex(), ", but ", expected->ToHex(), " was committed"));
  }
  return absl::OkStatus();
}

absl::Status IslandPart::PullTogether(Lane lane,
                                      const server::CallBounds& bounds,
                                      const std::optional<Digest128>& expected,
                                      Call call, PartResult& result) {
  server::TransferOutcome outcome;
  RETURN_IF_ERROR(
      Together(lane, /*is_push=*/false, bounds, call, outcome, result));
  return group_ == nullptr ? absl::OkStatus()
                           : CheckDigests(lane, outcome, expected);
}

absl::Status IslandPart::Pull(const Action& action, Lane lane,
                              const server::CallBounds& bounds,
                              PartResult& result) {
  // The plan has theta's digest; a replica's digest comes from its shards.
  const bool is_replica = HasReplica(spec_);
  const std::optional<Digest128> expected =
      is_replica ? std::nullopt
                 : std::make_optional(Digest128::FromProto(action.digest));
  const auto pull = [&](server::CallBounds call_bounds) {
    call_bounds.run_epoch = action.run_epoch;
    return is_replica
               ? parameters_->PullReplica(
                     action.fragment, action.version, action.from_version,
                     state_->AnchorBuffer(action.fragment), call_bounds)
               : parameters_->Pull(action.fragment, action.version, expected,
                                   state_->FragmentBuffer(action.fragment),
                                   call_bounds);
  };
  RETURN_IF_ERROR(PullTogether(lane, bounds, expected, pull, result));
  state_->SetAnchor(action.fragment);
  failpoint::Hit("island.pulled.after");
  return absl::OkStatus();
}

absl::Status IslandPart::Push(const Action& action, Lane lane,
                              const server::CallBounds& bounds,
                              PartResult& result) {
  const Outbox::Item item = outbox_.Find(action.fragment, action.seq);
  // Processes train at different paces, so it may be gone in some of them.
  RETURN_IF_ERROR(Agree(
      lane, item == nullptr
                ? absl::AbortedError("the contribution is already decided")
                : absl::OkStatus()));
  failpoint::Hit("island.push.before");
  const bool is_new = outbox_.TakeNew(item);
  const auto push = [&](server::CallBounds call_bounds) {
    call_bounds.is_new = is_new;
    return parameters_->Push(item->info, item->bytes, call_bounds);
  };
  server::TransferOutcome outcome;
  return Together(lane, /*is_push=*/true, bounds, push, outcome, result);
}

// Pulls theta in a run with a replica; its anchors are not theta.
absl::Status IslandPart::PullForEvaluation(const Action& action,
                                           const server::CallBounds& bounds,
                                           PartResult& result) {
  if (!HasReplica(spec_)) {
    state_->SetLocalToAnchors();
    return absl::OkStatus();
  }
  for (const v1::FragmentVersion& at : action.cut) {
    const Digest128 expected = Digest128::FromProto(at.digest());
    const auto pull = [&](server::CallBounds call_bounds) {
      call_bounds.run_epoch = action.run_epoch;
      return parameters_->Pull(at.fragment(), at.version(), expected,
                               state_->FragmentBuffer(at.fragment()),
                               call_bounds);
    };
    RETURN_IF_ERROR(
        Annotate(PullTogether(Lane::kTraining, bounds, expected, pull, result),
                 "cannot pull the parameters to evaluate"));
    state_->SetLocal(at.fragment());
  }
  return absl::OkStatus();
}

}  // namespace atl::worker
