#include "worker/engine/tensor/arena.h"

#include <cstdint>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "worker/engine/tensor/memory.h"

namespace atl::engine {
namespace {

// Lists the buffers once, both for measuring and for taking.
struct Buffers {
  explicit Buffers(Arena& arena)
      : matrix(arena.TakeTensor<float>(3, 5)), flags(arena.Take<char>(7)) {}
  TensorView<float> matrix;
  char* flags;
};

TEST(ArenaTest, MeasuresWhatItLaterHandsOut) {
  Arena measure;
  const Buffers none(measure);
  EXPECT_EQ(none.matrix.data, nullptr);
  EXPECT_EQ(measure.used_bytes(), 128u);

  auto arena = Arena::Create(measure.used_bytes());
  ASSERT_TRUE(arena.ok()) << arena.status();
  const Buffers buffers(*arena);
  EXPECT_EQ(arena->used_bytes(), measure.used_bytes());
  EXPECT_EQ(buffers.matrix.row(2), buffers.matrix.data + 10);
  EXPECT_EQ(buffers.flags - reinterpret_cast<char*>(buffers.matrix.data), 64);
}

TEST(ArenaTest, MemoryIsAlignedZeroAndOutlivesAMove) {
  auto created = Arena::Create(1000);
  ASSERT_TRUE(created.ok());
  Arena arena = std::move(*created);
  float* floats = arena.Take<float>(100);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(floats) % Arena::kAlignmentBytes, 0u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(floats[i], 0.0f);
  Arena other = std::move(arena);
  floats[99] = 1.0f;
  EXPECT_EQ(other.used_bytes(), 448u);
}

TEST(ArenaTest, MoreThanTheMachineHasIsAnError) {
  const auto arena = Arena::Create(std::numeric_limits<int64_t>::max() / 2);
  EXPECT_EQ(arena.status().code(), absl::StatusCode::kResourceExhausted);
}

// Counts allocated bytes; not host memory.
class CountedMemory final : public Memory {
 public:
  absl::StatusOr<void*> Allocate(size_t bytes) override {
    if (bytes > limit) return absl::ResourceExhaustedError("too much");
    taken += bytes;
    return HostMemory().Allocate(bytes);
  }
  void Free(void* memory, size_t bytes) override {
    taken -= bytes;
    HostMemory().Free(memory, bytes);
  }
  bool is_host() const override { return false; }

  size_t limit = 4096, taken = 0;
};

TEST(ArenaTest, TakesItsMemoryWhereItIsToldAndGivesItBackOnce) {
  CountedMemory memory;
  EXPECT_EQ(Arena::Create(4097, memory).status().code(),
            absl::StatusCode::kResourceExhausted);
  {
    auto arena = Arena::Create(100, memory);
    ASSERT_TRUE(arena.ok()) << arena.status();
    EXPECT_EQ(memory.taken, 128u);
    Arena other = std::move(*arena);
    *arena = Arena::Over(other.Take<char>(64), 64);
    EXPECT_EQ(memory.taken, 128u);
    *arena = std::move(other);
    EXPECT_EQ(memory.taken, 128u);
  }
  EXPECT_EQ(memory.taken, 0u);
}

}  // namespace
}  // namespace atl::engine
