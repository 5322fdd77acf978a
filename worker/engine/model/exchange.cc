#include "worker/engine/model/exchange.h"

namespace atl::engine {

using collective::Call;
using collective::kDataTypeOf;
using collective::Reduction;

template <typename T>
GatheredRows<T> StartGatherRows(Workspace<T>& work, int64_t rows, const T* mine,
                                T* whole) {
  if (work.groups.tp == nullptr) return {mine, {}};
  if (!work.ok()) return {whole, {}};
  const int64_t count = work.slice.stream_rows(rows) * work.config.hidden_size;
  return {whole, work.groups.tp->Start(
                     Call::AllGather(kDataTypeOf<T>, mine, whole, count))};
}

template <typename T>
void ReduceRows(Workspace<T>& work, int64_t rows, const T* partial, T* mine) {
  if (work.groups.tp == nullptr || !work.ok()) return;
  const int64_t count = work.slice.stream_rows(rows) * work.config.hidden_size;
  work.Latch(work.groups.tp->Run(Call::ReduceScatter(
      kDataTypeOf<T>, Reduction::kSum, partial, mine, count)));
}

template <typename T>
void ReduceOverTp(Workspace<T>& work, int64_t n, T* x, Reduction reduction) {
  if (work.groups.tp == nullptr || !work.ok()) return;
  work.Latch(
      work.groups.tp->Run(Call::AllReduce(kDataTypeOf<T>, reduction, x, x, n)));
}

#define ATL_ENGINE_INSTANTIATE(T)                                            \
  template GatheredRows<T> StartGatherRows(Workspace<T>&, int64_t, const T*, \
                                           T*);                              \
  template void ReduceRows(Workspace<T>&, int64_t, const T*, T*);            \
  template void ReduceOverTp(Workspace<T>&, int64_t, T*, Reduction);
ATL_ENGINE_INSTANTIATE(float)
ATL_ENGINE_INSTANTIATE(double)
#undef ATL_ENGINE_INSTANTIATE

}  // namespace atl::engine
