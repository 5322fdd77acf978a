// A replica of the model that trains on a mesh of ranks, each a thread with a
// device.
//
// While it trains a rank has its shards alone: from a Step to the next Gather
// parameters() and the moments of optimizer_state() are empty, and their memory
// is given back. At a Gather, and until the next Step, a process has them a
// second time, 12 bytes of each element that it holds (4 with SGD).
//
// A process brings one or more neighbouring ranks of the mesh; each process has
// a Trainer, and all make the same calls in the same order with the same
// arguments (engine/trainer.h says which need it: Scatter, Gather, Step,
// EvaluateLoss, NextTokenLogits). Results, and what is held, do not depend on
// the mesh but for the order of sums; held() does, by process.
//
// Step takes the whole island's batch in each process, n sequences, n a
// multiple of D m. Micro-batch j is the j-th of m equal parts of them, and rank
// d of the D ranks of kBatchGroup takes the d-th of D equal parts of that. So a
// mesh trains as one rank with as many micro-batches, also where the loss that
// balances experts is one of a micro-batch; without that loss as one rank with
// any number of them.
//
// Errors. INVALID_ARGUMENT and a loss or gradient that is not finite leave the
// trainer as it was. Any other error of any rank ends the trainer on all ranks:
// the call, and all later ones, return UNAVAILABLE with the rank that failed
// and why. Build a new world.
//
// gradients() is empty; gradient_norm() and router_loss() are the mesh's.

#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/collective/collective.h"
#include "worker/engine/device/cpu_devices.h"
#include "worker/engine/device/devices.h"
#include "worker/engine/parallel/layout/mesh_options.h"
#include "worker/engine/trainer.h"

namespace atl::engine {

// What is wrong with them together, before there is a world: the command line
// asks.
//
// INVALID_ARGUMENT: an option is out of range; the model does not divide as the
// mesh or the pipeline wants; the batch is not a multiple of ranks times
// micro-batches. One sentence.
absl::Status ValidateMeshTrainer(const TrainerOptions& options,
                                 const MeshOptions& mesh_options);

// `world_ranks` are the ranks of this process, as LocalWorld or TcpWorld gives
// them: neighbours, in order, of a world of mesh.rank_count() ranks. They are
// moved from, and end with the trainer, before their world. All processes call
// it. options.thread_count threads compute, divided among the process's ranks,
// one each at least. Each rank computes on its device of `devices`, which
// outlive the trainer, and all processes have devices of one kind.
//
// INVALID_ARGUMENT: as above, or the world has another size.
// RESOURCE_EXHAUSTED: not enough memory or disk. Errors of Collective and of
// Devices.
absl::StatusOr<std::unique_ptr<Trainer>> MakeMeshTrainer(
    const TrainerOptions& options, const MeshOptions& mesh_options,
    absl::Span<std::unique_ptr<collective::Collective>> world_ranks,
    Devices& devices = CpuDevices());

}  // namespace atl::engine
