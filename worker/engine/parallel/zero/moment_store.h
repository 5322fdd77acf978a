// The moments of a rank's optimizer, m and v, by element in state order.
//
// Thread-compatible. In memory of the operations, or behind a BackingStore, of
// which a pass over all of it reads one chunk ahead and writes one behind on a
// thread of its own, with a device through a Copier. Starts with zeros.

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

  // Calls `f` with all elements, a chunk at a time, in order; it may write.
  // Errors of BackingStore: some chunks may then be as they were.
  virtual absl::Status Update(absl::FunctionRef<void(const Chunk&)> f) = 0;

  // Elements from `begin` of m (`moment` 0) or v (1), to and from the host.
  virtual absl::Status Read(int moment, int64_t begin, absl::Span<T> out) = 0;
  virtual absl::Status Write(int moment, int64_t begin,
                             absl::Span<const T> in) = 0;

  // Of memory of the operations.
  virtual int64_t memory_bytes() const = 0;
};

// `ops` outlives it.
//
// RESOURCE_EXHAUSTED: not enough memory.
template <typename T>
absl::StatusOr<std::unique_ptr<MomentStore<T>>> MakeMomentStore(
    int64_t element_count, BasicOps<T>& ops);

// Behind `store`, of 2 element_count elements. `chunk_count` >= 1: elements of
// a chunk; three are in memory, and with a device three of the host's.
template <typename T>
absl::StatusOr<std::unique_ptr<MomentStore<T>>> MakeOffloadedMomentStore(
    int64_t element_count, int64_t chunk_count,
    std::unique_ptr<BackingStore> store, BasicOps<T>& ops);

}  // namespace atl::engine
