#include "cli/kubernetes/resources.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/substitute.h"
#include "cli/output/table.h"

namespace atl::cli {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;
constexpr int64_t kElementBytes = 4;
constexpr int64_t kBlockBytes = 16384;
constexpr int64_t kHugePageBytes = 2 * kMib;
constexpr int64_t kChunkBytes = kMib;

// Measured: resident memory of a program with a tiny run.
constexpr int64_t kServerBytes = 64 * kMib;
constexpr int64_t kIslandBytes = 192 * kMib;

// server/service: places of push streams; the client opens a few each.
constexpr int64_t kStreamCountMax = 256;
constexpr int64_t kStreamsAnIsland = 8;
constexpr int64_t kPullBufferBytes = 64 * kMib;
constexpr int64_t kLiveMergeBytes = 1024 * kMib;  // --live-merge-mib's default.
// Automatic checkpoints of a run (proto/LIMITS.md).
constexpr int64_t kCheckpointsMax = 32;

// Arrays of the outer optimizer's state.
int64_t StateCount(v1::OuterOptimizerKind kind) {
  switch (kind) {
    case v1::OUTER_OPTIMIZER_KIND_SGD:
    case v1::OUTER_OPTIMIZER_KIND_FEDAVG:
      return 0;
    case v1::OUTER_OPTIMIZER_KIND_FEDADAM:
    case v1::OUTER_OPTIMIZER_KIND_FEDYOGI:
    case v1::OUTER_OPTIMIZER_KIND_FEDADAGRAD:
    case v1::OUTER_OPTIMIZER_KIND_DELAYED_NESTEROV:
      return 2;
    default:
      return 1;
  }
}

bool IsLossy(codec::CodecId codec) { return codec != codec::CodecId::kF32; }

// Checkpoints that a run keeps at most; `final` is its newest version.
int64_t CountCheckpoints(const v1::RunSpec& run) {
  const int64_t every = run.checkpoint_every_round_count();
  if (every == 0) return 0;
  const int64_t rounds = run.schedule().round_count();
  return rounds == 0 ? kCheckpointsMax
                     : std::min(kCheckpointsMax, rounds / every);
}

ServerResources PlanServer(const ResourceInput& input) {
  const auto fragment_count =
      static_cast<int64_t>(input.exchange.fragment_elements.size());
  const int64_t elements =
      (input.model.element_count + input.server_count - 1) /
          input.server_count +
      fragment_count * kBlockBytes / kElementBytes;
  const int64_t share = elements * kElementBytes;
  const int64_t up =
      worker::planner::EncodedBytes(input.exchange.up_codec, elements);
  const int64_t down =
      worker::planner::EncodedBytes(input.exchange.down_codec, elements);
  const bool replica = IsLossy(input.exchange.down_codec);
  const int64_t array_count =
      1 + StateCount(input.run.outer().optimizer()) + (replica ? 1 : 0);
  const bool at_islands = input.run.durability() == v1::DURABILITY_ISLAND;
  const bool async = input.run.schedule().max_staleness() > 0;

  const int64_t version = array_count * share;
  const int64_t contributions =
      int64_t{input.island_count} * up * (async ? 4 : 2);
  const int64_t version_count =
      (replica ? 11 : 9) + CountCheckpoints(input.run);

  ServerResources server;
  server.image_bytes = version + (replica ? 2 * down : share) +
                       (array_count + 2) * fragment_count * 2 * kHugePageBytes;
  server.other_bytes =
      (version_count * version + contributions) / 4096 + kPullBufferBytes +
      std::min(kStreamCountMax, kStreamsAnIsland * input.island_count) *
          kChunkBytes;
  if (at_islands) {
    server.other_bytes +=
        std::min(kLiveMergeBytes, int64_t{input.island_count} * up);
  }
  server.own_bytes = kServerBytes;
  server.disk_bytes = version_count * version + contributions + share +
                      (replica ? share : 0) + (at_islands ? 2 * share : 0) +
                      64 * kMib;  // Records, headers.
  return server;
}

coordinator::CoordinatorCost PlanCoordinator(const ResourceInput& input) {
  coordinator::CoordinatorLoad load;
  load.island_count = input.island_count;
  load.fragment_count =
      static_cast<int64_t>(input.exchange.fragment_elements.size());
  load.server_count = input.server_count;
  load.kept_round_count = input.run.history().keep_round_count() > 0
                              ? input.run.history().keep_round_count()
                              : 10000;
  return coordinator::CostOfCoordinator(load);
}

int64_t ActivationBytes(const ResourceInput& input) {
  double hidden = 0, width = 0, vocabulary = 32000, heads = 0, length = 1024;
  const double layers =
      static_cast<double>(std::max<int64_t>(1, input.model.layer_count));
  if (input.model.spec.has_value()) {
    const v1::ModelSpec& spec = *input.model.spec;
    hidden = spec.hidden_size();
    width = spec.intermediate_size() * std::max(1, spec.experts_per_token());
    vocabulary = spec.vocab_size();
    heads = spec.head_count();
    length = spec.sequence_length();
  } else {
    // A llama of that size: 12 hidden^2 a layer.
    hidden = std::sqrt(static_cast<double>(input.model.element_count) /
                       (12 * layers));
    width = 8 * hidden / 3;
    heads = hidden / 64;
  }
  // Activations of one token and layer: norms, products, attention's rows
  // and weights.
  const double layer = 14 * hidden + 4 * width + heads * length / 4;
  const double token = layers * layer + 4 * hidden + 3 * vocabulary;
  // The bound prevents an overflow: batch and length may be any numbers.
  constexpr double kMost = 0x1p60;
  return static_cast<int64_t>(
      std::min(kMost, kElementBytes * token *
                          static_cast<double>(input.tokens_a_step)));
}

IslandResources PlanIsland(const ResourceInput& input) {
  const int64_t array = kElementBytes * input.model.element_count;
  const bool adamw =
      input.run.inner().optimizer() != v1::INNER_OPTIMIZER_KIND_SGD;
  const bool replica = IsLossy(input.exchange.down_codec);
  const bool encodes = IsLossy(input.exchange.up_codec);
  const int64_t up = worker::planner::EncodedBytes(input.exchange.up_codec,
                                                   input.model.element_count);
  const int64_t moments = adamw ? 2 * array : 0;

  IslandResources island;
  island.model_bytes = 2 * array + moments;
  island.activation_bytes = ActivationBytes(input);
  // Anchors, the contribution, and a version that is pulled.
  island.exchange_bytes = 2 * array + up;
  if (replica) island.exchange_bytes += array;  // Theta, for an evaluation.
  if (encodes && input.run.exchange().error_feedback()) {
    island.exchange_bytes += 2 * array;
  }
  int64_t saved = moments + up;
  if (input.exchange.streaming) saved += array;
  if (encodes && input.run.exchange().error_feedback()) saved += 2 * array;
  if (input.exchange.overlap_step_count > 0) {
    // The outer gradient and the saved state are copied.
    island.exchange_bytes += 2 * array + moments;
  }
  if (input.run.schedule().eager()) island.exchange_bytes += 3 * array;
  island.own_bytes = kIslandBytes;
  island.disk_bytes = 2 * saved + 64 * kMib;
  return island;
}

std::string Mib(int64_t count) { return absl::StrCat(count, "Mi"); }

std::string Bytes(int64_t bytes) {
  return absl::StrFormat("%d MiB", (bytes + (1 << 20) - 1) >> 20);
}

// Memory without CPU: requests and limits are equal, so the kubelet evicts such
// a pod last.
std::string Memory(int64_t mib) {
  return absl::StrCat("{requests: {memory: ", mib,
                      "Mi}, limits: {memory: ", mib, "Mi}}");
}

}  // namespace

Resources PlanResources(const ResourceInput& input) {
  return {PlanCoordinator(input), PlanServer(input), PlanIsland(input)};
}

int64_t WithMarginMib(int64_t bytes) {
  return (bytes / 4 * 5 + kMib - 1) / kMib;
}

int64_t ServerMemoryMib(const ServerResources& server) {
  return std::max(WithMarginMib(server.memory_bytes()),
                  (2 * server.image_bytes + kMib - 1) / kMib);
}

std::string ResourcesValues(const ResourceInput& input) {
  const Resources need = PlanResources(input);
  const bool strict = input.run.schedule().timing() == v1::TIMING_STRICT;
  return absl::Substitute(
      "coordinator:\n"
      "  persistence: {size: $0}\n"
      "  resources: $1\n"
      "server:\n"
      "  replicas: $2\n"
      "  persistence: {size: $3}\n"
      "  resources: $4\n"
      "islands:\n"
      "  - name: island\n"
      "    kind: $5\n"
      "    replicas: $6\n"
      "    workSize: $7\n"
      "    resources: $8\n",
      Mib(WithMarginMib(need.coordinator.disk_bytes)),
      Memory(WithMarginMib(need.coordinator.memory_bytes())),
      input.server_count, Mib(WithMarginMib(need.server.disk_bytes)),
      Memory(ServerMemoryMib(need.server)), strict ? "StatefulSet" : "Job",
      input.island_count, Mib(WithMarginMib(need.island.disk_bytes)),
      Memory(WithMarginMib(need.island.memory_bytes())));
}

Json ResourcesData(const ResourceInput& input) {
  const Resources need = PlanResources(input);
  Json items = Json::array();
  items.push_back(
      {{"program", "coordinator"},
       {"replicas", 1},
       {"memory_mib", WithMarginMib(need.coordinator.memory_bytes())},
       {"disk_mib", WithMarginMib(need.coordinator.disk_bytes)},
       {"own_bytes", need.coordinator.own_bytes},
       {"connection_bytes", need.coordinator.connection_bytes},
       {"member_bytes", need.coordinator.member_bytes},
       {"disk_bytes", need.coordinator.disk_bytes}});
  items.push_back({{"program", "server"},
                   {"replicas", input.server_count},
                   {"memory_mib", ServerMemoryMib(need.server)},
                   {"disk_mib", WithMarginMib(need.server.disk_bytes)},
                   {"own_bytes", need.server.own_bytes},
                   {"image_bytes", need.server.image_bytes},
                   {"other_bytes", need.server.other_bytes},
                   {"disk_bytes", need.server.disk_bytes}});
  items.push_back({{"program", "island"},
                   {"replicas", input.island_count},
                   {"memory_mib", WithMarginMib(need.island.memory_bytes())},
                   {"disk_mib", WithMarginMib(need.island.disk_bytes)},
                   {"own_bytes", need.island.own_bytes},
                   {"model_bytes", need.island.model_bytes},
                   {"activation_bytes", need.island.activation_bytes},
                   {"exchange_bytes", need.island.exchange_bytes},
                   {"disk_bytes", need.island.disk_bytes}});
  return items;
}

std::string ResourcesText(const ResourceInput& input) {
  const Resources need = PlanResources(input);
  Table table({"PROGRAM", ">REPLICAS", ">MEMORY", ">DISK", "MEMORY IS FOR"});
  table.AddRow(
      {"coordinator", "1", Mib(WithMarginMib(need.coordinator.memory_bytes())),
       Mib(WithMarginMib(need.coordinator.disk_bytes)),
       absl::StrCat("itself ", Bytes(need.coordinator.own_bytes),
                    ", connections ", Bytes(need.coordinator.connection_bytes),
                    ", islands ", Bytes(need.coordinator.member_bytes))});
  table.AddRow({"server", absl::StrCat(input.server_count),
                Mib(ServerMemoryMib(need.server)),
                Mib(WithMarginMib(need.server.disk_bytes)),
                absl::StrCat("itself ", Bytes(need.server.own_bytes),
                             ", versions ", Bytes(need.server.image_bytes),
                             ", buffers ", Bytes(need.server.other_bytes))});
  table.AddRow(
      {"island", absl::StrCat(input.island_count),
       Mib(WithMarginMib(need.island.memory_bytes())),
       Mib(WithMarginMib(need.island.disk_bytes)),
       absl::StrCat("itself ", Bytes(need.island.own_bytes), ", model ",
                    Bytes(need.island.model_bytes), ", activations ",
                    Bytes(need.island.activation_bytes), ", exchange ",
                    Bytes(need.island.exchange_bytes))});
  return absl::StrCat(
      table.ToString(),
      "\nMEMORY and DISK are a quarter above the need; a server's memory is "
      "also at least\ntwice its versions, because --memory-mib 0 gives them "
      "half of the limit. \"Itself\"\nand activations are measured, the rest "
      "follows from the model. Pins, other runs\nand data sets in memory come "
      "on top. On a GPU, model and activations are in its\nmemory. A process "
      "of a mesh needs its part of the model.\n\nValues for helm "
      "(-f FILE):\n\n",
      ResourcesValues(input));
}

}  // namespace atl::cli
