#include "worker/engine/model/expert_exchange.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "worker/collective/call.h"

namespace atl::engine {

using collective::Call;
using collective::kDataTypeOf;
using collective::Transfer;

template <typename T>
ExpertExchange<T>::ExpertExchange(const ModelConfig& config,
                                  const UnitSlice& slice, const int64_t* begins,
                                  int64_t* received)
    : size_(slice.ep_size),
      rank_(slice.ep_rank),
      experts_(config.expert_count / slice.ep_size),
      channels_(config.hidden_size),
      begins_(begins),
      received_(received) {}

template <typename T>
int64_t ExpertExchange<T>::begin(int64_t e) const {
  return size_ == 1 ? begins_[e] : received_[e * size_];
}

template <typename T>
void ExpertExchange<T>::ShareCounts(Workspace<T>& work,
                                    int64_t rows_max) const {
  if (size_ == 1) return;
  const int64_t all = size_ * experts_;
  std::fill_n(received_, all + 1, 0);
  if (!work.ok()) return;
  // The ranks exchange counts as T, which represents them exactly.
  std::vector<T> counts(all);
  for (int64_t i = 0; i < all; ++i) {
    counts[i] = static_cast<T>(begins_[i + 1] - begins_[i]);
  }
  T* const mine = work.expert_counts;
  T* const theirs = mine + all;
  work.ops.WriteValues(all, counts.data(), mine);
  work.Latch(work.groups.ep->Run(
      Call::AllToAll(kDataTypeOf<T>, mine, theirs, experts_)));
  if (!work.ok()) return;
  work.ops.ReadValues(all, theirs, counts.data());  // [ranks, experts]
  work.Latch(work.groups.ep->status());  // The call may end only now.
  if (!work.ok()) return;
  int64_t row = 0;
  bool sane = true;
  for (int64_t e = 0; e < experts_; ++e) {
    for (int p = 0; p < size_; ++p) {
      received_[e * size_ + p] = row;
      const auto count = static_cast<int64_t>(counts[p * experts_ + e]);
      sane = sane && count >= 0 && count <= rows_max - row;
      if (sane) row += count;
    }
  }
  received_[all] = row;
  if (sane) return;
  std::fill_n(received_, all + 1, 0);
  const std::string what =
      absl::StrCat("the experts of a rank receive more than ", rows_max,
                   " rows: ranks of the ep group need micro-batches of equal "
                   "size and whole sequences");
  work.Latch(absl::InvalidArgumentError(what));
  work.groups.ep->Abort(what);  // Otherwise the other ranks wait for this one.
}

template <typename T>
void ExpertExchange<T>::Dispatch(Workspace<T>& work, const T* by_slot,
                                 T* by_expert) const {
  Move(work, by_slot, by_expert, [this](int p, int64_t e) {
    return Parts{.from = FindSlots(p, e), .to = FindPlaces(p, e)};
  });
}

template <typename T>
void ExpertExchange<T>::Return(Workspace<T>& work, const T* by_expert,
                               T* by_slot) const {
  Move(work, by_expert, by_slot, [this](int p, int64_t e) {
    return Parts{.from = FindPlaces(p, e), .to = FindSlots(p, e)};
  });
}

template <typename T>
void ExpertExchange<T>::Move(
    Workspace<T>& work, const T* from, T* to,
    absl::FunctionRef<Parts(int, int64_t)> parts_of) const {
  if (size_ == 1 || !work.ok()) return;
  const int64_t row_bytes = channels_ * static_cast<int64_t>(sizeof(T));
  std::vector<Transfer> transfers;
  for (int p = 0; p < size_; ++p) {
    for (int64_t e = 0; e < experts_; ++e) {
      const Parts parts = parts_of(p, e);
      const T* const sent = from + parts.from.begin * channels_;
      T* const arriving = to + parts.to.begin * channels_;
      if (p == rank_) {
        work.ops.CopyColumns(parts.from.count, channels_, sent, channels_,
                             arriving, channels_);
        continue;
      }
      if (parts.from.count > 0) {
        transfers.push_back(
            collective::SendTo(p, sent, parts.from.count * row_bytes));
      }
      if (parts.to.count > 0) {
        transfers.push_back(
            collective::ReceiveFrom(p, arriving, parts.to.count * row_bytes));
      }
    }
  }
  work.Latch(work.groups.ep->Run(Call::Transfers(std::move(transfers))));
}

template class ExpertExchange<float>;
template class ExpertExchange<double>;

}  // namespace atl::engine
