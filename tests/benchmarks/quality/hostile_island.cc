// An island that trains honestly and pushes altered gradients, for the quality
// benchmark. Not part of the product.
//
//   hostile_island join HOST:PORT --run R --island-id I --dir D --threads N
//       --attack sign_flip|scale:100|drift:1
//
// Everything except the push is `atoll join`'s code. A client between the
// island and its parameter client alters each outer gradient and its digest, so
// that a shard cannot detect it by its form.

#include <cstring>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/codec/f32_bytes.h"
#include "base/layout/digest.h"
#include "base/obs/flags.h"
#include "base/status/status_macros.h"
#include "server/client/parameter_client.h"
#include "tests/benchmarks/quality/attack.h"
#include "worker/api/run_island.h"

namespace atl::benchmarks {
namespace {

class HostileClient final : public server::ParameterClient {
 public:
  HostileClient(std::unique_ptr<server::ParameterClient> honest, Attack attack)
      : honest_(std::move(honest)), attack_(attack) {}

  void SetRoutes(server::ShardRoutes routes) override {
    honest_->SetRoutes(std::move(routes));
  }
  void SetIdentity(server::PushIdentity identity) override {
    honest_->SetIdentity(std::move(identity));
  }

  server::TransferOutcome Push(const v1::ContributionInfo& info,
                               absl::Span<const char> encoded,
                               const server::CallBounds& bounds) override {
    if (info.codec() != v1::CODEC_F32) {
      return {.status =
                  absl::UnimplementedError("attacks need f32 contributions")};
    }
    std::vector<float> altered(encoded.size() / sizeof(float));
    std::memcpy(altered.data(), encoded.data(), encoded.size());
    Apply(attack_, absl::MakeSpan(altered));
    const absl::Span<const char> bytes = codec::F32Bytes(altered);
    v1::ContributionInfo altered_info = info;
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
  const std::unique_ptr<server::ParameterClient> honest_;
  const Attack attack_;
};

absl::Status Join(const worker::RunIslandOptions& options,
                  const Attack& attack) {
  return worker::RunIsland(
             options,
             [&](worker::IslandLinks& links) {
               links.make_parameter_client =
                   [attack, make = links.make_parameter_client](
                       const v1::Run& run, const HeldLayout& held)
                   -> absl::StatusOr<std::unique_ptr<server::ParameterClient>> {
                 ASSIGN_OR_RETURN(auto honest, make(run, held));
                 return std::make_unique<HostileClient>(std::move(honest),
                                                        attack);
               };
             })
      .status();
}

int Main(int argc, char** argv) {
  worker::RunIslandOptions options;
  std::string verb;
  std::string attack_text;
  CLI::App app("An island that trains honestly and pushes altered gradients");
  app.add_option("verb", verb)->required()->check(CLI::IsMember({"join"}));
  app.add_option("address", options.coordinator_address)->required();
  app.add_option("--run", options.run_id)->required();
  app.add_option("--island-id", options.island_id)->required();
  app.add_option("--dir", options.work_directory)->required();
  app.add_option("--threads", options.thread_count);
  app.add_option("--attack", attack_text)->required();
  atl::SpellFlagsWithDashes(argc, argv);
  CLI11_PARSE(app, argc, argv);
  const absl::StatusOr<Attack> attack = ParseAttack(attack_text);
  const absl::Status status =
      attack.ok() ? Join(options, *attack) : attack.status();
  if (status.ok()) return 0;
  std::cerr << status << "\n";
  return 1;
}

}  // namespace
}  // namespace atl::benchmarks

int main(int argc, char** argv) { return atl::benchmarks::Main(argc, argv); }
