// The moments m and v of a rank's optimizer, by element in state order,
// initially zero. They are in memory of the operations, or in a BackingStore. A
// pass over a BackingStore reads one chunk ahead and writes one behind on its
// own thread, with a device through a Copier. Thread-compatible.

#pragma once

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/engine/ops/ops.h"
#include "worker/engine/parallel/zero/backing_store.h"

namespace atl::engine {

// Instantiated for float and double.
template <typename T>
class MomentStore {
 public:
  virtual ~MomentStore() = default;

  // Elements [begin, begin + count), in memory of the operations.
  struct Chunk {
    int64_t begin = 0;
    int64_t count = 0;
    T* first = nullptr;   // m
    T* second = nullptr;  // v
  };

  // Calls `f` with all elements in order, one chunk at a time. `f` may write
  // them. Errors of BackingStore: some chunks may then be unchanged.
  virtual absl::Status Update(absl::FunctionRef<void(const Chunk&)> f) = 0;

  // Elements from `begin` of m (`moment` 0) or v (1), to or from the host.
  virtual absl::Status Read(int moment, int64_t begin, absl::Span<T> out) = 0;
  virtual absl::Status Write(int moment, int64_t begin,
                             absl::Span<const T> in) = 0;

  virtual int64_t memory_bytes() const = 0;
};

// `ops` outlives it. RESOURCE_EXHAUSTED: not enough memory.
template <typename T>
absl::StatusOr<std::unique_ptr<MomentStore<T>>> MakeMomentStore(
    int64_t element_count, BasicOps<T>& ops);

// Keeps the moments in `store`, which has 2 element_count elements. A chunk has
// `chunk_count` >= 1 elements; three are in memory, and with a device three
// more in host memory.
template <typename T>
absl::StatusOr<std::unique_ptr<MomentStore<T>>> MakeOffloadedMomentStore(
    int64_t element_count, int64_t chunk_count,
    std::unique_ptr<BackingStore> store, BasicOps<T>& ops);

}  // namespace atl::engine
