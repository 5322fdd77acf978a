#include "worker/engine/model/expert_capacity.h"

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "worker/collective/call.h"
#include "worker/engine/model/workspace.h"
#include "worker/engine/ops/ops.h"

namespace atl::engine {

template <typename T>
const T* ChosenBefore(Workspace<T>& work, const RouteShape& shape,
                      const int32_t* experts) {
  if (!work.ok()) return nullptr;
  if (shape.group_count() > work.run_count_max) {
    work.Latch(absl::InvalidArgumentError(
        "with cp an expert's capacity needs sequences of the model's length"));
    return nullptr;
  }
  const int64_t n = shape.expert_count, ranks = work.slice.cp_size;
  const int64_t count = shape.group_count() * n;
  T* const mine = work.run_counts;
  T* const all = mine + count;  // [ranks, N, E]
  work.ops.CountChoices(shape, experts, mine);
  work.Latch(work.groups.cp->Run(collective::Call::AllGather(
      collective::kDataTypeOf<T>, mine, all, count)));
  if (!work.ok()) return nullptr;
  std::vector<T> counts(ranks * count), before(count);
  work.ops.ReadValues(ranks * count, all, counts.data());
  std::vector<T> chosen(n);
  for (int64_t sequence = 0; sequence < shape.group_count(); sequence += 2) {
    chosen.assign(n, T(0));
    // In the order of positions: the first runs of all ranks, then the second
    // ones from the last rank to the first.
    for (int64_t chunk = 0; chunk < 2 * ranks; ++chunk) {
      const bool second = chunk >= ranks;
      const int64_t rank = second ? 2 * ranks - 1 - chunk : chunk;
      const int64_t run = (sequence + (second ? 1 : 0)) * n;
      for (int64_t e = 0; e < n; ++e) {
        if (rank == work.slice.cp_rank) before[run + e] = chosen[e];
        chosen[e] += counts[rank * count + run + e];
      }
    }
  }
  work.ops.WriteValues(count, before.data(), mine);
  return mine;
}

template const float* ChosenBefore(Workspace<float>&, const RouteShape&,
                                   const int32_t*);
template const double* ChosenBefore(Workspace<double>&, const RouteShape&,
                                    const int32_t*);

}  // namespace atl::engine
