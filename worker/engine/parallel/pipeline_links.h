// A rank's links to adjacent stages.
//
// Thread-compatible. A link has enough buffers that a send of the schedule
// never waits for later work of its receiver (pipeline_schedule.h): one per
// chunk in progress and one to write.

#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "worker/collective/collective.h"
#include "worker/engine/parallel/layout/rank_groups.h"
#include "worker/engine/tensor/arena.h"
#include "worker/engine/tensor/memory.h"

namespace atl::engine {

// The sending end of a link. Instantiated for float and double.
template <typename T>
class PipelineSender {
 public:
  // `group` (null: no link) and `memory`, which has the buffers, outlive it. A
  // message has up to `count_max` elements; `capacity` messages may be in
  // flight. RESOURCE_EXHAUSTED: no memory.
  absl::Status Init(collective::Collective* group, int64_t count_max,
                    int capacity, Memory& memory);

  // A free buffer [count_max]; it changes only in Send.
  T* buffer() { return buffers_[next_]; }

  // Sends `count` elements of buffer(). Waits until at most `capacity` - 1
  // earlier messages are in flight.
  absl::Status Send(int64_t count);

  // Waits until all messages are received.
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

// Waits for a message of `count` elements and writes it to `data`.
template <typename T>
absl::Status ReceiveMessage(collective::Collective& group, T* data,
                            int64_t count);

extern template class PipelineSender<float>;
extern template class PipelineSender<double>;

}  // namespace atl::engine
