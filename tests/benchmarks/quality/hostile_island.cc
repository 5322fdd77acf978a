// An island that trains honestly and pushes altered gradients, for the quality
// benchmark. Not part of the product.
//
//   hostile_island join HOST:PORT --run R --island-id I --dir D --threads N
//       --attack sign_flip|scale:100|drift:1|noise|spike:1e30|nan
//       [--claim TOKENS_PER_SECOND] [--skip-seqs N] [--steps N]
//       [--tls-cert FILE --tls-key FILE --tls-ca FILE]
//
// Everything else is `atoll join`'s code. A client between the island and its
// parameter client alters each outer gradient and its digest, so that a shard
// cannot detect it by its form. Another one between the island and its control
// client claims a speed, and lowers the steps of its plans. With --steps alone
// the island is honest, but does less than it was asked.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/codec/f32_bytes.h"
#include "base/flags/flags.h"
#include "base/layout/digest.h"
#include "base/status/status_macros.h"
#include "coordinator/client/island_control_client.h"
#include "coordinator/client/plan_position.h"
#include "server/client/parameter_client.h"
#include "tests/benchmarks/quality/attack.h"
#include "worker/api/run_island.h"

namespace atl::benchmarks {
namespace {

// How the island deviates.
struct Hostility {
  std::optional<Attack> attack;          // Of each outer gradient.
  double claimed_tokens_per_second = 0;  // 0: as measured.
  int64_t skipped_seq_count = 0;  // By how much each contribution's seq is more.
  int64_t step_count_max = 0;     // Steps of a contribution; 0: as planned.
};

class HostileClient final : public server::ParameterClient {
 public:
  HostileClient(std::unique_ptr<server::ParameterClient> honest,
                const Hostility& hostility)
      : honest_(std::move(honest)), hostility_(hostility) {}

  void SetRoutes(server::ShardRoutes routes) override {
    honest_->SetRoutes(std::move(routes));
  }
  void SetIdentity(server::PushIdentity identity) override {
    honest_->SetIdentity(std::move(identity));
  }

  server::TransferOutcome Push(const v1::ContributionInfo& info,
                               absl::Span<const char> encoded,
                               const server::CallBounds& bounds) override {
    if (!hostility_.attack.has_value()) {
      return honest_->Push(Skip(info), encoded, bounds);
    }
    if (info.codec() != v1::CODEC_F32) {
      return {.status =
                  absl::UnimplementedError("attacks need f32 contributions")};
    }
    std::vector<float> altered(encoded.size() / sizeof(float));
    std::memcpy(altered.data(), encoded.data(), encoded.size());
    Apply(*hostility_.attack, absl::MakeSpan(altered));
    const absl::Span<const char> bytes = codec::F32Bytes(altered);
    v1::ContributionInfo altered_info = Skip(info);
    *altered_info.mutable_digest() = ContributionDigest(bytes).ToProto();
    return honest_->Push(altered_info, bytes, bounds);
  }

  server::TransferOutcome Pull(int32_t fragment, int64_t version,
                               const std::optional<Digest128>& expected,
                               absl::Span<float> out,
                               const server::CallBounds& bounds) override {
    return honest_->Pull(fragment, version, expected, out, bounds);
  }

  server::TransferOutcome PullReplica(
      int32_t fragment, int64_t version, int64_t from_version,
      absl::Span<float> out, const server::CallBounds& bounds) override {
    return honest_->PullReplica(fragment, version, from_version, out, bounds);
  }

  server::TransferOutcome Import(int32_t fragment,
                                 absl::Span<const float> elements,
                                 const server::CallBounds& bounds) override {
    return honest_->Import(fragment, elements, bounds);
  }

  server::TransferCounters counters() const override {
    return honest_->counters();
  }

 private:
  v1::ContributionInfo Skip(v1::ContributionInfo info) const {
    info.mutable_key()->set_seq(info.key().seq() + hostility_.skipped_seq_count);
    return info;
  }

  const std::unique_ptr<server::ParameterClient> honest_;
  const Hostility hostility_;
};

class AlteredControl final : public coordinator::IslandControlClient {
 public:
  explicit AlteredControl(const Hostility& hostility)
      : tokens_per_second_(hostility.claimed_tokens_per_second),
        step_count_max_(hostility.step_count_max) {}

  // Before the first call.
  void SetHonest(coordinator::IslandControlClient* honest) { honest_ = honest; }

  absl::StatusOr<v1::JoinResponse> Join(
      const v1::JoinRequest& request) override {
    v1::JoinRequest altered = request;
    if (tokens_per_second_ > 0) {
      altered.mutable_capabilities()->set_tokens_per_second(tokens_per_second_);
    }
    return honest_->Join(altered);
  }
  absl::Status ReportReady(int64_t commit_seq) override {
    return honest_->ReportReady(commit_seq);
  }
  absl::StatusOr<v1::HeartbeatResponse> Heartbeat(
      v1::HeartbeatRequest request) override {
    if (request.has_progress()) Alter(*request.mutable_progress());
    return honest_->Heartbeat(std::move(request));
  }
  absl::StatusOr<v1::IslandPlan> WaitForPlan(
      const coordinator::PlanPosition& after, absl::Duration timeout,
      std::stop_token stop) override {
    ASSIGN_OR_RETURN(v1::IslandPlan plan,
                     honest_->WaitForPlan(after, timeout, std::move(stop)));
    if (step_count_max_ == 0) return plan;
    for (v1::OpenRound& open : *plan.mutable_open_rounds()) {
      for (v1::SlotPlan& slot : *open.mutable_slots()) {
        slot.set_step_count(std::min(slot.step_count(), step_count_max_));
      }
    }
    return plan;
  }
  absl::Status ReportProgress(v1::ReportProgressRequest progress) override {
    Alter(progress);
    return honest_->ReportProgress(std::move(progress));
  }
  absl::Status Leave(v1::LeaveRequest leave) override {
    return honest_->Leave(std::move(leave));
  }

 private:
  void Alter(v1::ReportProgressRequest& progress) const {
    if (tokens_per_second_ > 0) {
      progress.set_tokens_per_second(tokens_per_second_);
    }
  }

  coordinator::IslandControlClient* honest_ = nullptr;
  const double tokens_per_second_;
  const int64_t step_count_max_;
};

absl::Status Join(const worker::RunIslandOptions& options,
                  const Hostility& hostility) {
  AlteredControl altered(hostility);
  return worker::RunIsland(
             options,
             [&](worker::IslandLinks& links) {
               altered.SetHonest(links.coordinator);
               links.coordinator = &altered;
               links.make_parameter_client =
                   [hostility, make = links.make_parameter_client](
                       const v1::Run& run, const HeldLayout& held)
                   -> absl::StatusOr<std::unique_ptr<server::ParameterClient>> {
                 ASSIGN_OR_RETURN(auto honest, make(run, held));
                 return std::make_unique<HostileClient>(std::move(honest),
                                                        hostility);
               };
             })
      .status();
}

int Main(int argc, char** argv) {
  worker::RunIslandOptions options;
  std::string verb;
  std::string attack_text;
  Hostility hostility;
  flags::Command app(
      "hostile_island",
      "An island that trains honestly and pushes altered gradients");
  app.Add("verb", verb).Required().Check(flags::IsMember({"join"}));
  app.Add("address", options.coordinator_address).Required();
  app.Add("--run", options.run_id).Required();
  app.Add("--island-id", options.island_id).Required();
  app.Add("--dir", options.work_directory).Required();
  app.Add("--threads", options.thread_count);
  app.Add("--data", options.data_path);
  app.Add("--attack", attack_text);
  app.Add("--claim", hostility.claimed_tokens_per_second);
  app.Add("--skip-seqs", hostility.skipped_seq_count);
  app.Add("--steps", hostility.step_count_max);
  app.Add("--tls-cert", options.security.tls.cert);
  app.Add("--tls-key", options.security.tls.key);
  app.Add("--tls-ca", options.security.tls.ca);
  if (const auto end = app.ParseOrEnd(argc, argv)) return *end;
  absl::Status status;
  if (!attack_text.empty()) {
    const absl::StatusOr<Attack> attack = ParseAttack(attack_text);
    status = attack.status();
    if (attack.ok()) hostility.attack = *attack;
  }
  if (status.ok()) status = Join(options, hostility);
  if (status.ok()) return 0;
  std::cerr << status << "\n";
  return 1;
}

}  // namespace
}  // namespace atl::benchmarks

int main(int argc, char** argv) { return atl::benchmarks::Main(argc, argv); }
