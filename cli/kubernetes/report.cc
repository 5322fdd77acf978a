#include "cli/kubernetes/report.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/substitute.h"
#include "cli/output/table.h"

namespace atl::cli {
namespace {

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
       {"history_bytes", need.coordinator.history_bytes},
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
       absl::StrCat("itself ", Bytes(need.coordinator.own_bytes), ", islands ",
                    Bytes(need.coordinator.history_bytes))});
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
