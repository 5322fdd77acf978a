// Cuts work into blocks of threads by its shape alone, so sums have the same
// bits on every device. Pure.

#pragma once

#include <cstddef>
#include <cstdint>

namespace atl::engine::cuda {

// The default block size.
inline constexpr int kBlockThreads = 256;

// For blocks that take one row: a multiple of 32 in [32, 1024].
int RowThreads(int64_t channels);

// Blocks that take a row each, and then stride over further rows.
unsigned RowBlocks(int64_t rows);

// Blocks for threads that stride over `count` elements.
unsigned ElementBlocks(int64_t count);

// Sums over rows: `tiles` of `rows` rows. The last may be shorter.
inline constexpr int64_t kRowTilesMax = 128;
struct RowTiles {
  int64_t rows = 0;
  int64_t tiles = 0;
};
RowTiles PlanRowTiles(int64_t rows);

// Sums over a flat vector: `blocks` of `elements`.
inline constexpr int64_t kSumBlocksMax = 1024;
struct SumBlocks {
  int64_t elements = 0;
  int64_t blocks = 0;
};
SumBlocks PlanSum(int64_t count);

// Heads are padded to `width` channels. A block computes `rows` queries against
// `columns` keys at a time.
inline constexpr int64_t kHeadDimMax = 256;
inline constexpr int64_t kBf16HeadDimMax = 128;  // attention_bf16.cu
struct AttentionTiles {
  int width = 0;  // 0: the head is too wide.
  int rows = 0;
  int columns = 0;
};
AttentionTiles PlanAttention(int64_t head_dim);
AttentionTiles PlanAttentionBackward(int64_t head_dim);

// Bytes of shared memory, rows padded by one float. Forward holds q, k, v and
// the probabilities; backward q, k, v, dout, the probabilities and their
// gradients.
size_t AttentionSharedBytes(const AttentionTiles& tiles);
size_t AttentionBackwardSharedBytes(const AttentionTiles& tiles);

// Shared memory that every device from sm_80 on allows a block.
inline constexpr size_t kSharedBytesMax = size_t{99} << 10;

// A stable radix sort of keys below `key_count`, `passes` over `tiles` of
// kSortTile keys.
inline constexpr int kDigitBits = 8;
inline constexpr int kDigits = 1 << kDigitBits;
inline constexpr int64_t kSortTile = 256;
struct SortPlan {
  int passes = 0;
  int64_t tiles = 0;
};
SortPlan PlanSort(int64_t count, int64_t key_count);

}  // namespace atl::engine::cuda
