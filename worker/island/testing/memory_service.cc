#include "worker/island/testing/memory_service.h"

#include <algorithm>
#include <optional>
#include <stop_token>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "atoll/v1/island_service.pb.h"
#include "atoll/v1/parameter_service.pb.h"
#include "atoll/v1/run_service.pb.h"
#include "atoll/v1/server_service.pb.h"
#include "base/codec/block_run.h"
#include "base/codec/codec.h"
#include "base/codec/sha256.h"
#include "base/features/features.h"
#include "base/layout/encoded_layout.h"
#include "base/layout/exchange.h"
#include "base/layout/init_generator.h"
#include "base/status/check.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"
#include "coordinator/core/run_queries.h"

namespace atl::worker {
namespace {

namespace event = coordinator::event;
using server::ContributionKey;

constexpr char kRunId[] = "test";
constexpr char kServerId[] = "s0";
// Far shorter than an island's lease.
constexpr absl::Duration kServerLease = absl::Seconds(1);

std::string MakeSecret() { return std::string(32, 's'); }

server::ShardShape MakeShape(const v1::RunSpec& spec, const RunLayout& layout) {
  server::ShardShape shape;
  shape.run_id = kRunId;
  shape.layout_fingerprint = layout.fingerprint();
  shape.codec = ToProto(UpCodec(spec));
  shape.fragments.assign(layout.fragment_count(), {true, true});
  return shape;
}

// Accepts the digest of one process and of several: another number of processes
// may have written the local checkpoint.
void CheckDigest(const v1::ContributionInfo& info, const EncodedLayout& places,
                 absl::Span<const char> encoded) {
  Digest128 sum;
  const int64_t block_count =
      places.layout().fragment_block_count(places.fragment());
  for (int64_t b = 0; b < block_count; ++b) {
    sum += BlockDigest(b, encoded.subspan(places.ByteOffset(b),
                                                 places.ByteCount({b, b + 1})));
  }
  const Digest128 name = Digest128::FromProto(info.digest());
  CHECK(name == sum || name == ContributionDigest(encoded));
}

}  // namespace

class MemoryCoordinator : public coordinator::IslandControlClient {
 public:
  explicit MemoryCoordinator(MemoryService& service) : service_(service) {}

  absl::StatusOr<v1::JoinResponse> Join(
      const v1::JoinRequest& request) override {
    std::lock_guard<std::mutex> lock(service_.mutex_);
    v1::JoinRequest anonymous = request;
    anonymous.clear_run_uid();
    anonymous.clear_log_seen();
    ASSIGN_OR_RETURN(coordinator::RunAnswer answer,
                     service_.Step(event::Join{anonymous, MakeSecret()}));
    v1::JoinResponse& joined = answer.joined;
    island_ = {request.island_id(), joined.island_epoch(),
               joined.session_secret()};
    slot_ = joined.slot();
    acknowledged_seq_ = 0;
    if (service_.is_old_) joined.clear_coordinator_features();
    *joined.mutable_run() = coordinator::BuildRun(*service_.run_, true);
    joined.mutable_run()->clear_run_uid();
    *joined.mutable_plan() = MakePlan();
    return joined;
  }

  absl::Status ReportReady(int64_t commit_seq) override {
    std::lock_guard<std::mutex> lock(service_.mutex_);
    return service_.Step(event::Ready{island_, commit_seq}).status();
  }

  absl::StatusOr<v1::HeartbeatResponse> Heartbeat(
      v1::HeartbeatRequest request) override {
    std::lock_guard<std::mutex> lock(service_.mutex_);
    RETURN_IF_ERROR(service_.Step(event::Heartbeat{island_}).status());
    service_.heartbeat_ = request;
    v1::HeartbeatResponse response;
    *response.mutable_lease_duration() =
        ToProto(coordinator::IslandLeaseDuration(service_.spec_));
    if (service_.is_old_) return response;
    acknowledged_seq_ = request.acknowledged_seq();
    if (request.has_progress()) {
      RETURN_IF_ERROR(TakeProgress(request.progress()));
    }
    response.set_coordinator_features(ProgramFeatures());
    response.set_coordinator_epoch(
        service_.coordinator_.IslandPlan(*service_.run_, slot_)
            .coordinator_epoch());
    return response;
  }

  absl::StatusOr<v1::IslandPlan> WaitForPlan(
      const coordinator::PlanPosition& after, absl::Duration timeout,
      std::stop_token stop) override {
    std::unique_lock<std::mutex> lock(service_.mutex_);
    const bool came = service_.changed_.wait_for(
        lock, stop, absl::ToChronoMilliseconds(timeout),
        [&] { return service_.revision_ > after.revision; });
    if (stop.stop_requested()) return absl::CancelledError("");
    RETURN_IF_ERROR(service_.run_->CheckIsland(island_));
    if (!came) return absl::DeadlineExceededError("");
    return MakePlan();
  }

  absl::Status ReportProgress(v1::ReportProgressRequest progress) override {
    std::lock_guard<std::mutex> lock(service_.mutex_);
    return TakeProgress(progress);
  }

  absl::Status Leave(v1::LeaveRequest leave) override {
    std::lock_guard<std::mutex> lock(service_.mutex_);
    ++service_.leave_count_;
    return service_.Step(event::Leave{island_, std::move(leave)}).status();
  }

 private:
  // These require service_.mutex_.
  absl::Status TakeProgress(const v1::ReportProgressRequest& progress) {
    service_.phases_.insert(service_.phases_.end(),
                            progress.sync_phases().begin(),
                            progress.sync_phases().end());
    return service_.Step(event::Progress{island_, progress}).status();
  }

  v1::IslandPlan MakePlan() const {
    v1::IslandPlan plan =
        service_.coordinator_.IslandPlan(*service_.run_, slot_);
    plan.clear_run_uid();
    plan.clear_log();
    auto& outcomes = *plan.mutable_outcomes();
    outcomes.erase(
        std::remove_if(outcomes.begin(), outcomes.end(),
                       [this](const v1::ContributionOutcome& outcome) {
                         return outcome.key().seq() <= acknowledged_seq_;
                       }),
        outcomes.end());
    return plan;
  }

  MemoryService& service_;
  // service_.mutex_ guards these.
  coordinator::IslandCredentials island_;
  int32_t slot_ = 0;
  int64_t acknowledged_seq_ = 0;
};

class MemoryParameters : public server::ParameterClient {
 public:
  MemoryParameters(MemoryService& service, HeldLayout held)
      : service_(service), held_(std::move(held)) {}

  void SetRoutes(server::ShardRoutes routes) override {
    std::lock_guard<std::mutex> lock(service_.mutex_);
    placement_epoch_ = routes.placement_epoch;
  }

  void SetIdentity(server::PushIdentity identity) override {
    std::lock_guard<std::mutex> lock(service_.mutex_);
    island_epoch_ = identity.island_epoch;
    const codec::Sha256Digest digest =
        codec::ComputeSha256(identity.session_secret);
    session_sha256_.assign(digest.begin(), digest.end());
  }

  server::TransferOutcome Push(const v1::ContributionInfo& info,
                               absl::Span<const char> encoded,
                               const server::CallBounds& bounds) override {
    // Without a block here there is no shard to push to.
    if (held_.fragment_blocks(info.key().fragment()).empty()) return {};
    std::unique_lock<std::mutex> lock(service_.mutex_);
    const auto wait = [&](auto is_over) {
      return service_.changed_.wait(lock, bounds.stop, is_over);
    };
    const server::TransferOutcome stopped = {absl::CancelledError("stopped"),
                                             {}};
    if (!wait([&] { return !service_.pushes_held_; })) return stopped;
    if (service_.push_failure_count_ > 0) {
      --service_.push_failure_count_;
      const absl::Status failure = service_.push_failure_;
      if (absl::IsInvalidArgument(failure)) {
        service_.shard_.OnRefused(info, failure.message());
        service_.Settle();
      }
      return {failure, {}};
    }
    counters_.sent_payload_bytes += static_cast<int64_t>(encoded.size());
    v1::PushHeader header;
    *header.mutable_info() = info;
    header.set_island_epoch(island_epoch_);
    header.set_layout_fingerprint(service_.layout_.fingerprint());
    header.set_placement_epoch(placement_epoch_);
    const std::string session_sha256 = session_sha256_;
    absl::Status status;
    // As a real client, tries again if the server's plan is behind.
    const bool answered = wait([&] {
      status = service_.shard_.AdmitPush(header, session_sha256);
      return !absl::IsUnavailable(status) &&
             !absl::IsFailedPrecondition(status) &&
             !absl::IsResourceExhausted(status);
    });
    if (!answered) return stopped;
    if (!status.ok()) return {status, {}};
    service_.TakeBlocks(info, held_, encoded);
    // Other processes push the other blocks. What is merged is here no longer.
    const auto key = ContributionKey::FromProto(info.key());
    const bool stored = wait([&] {
      const auto found = service_.contributions_.find(key);
      return found == service_.contributions_.end() || found->second.stored;
    });
    return stored ? server::TransferOutcome() : stopped;
  }

  server::TransferOutcome Pull(int32_t fragment, int64_t version,
                               const std::optional<Digest128>& expected,
                               absl::Span<float> out,
                               const server::CallBounds& bounds) override {
    std::lock_guard<std::mutex> lock(service_.mutex_);
    if (!service_.shard_.Holds(fragment, version)) {
      return {absl::OutOfRangeError("no longer held"), {}};
    }
    const std::vector<float>& values = service_.values_.at({fragment, version});
    server::TransferOutcome outcome;
    server::ShardDigest digest;
    float* to = out.data();
    for (const IndexRange blocks : held_.fragment_blocks(fragment)) {
      const IndexRange at = service_.layout_.BlockElements(fragment, blocks);
      std::copy(values.begin() + at.begin, values.begin() + at.end, to);
      digest.came += RangeDigest(service_.layout_, fragment, blocks,
                                 {to, static_cast<size_t>(at.size())});
      to += at.size();
    }
    CHECK(to == out.data() + out.size());
    digest.all = service_.ComputeDigest(fragment, version);
    if (!held_.is_all()) outcome.digests = {digest};
    counters_.received_payload_bytes += out.size() * sizeof(float);
    return outcome;
  }

  server::TransferOutcome PullReplica(
      int32_t fragment, int64_t version, int64_t from_version,
      absl::Span<float> out, const server::CallBounds& bounds) override {
    return Pull(fragment, version, std::nullopt, out, bounds);
  }

  server::TransferOutcome Import(int32_t fragment,
                                 absl::Span<const float> elements,
                                 const server::CallBounds& bounds) override {
    return {absl::UnimplementedError(""), {}};
  }

  server::TransferCounters counters() const override {
    std::lock_guard<std::mutex> lock(service_.mutex_);
    return counters_;
  }

 private:
  MemoryService& service_;
  const HeldLayout held_;
  // service_.mutex_ guards the rest.
  int64_t placement_epoch_ = 0;
  int64_t island_epoch_ = 0;
  std::string session_sha256_;
  server::TransferCounters counters_;
};

MemoryService::MemoryService(const v1::RunSpec& spec)
    : spec_(spec),
      layout_(*RunLayout::Create(spec.layout())),
      coordinator_({.server_lease_duration = kServerLease}),
      shard_(MakeShape(spec_, layout_), {}) {
  for (int32_t f = 0; f < layout_.fragment_count(); ++f) {
    values_[{f, 0}].resize(layout_.fragment_element_count(f));
  }
  for (const TensorPlace& tensor : layout_.tensors()) {
    GenerateInit(spec.layout().tensors(tensor.tensor).init(),
                 spec.init().seed(), tensor.tensor, 0,
                 absl::MakeSpan(values_[{tensor.fragment, 0}])
                     .subspan(tensor.fragment_offset, tensor.element_count));
  }
  coordinator_.Start(now_, {"cluster", "start"}, 0);
  v1::RegisterServerRequest server;
  server.set_server_id(kServerId);
  server.set_address("memory:1");
  server.set_incarnation(1);
  server.set_features(ProgramFeatures());
  CHECK_OK(coordinator_.RegisterServer(server, now_).status());
  v1::CreateRunRequest run;
  run.set_run_id(kRunId);
  *run.mutable_spec() = spec;
  CHECK_OK(coordinator_.CreateRun(run, now_).status());
  run_ = *coordinator_.FindRun(kRunId);
  Settle();
  CHECK(run_->state().started());
}

std::unique_ptr<coordinator::IslandControlClient>
MemoryService::MakeCoordinator() {
  return std::make_unique<MemoryCoordinator>(*this);
}

std::unique_ptr<server::ParameterClient> MemoryService::MakeParameters() {
  return MakeParameters(HeldLayout(layout_));
}

std::unique_ptr<server::ParameterClient> MemoryService::MakeParameters(
    const HeldLayout& held) {
  return std::make_unique<MemoryParameters>(*this, held);
}

// --- The two cores -----------------------------------------------------------

absl::StatusOr<coordinator::RunAnswer> MemoryService::Step(
    const coordinator::RunEvent& event) {
  absl::StatusOr<coordinator::RunAnswer> answer = run_->Step(event, now_);
  if (HasReason(answer.status(), "TOO_MANY_CALLS")) {
    // Time stands still here: the caller has waited as it was asked to.
    now_ += *GetRetryDelay(answer.status());
    answer = run_->Step(event, now_);
  }
  Settle();
  return answer;
}

void MemoryService::Settle() {
  for (bool changed = true; changed;) {
    if (!server_away_) {
      v1::ReportShardsRequest report;
      report.set_server_id(kServerId);
      report.set_incarnation(1);
      *report.add_shards() = shard_.Report();
      CHECK_OK(coordinator_.ReportShards(report, now_).status());
    }
    const coordinator::Effects effects = coordinator_.TakeEffects(now_);
    for (const coordinator::LogEntry& entry : effects.batch.entries) {
      for (const v1::RoundContribution& contribution :
           entry.record.round_committed().round().contributions()) {
        if (contribution.outcome() != v1::OUTCOME_MERGED) continue;
        merged_.push_back(contribution.info());
      }
      if (entry.record.has_evaluated()) {
        evaluations_.push_back(entry.record.evaluated().evaluation());
      }
    }
    const v1::ServerPlan plan = coordinator_.ServerPlan(kServerId);
    revision_ = plan.revision();
    for (const v1::ServerRunPlan& run : plan.runs()) shard_.OnPlan(run);
    const std::vector<server::ShardAction> actions = shard_.NextActions();
    for (const server::ShardAction& action : actions) Do(action);
    CHECK(shard_.fault().empty()) << shard_.fault();
    changed = !effects.changed_servers.empty() ||
              !effects.changed_runs.empty() || !actions.empty();
  }
  changed_.notify_all();
}

void MemoryService::Do(const server::ShardAction& action) {
  switch (action.kind) {
    case server::ActionKind::kMakeVersion0:
      return shard_.OnVersion0(
          action.fragment, {.digest = ComputeDigest(action.fragment, 0)});
    case server::ActionKind::kPrepare:
      return Prepare(action.seal);
    case server::ActionKind::kPersist:
      for (const ContributionKey& key : action.keys) contributions_.erase(key);
      return shard_.OnPersisted(action.commit.commit_seq());
    case server::ActionKind::kDrop:
      for (const ContributionKey& key : action.keys) contributions_.erase(key);
      return;
    case server::ActionKind::kDiscard:
    case server::ActionKind::kRelease:
      values_.erase({action.fragment, action.version});
      return;
    case server::ActionKind::kWriteManifest:
      return shard_.OnManifestWritten(action.pin.pin_id());
    case server::ActionKind::kDropManifest:
      return shard_.OnManifestDropped(action.pin.pin_id());
    default:
      return;  // It is about a disk.
  }
}

void MemoryService::Prepare(const v1::Seal& seal) {
  const int32_t f = seal.fragment();
  const EncodedLayout places(layout_, f, UpCodec(spec_));
  const std::vector<int32_t> counts =
      places.ElementCounts({0, layout_.fragment_block_count(f)});
  codec::BlockRun run;
  run.element_counts = counts;
  std::vector<float>& values = values_[{f, seal.version() + 1}];
  values = values_.at({f, seal.version()});
  std::vector<float> elements(values.size());
  std::vector<float> mean(values.size(), 0.0f);
  for (const v1::SealedContribution& sealed : seal.contributions()) {
    const auto key = ContributionKey::FromProto(sealed.key());
    CHECK_OK(codec::DecodeRun(places.codec(), run, contributions_.at(key).bytes,
                              absl::MakeSpan(elements)));
    const float weight = sealed.weight();
    for (size_t i = 0; i < mean.size(); ++i) {
      const float scaled = weight * elements[i];
      mean[i] = mean[i] + scaled;
    }
  }
  const float rate = static_cast<float>(spec_.outer().learning_rate());
  for (size_t i = 0; i < mean.size(); ++i) {
    const float step = rate * mean[i];
    values[i] = values[i] - step;
  }
  server::PreparedFact prepared;
  prepared.fragment = f;
  prepared.version = seal.version();
  prepared.attempt = seal.attempt();
  prepared.digest = ComputeDigest(f, seal.version() + 1);
  shard_.OnPrepared(prepared);
}

void MemoryService::TakeBlocks(const v1::ContributionInfo& info,
                               const HeldLayout& held,
                               absl::Span<const char> encoded) {
  const int32_t f = info.key().fragment();
  const EncodedLayout whole(layout_, f, UpCodec(spec_));
  const EncodedLayout part(layout_, f, UpCodec(spec_), held.fragment_blocks(f));
  auto [at, is_new] =
      contributions_.try_emplace(ContributionKey::FromProto(info.key()));
  Contribution& contribution = at->second;
  if (contribution.stored) return;
  if (is_new) {
    contribution.bytes.resize(whole.byte_count());
    contribution.has.resize(layout_.fragment_block_count(f));
    shard_.OnBound(info);
  }
  for (const IndexRange blocks : part.held()) {
    std::copy_n(encoded.begin() + part.ByteOffset(blocks.begin),
                part.ByteCount(blocks),
                contribution.bytes.begin() + whole.ByteOffset(blocks.begin));
    std::fill_n(contribution.has.begin() + blocks.begin, blocks.size(), true);
  }
  contribution.stored =
      std::find(contribution.has.begin(), contribution.has.end(), false) ==
      contribution.has.end();
  if (!contribution.stored) return;
  CheckDigest(info, whole, contribution.bytes);
  shard_.OnStored(info, /*norm_squared=*/0);
  Settle();
}

Digest128 MemoryService::ComputeDigest(int32_t fragment,
                                       int64_t version) const {
  return RangeDigest(layout_, fragment,
                     {0, layout_.fragment_block_count(fragment)},
                     values_.at({fragment, version}));
}

// --- What tests do -----------------------------------------------------------

void MemoryService::FailPushes(int count, absl::Status status) {
  std::lock_guard<std::mutex> lock(mutex_);
  push_failure_count_ = count;
  push_failure_ = std::move(status);
}

void MemoryService::HoldPushes(bool hold) {
  std::lock_guard<std::mutex> lock(mutex_);
  pushes_held_ = hold;
  changed_.notify_all();
}

void MemoryService::EndLeases() {
  std::lock_guard<std::mutex> lock(mutex_);
  now_ += coordinator::IslandLeaseDuration(spec_);
  Settle();
}

void MemoryService::Fence(const std::string& island_id) {
  v1::JoinRequest request;
  request.set_island_id(island_id);
  request.mutable_capabilities()->add_devices()->set_kind("cpu");
  CHECK_OK(MakeCoordinator()->Join(request).status());
}

void MemoryService::SetState(v1::RunState state) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (state == v1::RUN_STATE_PAUSED) {
    CHECK_OK(Step(event::Pause()).status());
  } else if (state == v1::RUN_STATE_ACTIVE) {
    CHECK_OK(Step(event::Resume()).status());
  } else {
    CHECK(state == v1::RUN_STATE_CANCELLED);
    CHECK_OK(Step(event::Cancel()).status());
  }
}

void MemoryService::SetServerAway(bool away) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (server_away_ == away) return;
  server_away_ = away;
  if (away) {
    now_ += kServerLease;
    coordinator_.Advance(now_);
  }
  Settle();
}

// --- What tests see ----------------------------------------------------------

v1::Run MemoryService::run() const {
  std::lock_guard<std::mutex> lock(mutex_);
  v1::Run run = coordinator::BuildRun(*run_, /*with_tensors=*/true);
  run.clear_run_uid();
  return run;
}

std::vector<float> MemoryService::parameters() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<float> parameters(layout_.element_count());
  for (const TensorPlace& tensor : layout_.tensors()) {
    const int32_t f = tensor.fragment;
    std::copy_n(
        values_.at({f, shard_.version(f)}).begin() + tensor.fragment_offset,
        tensor.element_count, parameters.begin() + tensor.model_offset);
  }
  return parameters;
}

std::string MemoryService::parameters_sha256() const {
  return ParametersSha256(layout_, parameters());
}

int64_t MemoryService::version() const {
  std::lock_guard<std::mutex> lock(mutex_);
  int64_t version = shard_.version(0);
  for (int32_t f = 1; f < layout_.fragment_count(); ++f) {
    version = std::min(version, shard_.version(f));
  }
  return version;
}

}  // namespace atl::worker
