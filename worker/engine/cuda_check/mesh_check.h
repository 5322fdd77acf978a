// Meshes of ranks, each a process's only one, against one rank.

#ifndef WORKER_ENGINE_CUDA_CHECK_MESH_CHECK_H_
#define WORKER_ENGINE_CUDA_CHECK_MESH_CHECK_H_

#include <cstdint>

#include "worker/collective/collective.h"
#include "worker/engine/cuda_check/report.h"
#include "worker/engine/device/devices.h"

namespace atl::engine::check {

// What one rank of `world`, of 2 or 4, does of it; all call it with the same
// `seed`. For each mesh of that many ranks (every dimension alone and the
// smallest mixed ones, every way to shard, both pipelines) a small model trains
// up to 20 `steps` on the mesh and on one rank, both on `devices`: each step's
// loss and gradient norm, and the loss after it all, are the same but for the
// order of sums, in f32 and with bf16 products (mixtures in f32 alone).
void CheckMeshes(collective::Collective& world, Devices& devices, uint64_t seed,
                 int steps, Report& report);

}  // namespace atl::engine::check

#endif  // WORKER_ENGINE_CUDA_CHECK_MESH_CHECK_H_
