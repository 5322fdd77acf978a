// What an island chooses about how its ranks share the work.
//
// Pure.

#pragma once

#include <string>

#include "worker/engine/parallel/layout/mesh.h"
#include "worker/engine/parallel/layout/pipeline_schedule.h"

namespace atl::engine {

// What the ranks of kShardGroup (an expert's: kExpertShardGroup) divide among
// them; the rest each has whole. dp_replicate always has copies.
enum class ShardingMode {
  kReplicate,  // Nothing: DDP.
  kZero1,      // The optimizer's state.
  kZero2,      // And gradients.
  kZero3,      // And parameters: FSDP; with dp_replicate, HSDP.
};

// What a forward pass keeps of a block for its backward pass.
enum class ActivationCheckpointing {
  kNone,
  // Its input, and what products and attention gave; norms and activation
  // functions are computed again.
  kSelective,
  kFull,  // Its input; all is computed again.
};

struct MeshOptions {
  Mesh mesh;
  // m: the sequences of a step are cut into so many parts, which are computed
  // one after the other and whose gradients are added up. >= 1.
  int micro_batch_count = 1;
  ShardingMode sharding = ShardingMode::kZero3;
  PipelineKind pipeline = PipelineKind::kOneForwardOneBackward;
  int chunk_count = 1;  // v: stages a rank; above 1 only with kInterleaved.
  ActivationCheckpointing checkpointing = ActivationCheckpointing::kNone;
  // Not "": the optimizer's state lies in files of this directory, which is
  // there, and not in memory. They have no name and end with the trainer.
  std::string optimizer_directory;
  // The optimizer's state lies in the host's memory, beside that of a device.
  // Not with a directory.
  bool optimizer_on_host = false;
};

}  // namespace atl::engine
