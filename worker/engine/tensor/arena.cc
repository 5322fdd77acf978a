#include "worker/engine/tensor/arena.h"

#include <utility>

#include "base/status/check.h"
#include "base/status/status_macros.h"

namespace atl::engine {
namespace {

size_t RoundUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

absl::StatusOr<Arena> Arena::Create(size_t capacity_bytes, Memory& memory) {
  Arena arena;
  const size_t capacity = RoundUp(capacity_bytes, kAlignmentBytes);
  ASSIGN_OR_RETURN(void* const base, memory.Allocate(capacity));
  arena.base_ = static_cast<char*>(base);
  arena.capacity_bytes_ = capacity;
  arena.memory_ = &memory;
  return arena;
}

absl::StatusOr<Arena> Arena::CreateFor(absl::FunctionRef<void(Arena&)> take,
                                       Memory& memory) {
  Arena measure;
  take(measure);
  ASSIGN_OR_RETURN(Arena arena, Create(measure.used_bytes(), memory));
  take(arena);
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
  GiveBack();
  memory_ = std::exchange(other.memory_, nullptr);
  base_ = std::exchange(other.base_, nullptr);
  capacity_bytes_ = std::exchange(other.capacity_bytes_, 0);
  used_bytes_ = std::exchange(other.used_bytes_, 0);
  return *this;
}

Arena::~Arena() { GiveBack(); }

void Arena::GiveBack() {
  if (memory_ != nullptr) memory_->Free(base_, capacity_bytes_);
}

char* Arena::TakeBytes(size_t bytes) {
  const size_t begin = used_bytes_;
  used_bytes_ += RoundUp(bytes, kAlignmentBytes);
  if (base_ == nullptr) return nullptr;
  CHECK_LE(used_bytes_, capacity_bytes_);
  return base_ + begin;
}

}  // namespace atl::engine
