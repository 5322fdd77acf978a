#include "worker/engine/model/ring_attention.h"

#include <utility>
#include <vector>

#include "worker/collective/call.h"
#include "worker/collective/collective.h"
#include "worker/engine/model/unit_slice.h"

namespace atl::engine {
namespace {

using collective::Call;
using collective::Pending;
using collective::Transfer;

// One rank's place in the ring, and its transfers.
template <typename T>
class Ring {
 public:
  Ring(Workspace<T>& work, const AttentionShape& shape)
      : work_(work),
        shape_(shape),
        size_(work.slice.cp_size),
        rank_(work.slice.cp_rank),
        kv_size_(2 * shape.kv_head_count * shape.head_dim) {}

  int size() const { return size_; }
  int64_t count() const { return shape_.rows() * kv_size_; }

  // Copies keys and values out of qkv, or their gradients out of dqkv.
  void Take(const T* qkv, T* keys_values) {
    work_.ops.CopyColumns(shape_.rows(), kv_size_, qkv + shape_.out_size(),
                          shape_.qkv_size(), keys_values, kv_size_);
  }
  void PutBack(const T* keys_values, T* qkv) {
    work_.ops.CopyColumns(shape_.rows(), kv_size_, keys_values, kv_size_,
                          qkv + shape_.out_size(), shape_.qkv_size());
  }

  // Sends `mine` to the next rank, receives the previous one's in `arriving`.
  void Pass(const T* mine, T* arriving, std::vector<Transfer>& transfers) {
    const int64_t bytes = count() * static_cast<int64_t>(sizeof(T));
    transfers.push_back(collective::SendTo((rank_ + 1) % size_, mine, bytes));
    transfers.push_back(
        collective::ReceiveFrom((rank_ + size_ - 1) % size_, arriving, bytes));
  }
  Pending Start(std::vector<Transfer> transfers) {
    if (!work_.ok()) return {};
    return work_.groups.cp->Start(Call::Transfers(std::move(transfers)));
  }
  // True if there is no error.
  bool Wait(Pending& pending) {
    work_.Latch(pending.Wait());
    return work_.ok();
  }

  // The part of the held keys that this rank's queries see after `step` steps.
  // These are the keys of the rank `step` places before it.
  AttentionBlock FindBlock(int step) const {
    const int64_t length = shape_.sequence_length, half = length / 2;
    if (step <= rank_) {  // Keys of a lower rank.
      return {.shape = shape_, .query_count = length, .key_count = half};
    }
    return {.shape = shape_,
            .query_begin = half,
            .query_count = half,
            .key_count = length};
  }

 private:
  Workspace<T>& work_;
  const AttentionShape shape_;
  const int size_, rank_;
  const int64_t kv_size_;
};

}  // namespace

template <typename T>
const T* LocalRopeTable(Workspace<T>& work, int64_t sequence_length) {
  if (work.rope_table == nullptr || work.slice.cp_size == 1) {
    return work.rope_table;
  }
  if (work.local_rope_table_length == sequence_length) {
    return work.local_rope_table;
  }
  const int64_t head_dim = work.config.head_dim();
  T* to = work.local_rope_table;
  for (const Range& run :
       SequenceRuns(work.slice, sequence_length * work.slice.cp_size)) {
    const int64_t count = run.size() * head_dim;
    work.ops.CopyColumns(1, count, work.rope_table + run.begin * head_dim,
                         count, to, count);
    to += count;
  }
  work.local_rope_table_length = sequence_length;
  return work.local_rope_table;
}

template <typename T>
void RingAttention(Workspace<T>& work, const AttentionShape& shape,
                   const T* qkv, T* out, T* log_sum) {
  if (work.groups.cp == nullptr) {
    work.ops.Attention(shape, qkv, out, log_sum);
    return;
  }
  Ring<T> ring(work, shape);
  T *held = work.keys_values[0], *arriving = work.keys_values[1];
  const auto pass = [&](int step) -> Pending {
    if (step == ring.size()) return {};
    std::vector<Transfer> transfers;
    ring.Pass(held, arriving, transfers);
    return ring.Start(std::move(transfers));
  };
  ring.Take(qkv, held);
  Pending pending = pass(1);
  work.ops.Attention(shape, qkv, out, log_sum);
  for (int step = 1; step < ring.size(); ++step) {
    if (!ring.Wait(pending)) return;
    std::swap(held, arriving);
    pending = pass(step + 1);
    work.ops.AttendBlock(ring.FindBlock(step), qkv, held, out, log_sum);
  }
}

template <typename T>
void RingAttentionBackward(Workspace<T>& work, const AttentionShape& shape,
                           const T* qkv, const T* out, const T* log_sum,
                           const T* dout, T* dqkv) {
  if (work.groups.cp == nullptr) {
    work.ops.AttentionBackward(shape, qkv, out, log_sum, dout, dqkv);
    return;
  }
  Ring<T> ring(work, shape);
  T *held = work.keys_values[0], *arriving = work.keys_values[1];
  T *sum = work.kv_gradients[0], *arriving_sum = work.kv_gradients[1];
  T* const own = work.kv_gradients[2];
  // Sends keys and values for step `step`, and the previous step's gradients.
  const auto pass = [&](int step) -> Pending {
    std::vector<Transfer> transfers;
    if (step < ring.size()) ring.Pass(held, arriving, transfers);
    if (step > 1) ring.Pass(sum, arriving_sum, transfers);
    return ring.Start(std::move(transfers));
  };
  ring.Take(qkv, held);
  Pending pending = pass(1);
  work.ops.AttentionBackward(shape, qkv, out, log_sum, dout, dqkv);
  ring.Take(dqkv, sum);
  if (!ring.Wait(pending)) return;
  for (int step = 1; step < ring.size(); ++step) {
    std::swap(held, arriving);
    pending = pass(step + 1);
    work.ops.SetZero(ring.count(), own);
    work.ops.AttendBlockBackward(ring.FindBlock(step), qkv, held, out, log_sum,
                                 dout, dqkv, own);
    if (!ring.Wait(pending)) return;
    std::swap(sum, arriving_sum);
    work.ops.Axpy(ring.count(), T(1), own, sum);
  }
  // The next rank has the sum for this rank's keys and values.
  std::vector<Transfer> transfers;
  ring.Pass(sum, arriving_sum, transfers);
  pending = ring.Start(std::move(transfers));
  if (!ring.Wait(pending)) return;
  ring.PutBack(arriving_sum, dqkv);
}

#define ATL_ENGINE_INSTANTIATE(T)                                             \
  template const T* LocalRopeTable(Workspace<T>&, int64_t);                   \
  template void RingAttention(Workspace<T>&, const AttentionShape&, const T*, \
                              T*, T*);                                        \
  template void RingAttentionBackward(Workspace<T>&, const AttentionShape&,   \
                                      const T*, const T*, const T*, const T*, \
                                      T*);
ATL_ENGINE_INSTANTIATE(float)
ATL_ENGINE_INSTANTIATE(double)
#undef ATL_ENGINE_INSTANTIATE

}  // namespace atl::engine
