// One block of memory from which buffers are cut, made once.
//
// Thread-compatible. An arena that was not created measures: it hands out null
// and counts, so that one function says what buffers there are and is run
// twice, first to learn the size, then to get them.

#ifndef WORKER_ENGINE_TENSOR_ARENA_H_
#define WORKER_ENGINE_TENSOR_ARENA_H_

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "worker/engine/tensor/memory.h"
#include "worker/engine/tensor/tensor_view.h"

namespace atl::engine {

class Arena {
 public:
  static constexpr size_t kAlignmentBytes = Memory::kAlignmentBytes;

  // One that measures.
  Arena() = default;

  // Takes `capacity_bytes` of zeroed memory from `memory`, which must outlive
  // the arena. The pointers that it gives are to memory of that kind.
  //
  // Errors: those of Memory::Allocate.
  static absl::StatusOr<Arena> Create(size_t capacity_bytes,
                                      Memory& memory = HostMemory());

  // As much as `take` cuts, which is run twice: on an arena that measures, then
  // on this one.
  static absl::StatusOr<Arena> CreateFor(absl::FunctionRef<void(Arena&)> take,
                                         Memory& memory = HostMemory());

  // Over `capacity_bytes` of memory that someone else owns, aligned as
  // kAlignmentBytes says.
  static Arena Over(void* memory, size_t capacity_bytes);

  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  // Gives it back; every pointer that it gave ends.
  ~Arena();

  // The next `count` elements, at a multiple of kAlignmentBytes. Null if the
  // arena measures. Taking more than the capacity is a bug and ends the
  // process.
  template <typename T>
  T* Take(int64_t count) {
    return reinterpret_cast<T*>(
        TakeBytes(static_cast<size_t>(count) * sizeof(T)));
  }

  // The same as a matrix.
  template <typename T>
  TensorView<T> TakeTensor(int64_t rows, int64_t columns) {
    return {Take<T>(rows * columns), rows, columns};
  }

  // What was taken so far, with padding.
  size_t used_bytes() const { return used_bytes_; }

 private:
  char* TakeBytes(size_t bytes);
  void GiveBack();

  Memory* memory_ = nullptr;  // Null: someone else's, or none.
  char* base_ = nullptr;      // Null while measuring.
  size_t capacity_bytes_ = 0;
  size_t used_bytes_ = 0;
};

}  // namespace atl::engine

#endif  // WORKER_ENGINE_TENSOR_ARENA_H_
