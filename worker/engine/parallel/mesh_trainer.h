// A replica of the model that trains on a mesh of ranks, each a thread with a
// device. gradient_norm() and router_loss() are the mesh's.
//
// In training a rank has only its shards: from a Step to the next Gather,
// parameters() and the moments of optimizer_state() are empty and their memory
// is released. From a Gather to the next Step a process has them a second time:
// 12 bytes per held element (4 with SGD).
//
// A process has one or more adjacent ranks and one Trainer. All processes make
// the same calls of Scatter, Gather, Step, EvaluateLoss and NextTokenLogits, in
// the same order with the same arguments. Apart from the order of sums, results
// and held elements do not depend on the mesh; held() depends on the process.
//
// Step takes the whole island's batch in each process: n sequences, n a
// multiple of D m. Micro-batch j is the j-th of m equal parts. Rank d of the D
// ranks of kBatchGroup takes the d-th of D equal parts of it. So a mesh trains
// like one rank with m micro-batches; without a load-balancing loss, with any
// number.
//
// INVALID_ARGUMENT, and a loss or gradient that is not finite, leave the
// trainer unchanged. Any other error of a rank ends the trainer on all ranks:
// this and all later calls return UNAVAILABLE with the failed rank and the
// reason. Build a new world then.

#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/collective/collective.h"
#include "worker/engine/device/cpu_devices.h"
#include "worker/engine/device/devices.h"
#include "worker/engine/parallel/layout/mesh_options.h"
#include "worker/engine/trainer.h"

namespace atl::engine {

// Needs no world; the command line uses it, too. INVALID_ARGUMENT: an option is
// out of range; the model does not divide by the mesh or the pipeline; the
// batch is not a multiple of ranks times micro-batches.
absl::Status ValidateMeshTrainer(const TrainerOptions& options,
                                 const MeshOptions& mesh_options);

// `world_ranks` are the ranks of this process from LocalWorld or TcpWorld:
// adjacent, in order, in a world of mesh.rank_count() ranks. The trainer takes
// them and ends before their world. All processes call it. options.thread_count
// compute threads are divided among the process's ranks, at least one each.
// Each rank computes on its device of `devices`, which outlive the trainer; all
// processes have one kind of device.
//
// INVALID_ARGUMENT: as above, or the world has another size.
// RESOURCE_EXHAUSTED: not enough memory or disk. Errors of Collective and
// Devices.
absl::StatusOr<std::unique_ptr<Trainer>> MakeMeshTrainer(
    const TrainerOptions& options, const MeshOptions& mesh_options,
    absl::Span<std::unique_ptr<collective::Collective>> world_ranks,
    Devices& devices = CpuDevices());

}  // namespace atl::engine
