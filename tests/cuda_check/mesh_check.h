// Compares meshes of ranks, one per process, with a single rank.

#pragma once

#include <cstdint>

#include "tests/cuda_check/report.h"
#include "worker/collective/collective.h"
#include "worker/engine/device/devices.h"

namespace atl::engine::check {

// All ranks of `world`, 2 or 4, call this with the same `seed`. The cases are
// meshes of that size: every dimension alone, the smallest mixed ones, every
// way to shard, both pipelines. A small model trains up to 20 `steps` on the
// mesh and on one rank, both on `devices`. Each step's loss and gradient norm
// and the final loss must agree but for the order of sums, in f32 and with bf16
// products (mixtures: f32 only).
void CheckMeshes(collective::Collective& world, Devices& devices, uint64_t seed,
                 int steps, Report& report);

}  // namespace atl::engine::check
