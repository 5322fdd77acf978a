#include "worker/engine/tensor/arena.h"

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status/check.h"

namespace atl::engine {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;

size_t RoundUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

absl::StatusOr<Arena> Arena::Create(size_t capacity_bytes) {
  Arena arena;
  arena.capacity_bytes_ = RoundUp(capacity_bytes, kAlignmentBytes);
  // One huge page more, so that the start can lie on the border of one.
  arena.mapping_bytes_ =
      RoundUp(arena.capacity_bytes_, kHugePageBytes) + kHugePageBytes;
  void* mapping = mmap(nullptr, arena.mapping_bytes_, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no ", capacity_bytes, " bytes of memory for tensors"));
  }
  arena.mapping_ = static_cast<char*>(mapping);
  const size_t misfit =
      reinterpret_cast<uintptr_t>(arena.mapping_) % kHugePageBytes;
  arena.base_ = arena.mapping_ + (kHugePageBytes - misfit) % kHugePageBytes;
  // Advice: without huge pages all works, only slower.
  (void)madvise(arena.base_, RoundUp(arena.capacity_bytes_, kHugePageBytes),
                MADV_HUGEPAGE);
  return arena;
}

Arena Arena::Over(void* memory, size_t capacity_bytes) {
  Arena arena;
  arena.base_ = static_cast<char*>(memory);
  arena.capacity_bytes_ = capacity_bytes;
  return arena;
}

Arena::Arena(Arena&& other) noexcept { *this = std::move(other); }

Arena& Arena::operator=(Arena&& other) noexcept {
  if (this == &other) return *this;
  Unmap();
  mapping_ = std::exchange(other.mapping_, nullptr);
  mapping_bytes_ = std::exchange(other.mapping_bytes_, 0);
  base_ = std::exchange(other.base_, nullptr);
  capacity_bytes_ = std::exchange(other.capacity_bytes_, 0);
  used_bytes_ = std::exchange(other.used_bytes_, 0);
  return *this;
}

Arena::~Arena() { Unmap(); }

void Arena::Unmap() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
}

char* Arena::TakeBytes(size_t bytes) {
  const size_t begin = used_bytes_;
  used_bytes_ += RoundUp(bytes, kAlignmentBytes);
  if (base_ == nullptr) return nullptr;
  CHECK_LE(used_bytes_, capacity_bytes_);
  return base_ + begin;
}

}  // namespace atl::engine
