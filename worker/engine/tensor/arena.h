// One block of memory that is cut into buffers. Thread-compatible.
//
// A default-constructed arena measures: it returns null and counts bytes. So
// one function lists all buffers and runs twice, to learn the size and to get
// them.

#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "worker/engine/tensor/memory.h"

namespace atl::engine {

// A dense row-major matrix that someone else owns. A vector has one row.
template <typename T>
struct TensorView {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;

  int64_t size() const { return rows * columns; }
  T* row(int64_t r) const { return data + r * columns; }
};

class Arena {
 public:
  static constexpr size_t kAlignmentBytes = Memory::kAlignmentBytes;

  Arena() = default;

  // Takes `capacity_bytes` of zeroed memory; `memory` must outlive the arena.
  //
  // Errors: those of Memory::Allocate.
  static absl::StatusOr<Arena> Create(size_t capacity_bytes,
                                      Memory& memory = HostMemory());

  // As large as `take` needs: runs it on a measuring arena, then on the result.
  static absl::StatusOr<Arena> CreateFor(absl::FunctionRef<void(Arena&)> take,
                                         Memory& memory = HostMemory());

  // Over `capacity_bytes` of the caller's memory, aligned to kAlignmentBytes.
  static Arena Over(void* memory, size_t capacity_bytes);

  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  // Frees the memory, which invalidates all pointers from Take.
  ~Arena();

  // The next `count` elements, aligned to kAlignmentBytes; null if the arena
  // measures. Exceeding the capacity is a bug and ends the process.
  template <typename T>
  T* Take(int64_t count) {
    return reinterpret_cast<T*>(
        TakeBytes(static_cast<size_t>(count) * sizeof(T)));
  }

  template <typename T>
  TensorView<T> TakeTensor(int64_t rows, int64_t columns) {
    return {Take<T>(rows * columns), rows, columns};
  }

  // Bytes taken so far, with padding.
  size_t used_bytes() const { return used_bytes_; }

 private:
  char* TakeBytes(size_t bytes);
  void GiveBack();

  Memory* memory_ = nullptr;  // Null: the caller's memory, or none.
  char* base_ = nullptr;      // Null while measuring.
  size_t capacity_bytes_ = 0;
  size_t used_bytes_ = 0;
};

}  // namespace atl::engine
