// Bytes of contributions a second in robust merges, compared with a weighted
// sum and memcpy: one block of each of n contributions, in cache as in a tile.

#include <cstring>
#include <random>
#include <vector>

#include "benchmark/benchmark.h"
#include "server/kernels/loop_table.h"
#include "server/kernels/merge_kernels.h"
#include "server/kernels/order_kernels.h"

namespace atl::kernels {
namespace {

constexpr int64_t kElements = 4096;

struct Tile {
  explicit Tile(const benchmark::State& state)
      : row_count(static_cast<int>(state.range(0))),
        values(row_count, std::vector<float>(kElements)),
        sum(kElements),
        products(row_count * (row_count + 1) / 2) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (auto& row : values) {
      for (float& value : row) value = normal(random);
      rows.push_back(row.data());
    }
  }
  const int row_count;
  std::vector<std::vector<float>> values;
  std::vector<float*> rows;
  std::vector<float> sum;
  std::vector<double> products;
};

void CountBytes(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * state.range(0) * kElements *
                          sizeof(float));
}

void BM_Memcpy(benchmark::State& state) {
  Tile tile(state);
  for (auto _ : state) {
    for (const float* row : tile.rows) {
      std::memcpy(tile.sum.data(), row, kElements * sizeof(float));
    }
    benchmark::ClobberMemory();
  }
  CountBytes(state);
}

void BM_WeightedSum(benchmark::State& state) {
  Tile tile(state);
  for (auto _ : state) {
    for (const float* row : tile.rows) {
      BestLoops().accumulate(kElements, 0.1f, row, tile.sum.data());
    }
    benchmark::ClobberMemory();
  }
  CountBytes(state);
}

void BM_SortRows(benchmark::State& state) {
  Tile tile(state);
  for (auto _ : state) {
    BestLoops().sort_rows(kElements, tile.row_count, tile.rows.data());
    benchmark::ClobberMemory();
  }
  CountBytes(state);
}

void BM_Products(benchmark::State& state) {
  Tile tile(state);
  for (auto _ : state) {
    BestLoops().products(kElements, tile.row_count, tile.rows.data(),
                         tile.products.data());
    benchmark::ClobberMemory();
  }
  CountBytes(state);
}

void BM_ProductsAvx2(benchmark::State& state) {
  Tile tile(state);
  for (auto _ : state) {
    Avx2Loops().products(kElements, tile.row_count, tile.rows.data(),
                         tile.products.data());
    benchmark::ClobberMemory();
  }
  CountBytes(state);
}

#define ATL_ISLANDS ->Arg(2)->Arg(4)->Arg(8)->Arg(16)->Arg(64)
BENCHMARK(BM_Memcpy) ATL_ISLANDS;
BENCHMARK(BM_WeightedSum) ATL_ISLANDS;
BENCHMARK(BM_SortRows) ATL_ISLANDS;
BENCHMARK(BM_Products) ATL_ISLANDS;
BENCHMARK(BM_ProductsAvx2) ATL_ISLANDS;

}  // namespace
}  // namespace atl::kernels
