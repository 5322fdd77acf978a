#include "worker/island/group/island_place.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/host_port/host_port.h"
#include "base/status/status_macros.h"
#include "worker/engine/device/device_spec.h"

namespace atl::worker {
namespace {

// Micro-batches that keep a pipeline of S stages busy for 2/3 of its time.
constexpr int64_t kMicroBatchesAStage = 2;

// "cuda" of "cuda:1"; the text itself if it is not a device.
std::string ToKind(const std::string& device) {
  const auto spec = engine::ParseDeviceSpec(device);
  if (!spec.ok()) return device;
  return spec->kind == engine::DeviceKind::kCpu ? "cpu" : "cuda";
}

}  // namespace

absl::StatusOr<engine::Mesh> MakeMesh(const IslandPlace& place) {
  ASSIGN_OR_RETURN(const engine::Mesh mesh, engine::Mesh::Parse(place.mesh));
  RETURN_IF_ERROR(engine::ParseDeviceSpec(place.device).status());
  if (place.optimizer_on_host && !place.optimizer_directory.empty()) {
    return absl::InvalidArgumentError(
        "the inner optimizer's state lies in the host's memory or in a "
        "directory, not in both");
  }
  if (place.process_count < 1) {
    return absl::InvalidArgumentError("an island has at least one process");
  }
  if (place.process_index < 0 || place.process_index >= place.process_count) {
    return absl::InvalidArgumentError(
        absl::StrCat("process_index is ", place.process_index, ", but of ",
                     place.process_count, " processes the last is ",
                     place.process_count - 1));
  }
  if (mesh.rank_count() % place.process_count != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the mesh \"", place.mesh, "\" has ", mesh.rank_count(),
        " ranks, which ", place.process_count,
        " processes cannot share evenly; each takes the same number"));
  }
  if (place.process_count == 1) {
    if (place.rendezvous.empty()) return mesh;
    return absl::InvalidArgumentError(
        "a rendezvous is given, but the island has one process: set processes "
        "too, or leave it out");
  }
  if (!ParseHostPort(place.rendezvous).ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rendezvous is \"", place.rendezvous,
        "\"; several processes need a "
        "HOST:PORT at which process 0 listens and the others reach it"));
  }
  return mesh;
}

engine::MeshOptions MakeMeshOptions(const IslandPlace& place,
                                    const engine::Mesh& mesh,
                                    int64_t batch_size) {
  engine::MeshOptions options;
  options.mesh = mesh;
  options.sharding = place.sharding;
  options.pipeline = place.pipeline;
  options.chunk_count = place.chunk_count;
  options.checkpointing = place.checkpointing;
  options.optimizer_directory = place.optimizer_directory;
  options.optimizer_on_host = place.optimizer_on_host;
  if (place.micro_batch_count > 0) {
    options.micro_batch_count = place.micro_batch_count;
    return options;
  }
  const int64_t sequence_count = batch_size / mesh.size(engine::kBatchGroup);
  const int64_t stage_count = mesh.size(engine::MeshDimension::kPp);
  if (stage_count == 1) return options;
  for (int64_t m = std::min(sequence_count, kMicroBatchesAStage * stage_count);
       m > 1; --m) {
    if (sequence_count % m != 0) continue;
    options.micro_batch_count = static_cast<int>(m);
    break;
  }
  return options;
}

bool IsPlainRank(const IslandPlace& place, const engine::Mesh& mesh) {
  return mesh.rank_count() == 1 && place.micro_batch_count <= 1 &&
         place.chunk_count == 1 &&
         place.checkpointing == engine::ActivationCheckpointing::kNone &&
         place.optimizer_directory.empty() && !place.optimizer_on_host;
}

std::string DescribeAgreement(const IslandPlace& place,
                              const engine::Mesh& mesh) {
  return absl::StrCat(
      mesh.ToString(), " sharding=", static_cast<int>(place.sharding),
      " pipeline=", static_cast<int>(place.pipeline),
      " chunks=", place.chunk_count, " micro_batches=", place.micro_batch_count,
      " checkpointing=", static_cast<int>(place.checkpointing),
      " device=", ToKind(place.device));
}

}  // namespace atl::worker
