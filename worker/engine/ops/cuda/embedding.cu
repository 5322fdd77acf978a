// The gradient of an embedding. A stable sort orders rows by token; one block
// per token adds its rows in rising order, as the definition does.
//
// The counting sort takes digits of 8 bits, the lowest first. It counts each
// tile's digits, finds where each (digit, tile) begins, and moves the rows.

#include <cstdint>

#include "worker/engine/ops/cuda/device.h"
#include "worker/engine/ops/cuda/kernels.h"
#include "worker/engine/ops/cuda/plan/launch_plan.h"

namespace atl::engine::cuda {
namespace {

static_assert(kSortTile == kBlockThreads && kDigits == kBlockThreads);

// The table's range of tokens.
struct Slice {
  int64_t begin, count;
  // A token's row in the table. Tokens outside it come last.
  __device__ int32_t MakeKey(int32_t token) const {
    const int64_t id = token - begin;
    return static_cast<int32_t>(id >= 0 && id < count ? id : count);
  }
};

// Row `index` of the order so far. Null `rows`: not sorted yet.
__device__ inline int32_t FindRow(const int32_t* rows, int64_t index) {
  return rows != nullptr ? rows[index] : static_cast<int32_t>(index);
}
__device__ inline int ExtractDigit(int32_t key, int shift) {
  return static_cast<int>(key >> shift) & (kDigits - 1);
}

// counts[digit, tile]. One block per tile.
__global__ void CountDigitsKernel(int64_t count, int shift, Slice slice,
                                  const int32_t* tokens, const int32_t* rows,
                                  int32_t* counts) {
  __shared__ int shared[kDigits];
  shared[threadIdx.x] = 0;
  __syncthreads();
  const int64_t i = GlobalThread();
  if (i < count) {
    const int32_t key = slice.MakeKey(tokens[FindRow(rows, i)]);
    atomicAdd(&shared[ExtractDigit(key, shift)], 1);
  }
  __syncthreads();
  counts[static_cast<int64_t>(threadIdx.x) * gridDim.x + blockIdx.x] =
      shared[threadIdx.x];
}

// counts[digit, tile] becomes the place of its first row. One block: a thread
// per digit adds up its tiles, after all lower digits.
__global__ void PlaceDigitsKernel(int64_t tiles, int32_t* counts) {
  __shared__ int32_t totals[kDigits];
  int32_t* own = counts + threadIdx.x * tiles;
  int32_t total = 0;
  for (int64_t t = 0; t < tiles; ++t) total += own[t];
  totals[threadIdx.x] = total;
  __syncthreads();
  int32_t place = 0;
  for (int d = 0; d < static_cast<int>(threadIdx.x); ++d) place += totals[d];
  for (int64_t t = 0; t < tiles; ++t) {
    const int32_t here = own[t];
    own[t] = place;
    place += here;
  }
}

__global__ void MoveKernel(int64_t count, int shift, Slice slice,
                           const int32_t* tokens, const int32_t* rows,
                           const int32_t* places, int32_t* sorted) {
  __shared__ int digits[kSortTile];
  const int64_t i = GlobalThread();
  const int32_t row = i < count ? FindRow(rows, i) : 0;
  digits[threadIdx.x] =
      i < count ? ExtractDigit(slice.MakeKey(tokens[row]), shift) : -1;
  __syncthreads();
  if (i >= count) return;
  const int digit = digits[threadIdx.x];
  int64_t place = places[static_cast<int64_t>(digit) * gridDim.x + blockIdx.x];
  for (int t = 0; t < static_cast<int>(threadIdx.x); ++t) {
    place += digits[t] == digit;
  }
  sorted[place] = row;
}

// One block per place; the first place of a token adds all its rows.
__global__ void AddSortedKernel(int64_t count, int64_t channels, Slice slice,
                                const int32_t* tokens, const int32_t* sorted,
                                const float* dout, float* dtable) {
  for (int64_t i = blockIdx.x; i < count; i += gridDim.x) {
    const int32_t token = tokens[sorted[i]];
    const int64_t key = slice.MakeKey(token);
    if (key == slice.count) continue;
    if (i > 0 && tokens[sorted[i - 1]] == token) continue;
    int64_t end = i + 1;
    while (end < count && tokens[sorted[end]] == token) ++end;
    float* target = dtable + key * channels;
    for (int64_t c = threadIdx.x; c < channels; c += blockDim.x) {
      float sum = target[c];
#pragma unroll 8
      for (int64_t j = i; j < end; ++j) sum += dout[sorted[j] * channels + c];
      target[c] = sum;
    }
  }
}

__global__ void EmbeddingKernel(int64_t elements, int64_t channels, Slice slice,
                                const int32_t* tokens, const float* table,
                                float* out) {
  for (int64_t i = GlobalThread(); i < elements; i += GlobalThreads()) {
    const int64_t key = slice.MakeKey(tokens[i / channels]);
    out[i] = key == slice.count ? 0.0f : table[key * channels + i % channels];
  }
}

}  // namespace

void Embedding(cudaStream_t stream, int64_t rows, int64_t begin, int64_t count,
               int64_t channels, const int32_t* tokens, const float* table,
               float* out) {
  if (rows <= 0) return;
  ATL_LAUNCH((EmbeddingKernel), ElementBlocks(rows * channels), kBlockThreads,
             0, stream, rows * channels, channels, (Slice{begin, count}),
             tokens, table, out);
}

int64_t EmbeddingScratch(int64_t rows, int64_t count) {
  return 2 * rows + kDigits * PlanSort(rows, count + 1).tiles;
}

void EmbeddingBackward(cudaStream_t stream, int64_t rows, int64_t begin,
                       int64_t count, int64_t channels, const int32_t* tokens,
                       const float* dout, int32_t* scratch, float* dtable) {
  if (rows <= 0) return;
  const Slice slice = {begin, count};
  const SortPlan plan = PlanSort(rows, count + 1);
  const unsigned tiles = static_cast<unsigned>(plan.tiles);
  int32_t* const buffers[2] = {scratch, scratch + rows};
  int32_t* const places = scratch + 2 * rows;
  const int32_t* from = nullptr;
  for (int pass = 0; pass < plan.passes; ++pass) {
    int32_t* const to = buffers[pass % 2];
    const int shift = pass * kDigitBits;
    ATL_LAUNCH((CountDigitsKernel), tiles, kBlockThreads, 0, stream, rows,
               shift, slice, tokens, from, places);
    ATL_LAUNCH((PlaceDigitsKernel), 1u, kBlockThreads, 0, stream, plan.tiles,
               places);
    ATL_LAUNCH((MoveKernel), tiles, kBlockThreads, 0, stream, rows, shift,
               slice, tokens, from, places, to);
    from = to;
  }
  ATL_LAUNCH((AddSortedKernel), RowBlocks(rows), RowThreads(channels), 0,
             stream, rows, channels, slice, tokens, from, dout, dtable);
}

}  // namespace atl::engine::cuda
