// Threads that a lane of an island computes with, all its cores together.
// Thread-compatible: one loop at a time.

#pragma once

#include "base/codec/block_run.h"
#include "worker/engine/ops/cpu/thread_pool.h"

namespace atl::worker {

class WorkThreads {
 public:
  // `yields`: where processors are short, they leave them to the trainer.
  WorkThreads(int thread_count, bool yields);

  // Valid as long as this.
  codec::Loop loop();

 private:
  engine::ThreadPool pool_;
};

}  // namespace atl::worker
