// The division of work among an island's ranks. Pure.

#pragma once

#include <string>

#include "worker/engine/parallel/layout/mesh.h"
#include "worker/engine/parallel/layout/pipeline_schedule.h"

namespace atl::engine {

// The state that the ranks of kShardGroup (experts: kExpertShardGroup) divide.
// Each rank has the rest whole. dp_replicate always has copies.
enum class ShardingMode {
  kReplicate,  // Nothing: DDP.
  kZero1,      // The optimizer's state.
  kZero2,      // Also the gradients.
  kZero3,      // Also the parameters: FSDP; with dp_replicate, HSDP.
};

// The values of a block that a forward pass keeps for the backward pass.
enum class ActivationCheckpointing {
  kNone,
  // Its input, and the outputs of products and attention. Norms and activation
  // functions are recomputed.
  kSelective,
  kFull,  // Its input; the rest is recomputed.
};

struct MeshOptions {
  Mesh mesh;
  // m: the parts of a step's sequences. They are computed one after the other,
  // and their gradients are summed. >= 1.
  int micro_batch_count = 1;
  ShardingMode sharding = ShardingMode::kZero3;
  PipelineKind pipeline = PipelineKind::kOneForwardOneBackward;
  int chunk_count = 1;  // v: stages per rank; above 1 only with kInterleaved.
  ActivationCheckpointing checkpointing = ActivationCheckpointing::kNone;
  // If not empty, the optimizer's state is in unnamed files of this existing
  // directory, not in memory. The files end with the trainer.
  std::string optimizer_directory;
  // The optimizer's state is in host memory. Not with optimizer_directory.
  bool optimizer_on_host = false;
};

}  // namespace atl::engine
