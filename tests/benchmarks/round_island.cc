#include "tests/benchmarks/round_island.h"

#include <time.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "atoll/v1/training_state_service.grpc.pb.h"
#include "base/codec/f32_bytes.h"
#include "base/layout/digest.h"
#include "base/layout/exchange.h"
#include "base/layout/held_layout.h"
#include "base/layout/layout.h"
#include "base/rpc/allocator.h"
#include "base/status/status_macros.h"
#include "coordinator/client/client.h"
#include "coordinator/client/island_control_client.h"
#include "server/client/parameter_client.h"
#include "tests/benchmarks/vectors.h"
#include "worker/core/contribution_encoder.h"

namespace atl::benchmarks {
namespace {

// Longest wait: gigabytes, on a shared machine.
constexpr absl::Duration kPatience = absl::Minutes(10);

int64_t Nanoseconds(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return int64_t{1'000'000'000} * time.tv_sec + time.tv_nsec;
}

class RoundIsland {
 public:
  explicit RoundIsland(const RoundIslandOptions& options) : options_(options) {}

  absl::Status Start();
  absl::StatusOr<std::string> Follow(const std::string& order);

 private:
  absl::Status NextPlan();
  const v1::OpenRound* FindOpen(int64_t version) const;
  absl::Status WaitForOpen(int64_t version);
  absl::Status WaitForDisks();
  absl::Status WaitForVersion(int64_t version);
  absl::Status Describe(int64_t version);
  absl::Status Encode();
  absl::Span<const char> Encoded() const {
    return encoder_ == nullptr ? codec::F32Bytes(gradient_)
                               : absl::MakeConstSpan(contribution_.bytes);
  }
  absl::Status Pull();
  absl::Status PlayRound(int64_t version);

  server::CallBounds Bounds() const {
    return {.deadline = absl::Now() + kPatience, .stop = {}};
  }

  const RoundIslandOptions options_;
  std::unique_ptr<coordinator::IslandControlClient> coordinator_;
  std::unique_ptr<coordinator::Client> states_;
  std::unique_ptr<RunLayout> layout_;
  std::unique_ptr<server::ParameterClient> servers_;
  v1::IslandPlan plan_;
  int64_t next_seq_ = 1;
  absl::Span<float> gradient_;
  absl::Span<float> parameters_;
  // Null for f32 contributions: the gradient is then sent without a copy.
  std::unique_ptr<worker::ContributionEncoder> encoder_;
  worker::EncodedContribution contribution_;
  bool has_replica_ = false;
  int64_t held_version_ = -1;  // Of parameters_.
};

absl::Status RoundIsland::Start() {
  coordinator::IslandControlClientOptions control;
  control.address = options_.coordinator;
  ASSIGN_OR_RETURN(coordinator_, coordinator::MakeIslandControlClient(control));
  coordinator::ClientOptions reader;
  reader.address = options_.coordinator;
  ASSIGN_OR_RETURN(states_, coordinator::MakeClient(reader));
  v1::JoinRequest request;
  request.set_run_id(options_.run_id);
  request.set_island_id(options_.island_id);
  v1::IslandCapabilities& capabilities = *request.mutable_capabilities();
  capabilities.add_devices()->set_kind("cpu");
  capabilities.set_thread_count(1);
  ASSIGN_OR_RETURN(v1::JoinResponse joined, coordinator_->Join(request));
  plan_ = joined.plan();
  next_seq_ = joined.next_seq();

  ASSIGN_OR_RETURN(RunLayout layout,
                   RunLayout::Create(joined.run().spec().layout()));
  layout_ = std::make_unique<RunLayout>(std::move(layout));
  server::ParameterClientOptions data =
      server::MakeRunOptions(joined.run());
  data.channel.kind = rpc::ChannelKind::kData;
  ASSIGN_OR_RETURN(servers_, server::MakeParameterClient(data, *layout_));
  const v1::RunSpec& spec = joined.run().spec();
  has_replica_ = HasReplica(spec);
  if (spec.exchange().error_feedback()) {
    encoder_ = std::make_unique<worker::ContributionEncoder>(
        HeldLayout(*layout_), spec);
  }
  servers_->SetIdentity({.island_id = options_.island_id,
                         .island_epoch = joined.island_epoch(),
                         .session_secret = joined.session_secret()});
  const size_t element_count = layout_->element_count();
  if (options_.shared_gradient.empty()) {
    gradient_ = MakeVector(element_count);
    FillGradient(options_.index, gradient_);
  } else {
    gradient_ = MapVector(options_.shared_gradient, element_count);
  }
  parameters_ = options_.shared_parameters.empty()
                    ? MakeVector(element_count)
                    : MapVector(options_.shared_parameters, element_count);
  RETURN_IF_ERROR(WaitForVersion(0));
  RETURN_IF_ERROR(Pull());
  return coordinator_->ReportReady(plan_.commit_seq());
}

absl::Status RoundIsland::NextPlan() {
  ASSIGN_OR_RETURN(plan_,
                   coordinator_->WaitForPlan(coordinator::ToPosition(plan_),
                                             kPatience, std::stop_token()));
  return absl::OkStatus();
}

const v1::OpenRound* RoundIsland::FindOpen(int64_t version) const {
  for (const v1::OpenRound& open : plan_.open_rounds()) {
    if (open.version() == version) return &open;
  }
  return nullptr;
}

absl::Status RoundIsland::WaitForOpen(int64_t version) {
  while (FindOpen(version) == nullptr) RETURN_IF_ERROR(NextPlan());
  return WaitForDisks();
}

// Otherwise a round would be timed while the disks write the one before it. No
// plan comes for that alone, so the state of the run tells.
absl::Status RoundIsland::WaitForDisks() {
  const absl::Time end = absl::Now() + kPatience;
  v1::GetRunStateRequest request;
  request.set_run_id(options_.run_id);
  while (absl::Now() < end) {
    ASSIGN_OR_RETURN(
        const v1::GetRunStateResponse state,
        states_->Call(&v1::TrainingStateService::Stub::GetRunState, request));
    if (std::all_of(state.servers().begin(), state.servers().end(),
                    [&](const v1::ServerState& server) {
                      return server.persisted_commit_seq() >=
                             plan_.commit_seq();
                    })) {
      return absl::OkStatus();
    }
    const auto plan =
        coordinator_->WaitForPlan(coordinator::ToPosition(plan_),
                                  absl::Milliseconds(5), std::stop_token());
    if (plan.ok()) plan_ = *plan;
  }
  return absl::DeadlineExceededError("the servers' disks do not keep up");
}

absl::Status RoundIsland::WaitForVersion(int64_t version) {
  while (plan_.cut().empty() || plan_.cut(0).version() < version) {
    RETURN_IF_ERROR(NextPlan());
  }
  return absl::OkStatus();
}

absl::Status RoundIsland::Describe(int64_t version) {
  const v1::OpenRound* open = FindOpen(version);
  if (open == nullptr) return absl::InternalError("the round is not open");
  v1::ContributionInfo& info = contribution_.info;
  info.Clear();
  for (const v1::SlotPlan& slot : open->slots()) {
    if (slot.slot() != plan_.slot()) continue;
    info.set_step_count(slot.step_count());
    info.set_token_count(slot.step_count());
    info.set_data_shard(slot.data_shard());
    info.set_data_begin(slot.data_position());
    info.set_data_end(slot.data_position() + slot.step_count());
  }
  if (info.step_count() == 0) {
    return absl::InternalError("this island is not expected");
  }
  v1::ContributionKey& key = *info.mutable_key();
  key.set_run_epoch(plan_.run_epoch());
  key.set_slot(plan_.slot());
  key.set_seq(next_seq_++);
  info.set_anchor_version(version);
  return absl::OkStatus();
}

// Without training the outer gradient already exists.
absl::Status RoundIsland::Encode() {
  if (encoder_ != nullptr) {
    encoder_->GradientRoom(contribution_);
    return encoder_->Encode(contribution_, gradient_);
  }
  contribution_.info.set_codec(v1::CODEC_F32);
  *contribution_.info.mutable_digest() =
      ContributionDigest(Encoded()).ToProto();
  return absl::OkStatus();
}

absl::Status RoundIsland::Pull() {
  servers_->SetRoutes(server::ToRoutes(plan_));
  const v1::FragmentVersion& newest = plan_.cut(0);
  const server::TransferOutcome outcome =
      has_replica_ ? servers_->PullReplica(0, newest.version(), held_version_,
                                           parameters_, Bounds())
                   : servers_->Pull(0, newest.version(),
                                    Digest128::FromProto(newest.digest()),
                                    parameters_, Bounds());
  if (outcome.status.ok()) held_version_ = newest.version();
  return outcome.status;
}

absl::Status RoundIsland::PlayRound(int64_t version) {
  RETURN_IF_ERROR(Describe(version));
  RETURN_IF_ERROR(Encode());
  servers_->SetRoutes(server::ToRoutes(plan_));
  const int64_t begin = Nanoseconds(CLOCK_MONOTONIC);
  const int64_t begin_cpu = Nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
  const server::TransferOutcome pushed =
      servers_->Push(contribution_.info, Encoded(), Bounds());
  RETURN_IF_ERROR(pushed.status);
  const int64_t end = Nanoseconds(CLOCK_MONOTONIC);
  absl::Time sent = absl::UnixEpoch();
  for (const server::ShardOutcome& shard : pushed.shards) {
    sent = std::max(sent, shard.last_payload);
  }
  std::cout << "pushed " << begin << " " << end << " "
            << Nanoseconds(CLOCK_PROCESS_CPUTIME_ID) - begin_cpu << " "
            << end - absl::ToInt64Nanoseconds(absl::Now() - sent) << std::endl;
  RETURN_IF_ERROR(WaitForVersion(version + 1));
  std::cout << "committed " << Nanoseconds(CLOCK_MONOTONIC) << std::endl;
  if (encoder_ != nullptr) encoder_->Resolve(contribution_.info.key(), true);
  return Pull();
}

absl::StatusOr<std::string> RoundIsland::Follow(const std::string& order) {
  const std::vector<std::string> words = absl::StrSplit(order, ' ');
  int64_t version = 0;
  if (words.size() != 2 || !absl::SimpleAtoi(words[1], &version)) {
    return absl::InvalidArgumentError(absl::StrCat("no order: ", order));
  }
  if (words[0] == "open") {
    RETURN_IF_ERROR(WaitForOpen(version));
    return std::string("open");
  }
  if (words[0] == "go") {
    RETURN_IF_ERROR(PlayRound(version));
    return std::string("done");
  }
  if (words[0] == "count") {
    const server::TransferCounters counters = servers_->counters();
    return absl::StrCat("counted ", counters.sent_payload_bytes, " ",
                        counters.received_payload_bytes);
  }
  const std::string wrong =
      CheckParameters(parameters_, options_.island_count, version,
                      encoder_ == nullptr ? kExact : kEncoded);
  return wrong.empty() ? std::string("ok") : wrong;
}

}  // namespace

int RunIsland(const RoundIslandOptions& options) {
  rpc::TuneAllocator();
  RoundIsland island(options);
  if (absl::Status status = island.Start(); !status.ok()) {
    std::cerr << options.island_id << ": " << status << "\n";
    return 1;
  }
  std::cout << "ready" << std::endl;
  std::string order;
  while (std::getline(std::cin, order)) {
    absl::StatusOr<std::string> answer = island.Follow(order);
    if (!answer.ok()) {
      std::cerr << options.island_id << ": " << answer.status() << "\n";
      return 1;
    }
    std::cout << *answer << std::endl;
  }
  return 0;
}

}  // namespace atl::benchmarks
