// A step allocates no objects: this file counts every `new` of the process.
// (oneDNN takes packing buffers with malloc, which keeps them.)

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "gtest/gtest.h"
#include "worker/engine/trainer.h"

namespace {

std::atomic<int64_t> new_count{0};

void* CountedNew(size_t bytes, size_t alignment) {
  ++new_count;
  void* p = alignment <= alignof(std::max_align_t)
                ? std::malloc(bytes)
                : std::aligned_alloc(alignment, (bytes + alignment - 1) /
                                                    alignment * alignment);
  if (p == nullptr) std::abort();
  return p;
}

}  // namespace

void* operator new(size_t bytes) { return CountedNew(bytes, 1); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return CountedNew(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept {
  std::free(p);
}

namespace atl::engine {
namespace {

TEST(TrainerAllocationTest, AfterTheFirstAStepMakesNoObject) {
  TrainerOptions options;
  options.model.kv_head_count = 2;
  options.batch_size = 2;
  options.sequence_length = 64;
  options.thread_count = 2;
  auto trainer = Trainer::Create(options);
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  for (size_t i = 0; i < (*trainer)->parameters().size(); ++i) {
    (*trainer)->parameters()[i] = 0.01f * static_cast<float>(i % 7);
  }
  const std::vector<int32_t> tokens(128, 5);
  ASSERT_TRUE((*trainer)->Step(tokens, tokens, 0).ok());
  const int64_t before = new_count;
  EXPECT_GT(before, 0);
  for (int step = 1; step < 4; ++step) {
    ASSERT_TRUE((*trainer)->Step(tokens, tokens, step).ok());
  }
  ASSERT_TRUE((*trainer)->EvaluateLoss(tokens, tokens).ok());
  EXPECT_EQ(new_count, before);
}

}  // namespace
}  // namespace atl::engine
