#include "worker/engine/parallel/pipeline_links.h"

#include "base/status/status_macros.h"

namespace atl::engine {

using collective::Call;

template <typename T>
absl::Status PipelineSender<T>::Init(collective::Collective* group,
                                     int64_t count_max, int capacity,
                                     Memory& memory) {
  group_ = group;
  capacity_ = capacity;
  // Without a link a pass still writes to one buffer.
  buffers_.resize(group == nullptr ? 1 : capacity + 1);
  const auto take = [&](Arena& arena) {
    for (T*& buffer : buffers_) buffer = arena.Take<T>(count_max);
  };
  ASSIGN_OR_RETURN(arena_, Arena::CreateFor(take, memory));
  return absl::OkStatus();
}

template <typename T>
absl::Status PipelineSender<T>::Send(int64_t count) {
  while (static_cast<int>(under_way_.size()) >= capacity_) {
    RETURN_IF_ERROR(under_way_.front().Wait());
    under_way_.pop_front();
  }
  under_way_.push_back(group_->Start(Call::Transfers(
      {collective::SendTo(1 - group_->rank(), buffer(),
                          count * static_cast<int64_t>(sizeof(T)))})));
  next_ = (next_ + 1) % buffers_.size();
  return absl::OkStatus();
}

template <typename T>
absl::Status PipelineSender<T>::Finish() {
  while (!under_way_.empty()) {
    RETURN_IF_ERROR(under_way_.front().Wait());
    under_way_.pop_front();
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status ReceiveMessage(collective::Collective& group, T* data,
                            int64_t count) {
  return group.Receive(1 - group.rank(), data,
                       count * static_cast<int64_t>(sizeof(T)));
}

template class PipelineSender<float>;
template class PipelineSender<double>;
template absl::Status ReceiveMessage(collective::Collective&, float*, int64_t);
template absl::Status ReceiveMessage(collective::Collective&, double*, int64_t);

}  // namespace atl::engine
