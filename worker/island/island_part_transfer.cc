#include <algorithm>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/failpoint/failpoint.h"
#include "base/layout/digest.h"
#include "base/layout/exchange.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "base/time/clock.h"
#include "island_command.pb.h"
#include "worker/island/island_part.h"

// Pushes and pulls, by all processes of an island at once.

namespace atl::worker {
namespace {

// How often processes look at each other's transfers. One that has just ended
// does not wait for it.
constexpr absl::Duration kTick = absl::Milliseconds(50);

// One process's transfer, which goes on beside its lane.
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

  // How far it is, once it has ended or a tick has passed.
  wire::TransferState Look() {
    wire::TransferState state;
    state.set_stored_bytes(stored_bytes_);
    MutexLock lock(&mutex_);
    ended_.AwaitWithTimeout(&mutex_, kTick,
                            [this] { return outcome_.has_value(); });
    if (!outcome_.has_value()) return state;
    state.set_done(true);
    state.set_code(static_cast<int32_t>(outcome_->status.code()));
    state.set_message(std::string(outcome_->status.message()));
    int64_t bytes = 0;
    for (const auto& shard : outcome_->shards) bytes += shard.payload_bytes;
    state.set_payload_bytes(bytes);
    return state;
  }

  // Once it has ended.
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

// The first error that is no consequence of another, as in Agree().
absl::Status FirstError(const std::vector<wire::TransferState>& states,
                        int own_index, const absl::Status& own) {
  int first = -1;
  const auto cancelled = [&](int i) {
    return states[i].code() ==
           static_cast<int32_t>(absl::StatusCode::kCancelled);
  };
  for (int i = 0; i < static_cast<int>(states.size()); ++i) {
    if (states[i].code() == 0) continue;
    if (first < 0 || (cancelled(first) && !cancelled(i))) first = i;
  }
  if (first < 0) return absl::OkStatus();
  if (first == own_index) return own;
  return absl::Status(static_cast<absl::StatusCode>(states[first].code()),
                      absl::StrCat("process ", first, " of the island: ",
                                   states[first].message()));
}

// Ends a push of which no process has moved anything for long.
class IdleWatchOfAll {
 public:
  explicit IdleWatchOfAll(absl::Duration idle_max) : idle_max_(idle_max) {}

  bool IsIdle(const std::vector<wire::TransferState>& states, absl::Time now) {
    int64_t bytes = 0;
    for (const auto& state : states) bytes += state.stored_bytes();
    if (bytes != bytes_) since_ = now;
    bytes_ = bytes;
    return now - since_ > idle_max_;
  }

 private:
  const absl::Duration idle_max_;
  int64_t bytes_ = -1;
  absl::Time since_ = absl::InfiniteFuture();
};

}  // namespace

IslandPart::Transferred IslandPart::Together(const TransferWhat& what,
                                             server::CallBounds bounds,
                                             Call call,
                                             server::TransferOutcome& outcome) {
  Transferred result;
  if (group_ == nullptr) {
    outcome = call(bounds);
    result.status = outcome.status;
    for (const auto& shard : outcome.shards) {
      result.payload_bytes += shard.payload_bytes;
    }
    return result;
  }
  // A push is over when all have pushed: it is not idle while one moves.
  IdleWatchOfAll idle(bounds.idle_max);
  const bool is_push = what.kind == ActionKind::kPush;
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
        group_->Exchange(what.lane, own.SerializeAsString());
    if (!told.ok()) {
      result.status = told.status();
      return result;
    }
    all_done = true;
    bool failed = false;
    for (size_t i = 0; i < told->size(); ++i) {
      states[i].ParseFromString((*told)[i]);
      all_done = all_done && states[i].done();
      failed = failed || states[i].code() != 0;
    }
    if (!group_->leads() && states[0].has_routes()) {
      SetRoutes(server::ToRoutes(states[0].routes()));
    }
    if (is_push && group_->leads() &&
        idle.IsIdle(states, SystemClock().Now())) {
      was_idle = true;
    }
    if (failed || was_idle) running.Stop();
  }
  outcome = running.TakeOutcome();
  for (const auto& state : states)
    result.payload_bytes += state.payload_bytes();
  result.status = FirstError(states, group_->process_index(), outcome.status);
  if (was_idle && absl::IsCancelled(result.status)) {
    result.status = absl::DeadlineExceededError(
        "nothing of the push has moved for long, in any process");
  }
  return result;
}

// What processes got of a shard adds up to what the shard has, and that of all
// shards to what was committed.
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
      return absl::DataLossError(
          absl::StrCat("what the processes of the island got of shard ", shard,
                       " is not what it has"));
    }
  }
  if (expected.has_value() && sum != *expected) {
    return absl::DataLossError(absl::StrCat(
        "what the processes of the island got has digest ", sum.ToHex(),
        ", but ", expected->ToHex(), " was committed"));
  }
  return absl::OkStatus();
}

absl::Status IslandPart::Move(const TransferWhat& what, Call call,
                              const std::optional<Digest128>& expected) {
  server::TransferOutcome outcome;
  const Transferred moved =
      around_(what, [&](const server::CallBounds& bounds) {
        Transferred result = Together(what, bounds, call, outcome);
        if (group_ != nullptr && result.status.ok() &&
            what.kind != ActionKind::kPush) {
          result.status = CheckDigests(what.lane, outcome, expected);
        }
        return result;
      });
  return moved.status;
}

absl::Status IslandPart::Pull(const Action& action, Lane lane) {
  const TransferWhat what = {.kind = ActionKind::kPull,
                             .lane = lane,
                             .fragment = action.fragment,
                             .version = action.version};
  // The plan has the digest of theta; of a view the shards say it themselves.
  const bool is_view = HasReplica(spec_);
  const std::optional<Digest128> expected =
      is_view ? std::nullopt
              : std::make_optional(Digest128::FromProto(action.digest));
  const auto pull = [&](const server::CallBounds& bounds) {
    return is_view ? parameters_->PullReplica(
                         action.fragment, action.version, action.from_version,
                         state_->AnchorBuffer(action.fragment), bounds)
                   : parameters_->Pull(
                         action.fragment, action.version, expected,
                         state_->FragmentBuffer(action.fragment), bounds);
  };
  RETURN_IF_ERROR(Move(what, pull, expected));
  state_->SetAnchor(action.fragment);
  failpoint::Hit("island.pulled.after");
  return absl::OkStatus();
}

absl::Status IslandPart::Push(const Action& action, Lane lane) {
  const Outbox::Item item = outbox_.Find(action.fragment, action.seq);
  // Training goes on meanwhile, at another pace in each process.
  RETURN_IF_ERROR(Agree(
      lane, item == nullptr
                ? absl::AbortedError("the contribution is decided already")
                : absl::OkStatus()));
  failpoint::Hit("island.push.before");
  const TransferWhat what = {.kind = ActionKind::kPush,
                             .lane = lane,
                             .fragment = action.fragment,
                             .contribution = item.get(),
                             .needs_repush = action.needs_repush};
  const bool is_new = outbox_.TakeNew(item);
  const auto push = [&](server::CallBounds bounds) {
    bounds.is_new = is_new;
    return parameters_->Push(item->info, item->bytes, bounds);
  };
  RETURN_IF_ERROR(Move(what, push, std::nullopt));
  failpoint::Hit("island.pushed.after");
  return absl::OkStatus();
}

// What is evaluated is theta: with a view it is not what anchors are.
absl::Status IslandPart::PullForEvaluation(const Action& action) {
  if (!HasReplica(spec_)) {
    state_->SetLocalToAnchors();
    return absl::OkStatus();
  }
  for (const v1::FragmentVersion& at : action.cut) {
    const TransferWhat what = {.kind = ActionKind::kEvaluate,
                               .fragment = at.fragment(),
                               .version = at.version()};
    const Digest128 expected = Digest128::FromProto(at.digest());
    const auto pull = [&](const server::CallBounds& bounds) {
      return parameters_->Pull(at.fragment(), at.version(), expected,
                               state_->FragmentBuffer(at.fragment()), bounds);
    };
    RETURN_IF_ERROR(Annotate(Move(what, pull, expected),
                             "cannot pull what is to be evaluated"));
    state_->SetLocal(at.fragment());
  }
  return absl::OkStatus();
}

}  // namespace atl::worker
