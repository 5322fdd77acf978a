#include "worker/island/testing/memory_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "base/codec/block_run.h"
#include "base/codec/codec.h"
#include "base/layout/digest.h"
#include "base/layout/encoded_layout.h"
#include "base/layout/fragment_schedule.h"
#include "base/layout/init_generator.h"
#include "base/status/check.h"
#include "worker/core/testing/own_slot.h"

namespace atl::worker {

class MemoryCoordinator : public coordinator::IslandControlClient {
 public:
  explicit MemoryCoordinator(MemoryService& service) : service_(service) {}

  absl::StatusOr<v1::JoinResponse> Join(
      const v1::JoinRequest& request) override {
    std::lock_guard<std::mutex> lock(service_.mutex_);
    island_id_ = request.island_id();
    auto [at, is_new] = service_.members_.try_emplace(island_id_);
    MemoryService::Member& member = at->second;
    if (is_new) member.slot = service_.members_.size() - 1;
    epoch_ = ++member.epoch;
    member.known = true;
    v1::JoinResponse response;
    response.mutable_run()->set_run_id("test");
    *response.mutable_run()->mutable_spec() = service_.spec_;
    response.mutable_run()->set_run_epoch(1);
    response.mutable_run()->set_state(service_.state_);
    response.set_island_epoch(epoch_);
    response.set_slot(member.slot);
    response.set_session_secret(std::string(32, 's'));
    // An earlier process may have used more seqs: a rejoin skips some.
    response.set_next_seq(member.seq_max + (epoch_ == 1 ? 1 : 16));
    for (const auto& outcome : member.outcomes) {
      *response.add_outcomes() = outcome;
    }
    response.set_data_shard(member.slot);
    response.mutable_lease_duration()->set_seconds(30);
    service_.Changed();
    *response.mutable_plan() = service_.PlanFor(member);
    return response;
  }

  absl::Status ReportReady(int64_t commit_seq) override {
    std::lock_guard<std::mutex> lock(service_.mutex_);
    MemoryService::Member& member = service_.members_[island_id_];
    if (!member.known) return absl::FailedPreconditionError("no member");
    member.ready = true;
    service_.OpenIfDue();
    service_.Changed();
    return absl::OkStatus();
  }

  absl::StatusOr<absl::Duration> Heartbeat() override {
    std::lock_guard<std::mutex> lock(service_.mutex_);
    const MemoryService::Member& member = service_.members_[island_id_];
    if (!member.known) return absl::FailedPreconditionError("no member");
    if (member.epoch > epoch_) return absl::AbortedError("fenced");
    return absl::Milliseconds(300);
  }

  absl::StatusOr<v1::IslandPlan> WaitForPlan(
      const coordinator::PlanPosition& after, absl::Duration timeout,
      std::stop_token stop) override {
    std::unique_lock<std::mutex> lock(service_.mutex_);
    service_.changed_.wait_for(
        lock, stop, absl::ToChronoMilliseconds(timeout),
        [&] { return service_.revision_ > after.revision; });
    if (stop.stop_requested()) return absl::CancelledError("");
    const MemoryService::Member& member = service_.members_[island_id_];
    if (!member.known) return absl::FailedPreconditionError("no member");
    if (service_.revision_ <= after.revision) {
      return absl::DeadlineExceededError("");
    }
    return service_.PlanFor(member);
  }

  absl::Status ReportProgress(v1::ReportProgressRequest progress) override {
    std::lock_guard<std::mutex> lock(service_.mutex_);
    for (const v1::Evaluation& evaluation : progress.evaluations()) {
      service_.evaluations_.push_back(evaluation);
    }
    return absl::OkStatus();
  }

  absl::Status Leave(absl::string_view reason) override {
    std::lock_guard<std::mutex> lock(service_.mutex_);
    ++service_.leave_count_;
    return absl::OkStatus();
  }

 private:
  MemoryService& service_;
  std::string island_id_;
  int64_t epoch_ = 0;
};

class MemoryParameters : public server::ParameterClient {
 public:
  MemoryParameters(MemoryService& service, HeldLayout held)
      : service_(service), held_(std::move(held)) {}

  void SetRoutes(server::ShardRoutes routes) override {}
  void SetIdentity(server::PushIdentity identity) override {}

  server::TransferOutcome Push(const v1::ContributionInfo& info,
                               absl::Span<const char> encoded,
                               const server::CallBounds& bounds) override {
    std::unique_lock<std::mutex> lock(service_.mutex_);
    if (!service_.changed_.wait(lock, bounds.stop,
                                [&] { return !service_.pushes_held_; })) {
      return {absl::CancelledError("stopped"), {}};
    }
    if (service_.push_failure_count_ > 0) {
      --service_.push_failure_count_;
      return {service_.push_failure_, {}};
    }
    const int32_t f = info.key().fragment();
    counters_.sent_payload_bytes += static_cast<int64_t>(encoded.size());
    for (auto& [id, member] : service_.members_) {
      if (member.slot == info.key().slot()) {
        member.seq_max = std::max(member.seq_max, info.key().seq());
      }
    }
    if (info.anchor_version() != service_.versions_[f]) {
      return {absl::OkStatus(), {}};  // Late or merged already.
    }
    const auto found = service_.stored_[f].find(info.key().slot());
    if (found != service_.stored_[f].end()) {
      CHECK(found->second.info.SerializeAsString() == info.SerializeAsString());
      return {absl::OkStatus(), {}};
    }
    if (held_.is_all()) {
      CheckDigest(info, encoded);
      service_.stored_[f][info.key().slot()] = {info, Decode(info, encoded)};
      service_.MergeIfComplete(f);
      return {absl::OkStatus(), {}};
    }
    TakePart(info, encoded);
    // Waits until the other processes have pushed their parts.
    const bool stored = service_.changed_.wait(lock, bounds.stop, [&] {
      return service_.versions_[f] != info.anchor_version() ||
             service_.stored_[f].count(info.key().slot()) > 0;
    });
    return {stored ? absl::OkStatus() : absl::CancelledError("stopped"), {}};
  }

  server::TransferOutcome Pull(int32_t fragment, int64_t version,
                               const std::optional<Digest128>& expected,
                               absl::Span<float> out,
                               const server::CallBounds& bounds) override {
    std::lock_guard<std::mutex> lock(service_.mutex_);
    if (version != service_.versions_[fragment]) {
      return {absl::OutOfRangeError("no longer held"), {}};
    }
    const std::vector<float>& values = service_.values_[fragment];
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
    digest.all = RangeDigest(
        service_.layout_, fragment,
        {0, service_.layout_.fragment_block_count(fragment)}, values);
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
  // Accepts the digest of one process and of several: another number of
  // processes may have written the local checkpoint.
  void CheckDigest(const v1::ContributionInfo& info,
                   absl::Span<const char> encoded) const {
    const int32_t f = info.key().fragment();
    const EncodedLayout places(service_.layout_, f,
                               *codec::FindCodec(info.codec()));
    Digest128 sum;
    for (int64_t b = 0; b < service_.layout_.fragment_block_count(f); ++b) {
      sum += BlockDigest(
          b,
          encoded.subspan(places.ByteOffset(b), places.ByteCount({b, b + 1})));
    }
    const Digest128 name = Digest128::FromProto(info.digest());
    CHECK(name == sum || name == ContributionDigest(encoded));
  }

  // Stores one process's part of a contribution.
  void TakePart(const v1::ContributionInfo& info,
                absl::Span<const char> encoded) {
    const int32_t f = info.key().fragment();
    const RunLayout& layout = service_.layout_;
    MemoryService::Partial& partial = service_.partial_[f][info.key().slot()];
    if (partial.stored.info.SerializeAsString() != info.SerializeAsString()) {
      partial = {};
      partial.stored.info = info;
      partial.stored.elements.resize(layout.fragment_element_count(f));
      partial.has.resize(layout.fragment_element_count(f));
    }
    const codec::Codec& codec = *codec::FindCodec(info.codec());
    const EncodedLayout places(layout, f, codec, held_.fragment_blocks(f));
    const EncodedLayout whole(layout, f, codec);
    partial.bytes.resize(whole.byte_count());
    const std::vector<float> elements = Decode(info, encoded);
    const float* from = elements.data();
    for (const IndexRange blocks : places.held()) {
      const IndexRange at = layout.BlockElements(f, blocks);
      if (partial.has[at.begin]) return;  // A repeat.
      std::copy_n(from, at.size(), partial.stored.elements.begin() + at.begin);
      std::fill_n(partial.has.begin() + at.begin, at.size(), true);
      from += at.size();
      std::copy_n(encoded.begin() + places.ByteOffset(blocks.begin),
                  places.ByteCount(blocks),
                  partial.bytes.begin() + whole.ByteOffset(blocks.begin));
    }
    if (!std::all_of(partial.has.begin(), partial.has.end(),
                     [](bool has) { return has; })) {
      return;
    }
    CheckDigest(info, partial.bytes);
    service_.stored_[f][info.key().slot()] = std::move(partial.stored);
    service_.partial_[f].erase(info.key().slot());
    service_.changed_.notify_all();
    service_.MergeIfComplete(f);
  }

  std::vector<float> Decode(const v1::ContributionInfo& info,
                            absl::Span<const char> encoded) const {
    const int32_t f = info.key().fragment();
    const codec::Codec* const codec = codec::FindCodec(info.codec());
    CHECK(codec != nullptr);
    const EncodedLayout places(service_.layout_, f, *codec,
                               held_.fragment_blocks(f));
    std::vector<int32_t> counts;
    for (const IndexRange blocks : places.held()) {
      const std::vector<int32_t> some = places.ElementCounts(blocks);
      counts.insert(counts.end(), some.begin(), some.end());
    }
    codec::BlockRun run;
    run.element_counts = counts;
    std::vector<float> elements(held_.fragment_element_count(f));
    CHECK(codec::DecodeRun(*codec, run,
                           absl::string_view(encoded.data(), encoded.size()),
                           absl::MakeSpan(elements))
              .ok());
    return elements;
  }

  MemoryService& service_;
  const HeldLayout held_;
  server::TransferCounters counters_;
};

MemoryService::MemoryService(const v1::RunSpec& spec)
    : spec_(spec), layout_(*RunLayout::Create(spec.layout())) {
  const int32_t count = layout_.fragment_count();
  versions_.assign(count, 0);
  commit_seqs_.assign(count, 0);
  open_.resize(count);
  stored_.resize(count);
  partial_.resize(count);
  values_.resize(count);
  for (int32_t f = 0; f < count; ++f) {
    values_[f].resize(layout_.fragment_element_count(f));
  }
  for (const TensorPlace& tensor : layout_.tensors()) {
    GenerateInit(spec.layout().tensors(tensor.tensor).init(),
                 spec.init().seed(), tensor.tensor, 0,
                 absl::MakeSpan(values_[tensor.fragment])
                     .subspan(tensor.fragment_offset, tensor.element_count));
  }
}

v1::Run MemoryService::run() const {
  std::lock_guard<std::mutex> lock(mutex_);
  v1::Run run;
  run.set_run_id("test");
  *run.mutable_spec() = spec_;
  run.set_state(state_);
  run.set_run_epoch(1);
  return run;
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

v1::IslandPlan MemoryService::PlanFor(const Member& member) const {
  v1::IslandPlan plan;
  plan.set_revision(revision_);
  plan.set_coordinator_epoch(1);
  plan.set_run_id("test");
  plan.set_run_epoch(1);
  plan.set_run_state(state_);
  plan.set_slot(member.slot);
  plan.set_island_epoch(member.epoch);
  plan.set_commit_seq(commit_seq_);
  plan.set_placement_epoch(1);
  v1::ShardPlacement* shard = plan.add_shards();
  shard->set_server_id("s0");
  shard->set_address(server_away_ ? "" : "memory");
  for (int32_t f = 0; f < layout_.fragment_count(); ++f) {
    v1::FragmentVersion* cut = plan.add_cut();
    cut->set_fragment(f);
    cut->set_version(versions_[f]);
    cut->set_commit_seq(commit_seqs_[f]);
    *cut->mutable_digest() =
        RangeDigest(layout_, f, {0, layout_.fragment_block_count(f)},
                    values_[f])
            .ToProto();
    if (open_[f].empty()) continue;
    v1::OpenRound* open = plan.add_open_rounds();
    open->set_fragment(f);
    open->set_version(versions_[f]);
    for (const int32_t slot : open_[f]) {
      v1::SlotPlan* slot_plan = open->add_slots();
      slot_plan->set_slot(slot);
      const int64_t start_step = StartStep(
          spec_.schedule(), layout_.fragment_count(), f, versions_[f]);
      slot_plan->set_start_step(start_step);
      slot_plan->set_step_count(PushStep(spec_.schedule(),
                                         layout_.fragment_count(), f,
                                         versions_[f]) -
                                start_step);
      slot_plan->set_data_shard(slot);
    }
    KeepOwnSlot(member.slot, *open);
  }
  for (const auto& outcome : member.outcomes) *plan.add_outcomes() = outcome;
  return plan;
}

void MemoryService::SetServerAway(bool away) {
  std::lock_guard<std::mutex> lock(mutex_);
  server_away_ = away;
  Changed();
}

void MemoryService::TellOutcomes(v1::Outcome outcome, std::string reason) {
  std::lock_guard<std::mutex> lock(mutex_);
  told_outcome_ = outcome;
  told_reason_ = std::move(reason);
}

void MemoryService::Changed() {
  ++revision_;
  changed_.notify_all();
}

bool MemoryService::Complete() const {
  return std::all_of(versions_.begin(), versions_.end(), [this](int64_t v) {
    return v >= spec_.schedule().round_count();
  });
}

void MemoryService::OpenIfDue() {
  if (state_ != v1::RUN_STATE_ACTIVE) return;
  std::vector<int32_t> slots;
  for (const auto& [id, member] : members_) {
    if (member.ready && member.known) slots.push_back(member.slot);
  }
  std::sort(slots.begin(), slots.end());
  if (static_cast<int>(slots.size()) < spec_.schedule().island_count_min()) {
    return;
  }
  for (int32_t f = 0; f < layout_.fragment_count(); ++f) {
    if (open_[f].empty() && versions_[f] < spec_.schedule().round_count()) {
      open_[f] = slots;
    }
  }
}

void MemoryService::MergeIfComplete(int32_t f) {
  for (const int32_t slot : open_[f]) {
    if (stored_[f].count(slot) == 0) return;
  }
  const float weight =
      static_cast<float>(1.0 / static_cast<double>(open_[f].size()));
  std::vector<float> mean(values_[f].size(), 0.0f);
  ++commit_seq_;
  for (const auto& [slot, stored] : stored_[f]) {
    for (size_t i = 0; i < mean.size(); ++i) {
      const float scaled = weight * stored.elements[i];
      mean[i] = mean[i] + scaled;
    }
    merged_.push_back(stored.info);
    for (auto& [id, member] : members_) {
      if (member.slot != slot) continue;
      v1::ContributionOutcome outcome;
      *outcome.mutable_key() = stored.info.key();
      outcome.set_outcome(told_outcome_);
      outcome.set_reason(told_reason_);
      member.outcomes.push_back(outcome);
    }
  }
  const float rate = static_cast<float>(spec_.outer().learning_rate());
  for (size_t i = 0; i < mean.size(); ++i) {
    const float step = rate * mean[i];
    values_[f][i] = values_[f][i] - step;
  }
  ++versions_[f];
  commit_seqs_[f] = commit_seq_;
  stored_[f].clear();
  open_[f].clear();
  if (Complete()) state_ = v1::RUN_STATE_COMPLETED;
  OpenIfDue();
  Changed();
}

void MemoryService::FailPushes(int count, absl::Status status) {
  std::lock_guard<std::mutex> lock(mutex_);
  push_failure_count_ = count;
  push_failure_ = std::move(status);
}

void MemoryService::HoldPushes(bool hold) {
  std::lock_guard<std::mutex> lock(mutex_);
  pushes_held_ = hold;
  Changed();
}

void MemoryService::EndLeases() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [id, member] : members_) member.known = false;
  Changed();
}

void MemoryService::Fence(const std::string& island_id) {
  std::lock_guard<std::mutex> lock(mutex_);
  ++members_[island_id].epoch;
  Changed();
}

void MemoryService::SetState(v1::RunState state) {
  std::lock_guard<std::mutex> lock(mutex_);
  state_ = state;
  OpenIfDue();
  Changed();
}

std::vector<float> MemoryService::parameters() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<float> parameters(layout_.element_count());
  for (const TensorPlace& tensor : layout_.tensors()) {
    std::copy_n(values_[tensor.fragment].begin() + tensor.fragment_offset,
                tensor.element_count, parameters.begin() + tensor.model_offset);
  }
  return parameters;
}

std::string MemoryService::parameters_sha256() const {
  return ParametersSha256(layout_, parameters());
}

int64_t MemoryService::version() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return *std::min_element(versions_.begin(), versions_.end());
}

std::vector<v1::ContributionInfo> MemoryService::merged() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return merged_;
}

std::vector<v1::Evaluation> MemoryService::evaluations() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return evaluations_;
}

int MemoryService::leave_count() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return leave_count_;
}

void MemoryService::AwaitVersion(int64_t version) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] {
    return *std::min_element(versions_.begin(), versions_.end()) >= version;
  });
}

}  // namespace atl::worker
