// A rank's ways to the stages before and after its own.
//
// Thread-compatible. A way has as many buffers as a pipeline that follows its
// schedule needs, so that a send never waits for what its receiver has yet to
// do (pipeline_schedule.h): one for each chunk under way and one to write.

#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/collective/collective.h"
#include "worker/engine/parallel/layout/rank_groups.h"
#include "worker/engine/tensor/arena.h"
#include "worker/engine/tensor/memory.h"

namespace atl::engine {

// What a rank sends one way. Instantiated for float and double.
template <typename T>
class PipelineSender {
 public:
  // `group` (null: there is no way) and `memory`, where its buffers lie,
  // outlive it. Of messages of up to `count_max` elements, `capacity` of them
  // under way.
  //
  // RESOURCE_EXHAUSTED: no memory.
  absl::Status Init(collective::Collective* group, int64_t count_max,
                    int capacity, Memory& memory);

  // A free buffer [count_max]; the same until Send.
  T* buffer() { return buffers_[next_]; }

  // Sends `count` elements of buffer(). Waits until the receiver has all but
  // `capacity` - 1 of what was sent before.
  absl::Status Send(int64_t count);

  // Waits until all was received.
  absl::Status Finish();

  int64_t buffer_bytes() const {
    return static_cast<int64_t>(arena_.used_bytes());
  }

 private:
  collective::Collective* group_ = nullptr;
  int capacity_ = 1;
  Arena arena_;
  std::vector<T*> buffers_;
  size_t next_ = 0;
  std::deque<collective::Pending> under_way_;
};

// Waits for a message of `count` elements and puts it to `data`.
template <typename T>
absl::Status ReceiveMessage(collective::Collective& group, T* data,
                            int64_t count);

extern template class PipelineSender<float>;
extern template class PipelineSender<double>;

}  // namespace atl::engine
