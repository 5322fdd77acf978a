// Cuts a matrix product into tasks by its shape alone, so any number of threads
// gives the same bits. Pure.

#pragma once

#include <algorithm>
#include <cstdint>

namespace atl::engine {

// [0, n) in `count` runs of `size`. The last may be shorter; none is empty.
struct Tiles {
  int64_t n = 0;
  int64_t size = 1;
  int64_t count = 0;

  int64_t begin(int64_t tile) const { return tile * size; }
  int64_t length(int64_t tile) const { return std::min(size, n - begin(tile)); }
};

// Nearly equal tiles of at most about `size_max`. `size` is a multiple of 16.
// From three tiles on, `count` is a multiple of four if possible, so 2 and 4
// threads get equal shares.
inline Tiles CutEvenly(int64_t n, int64_t size_max) {
  constexpr int64_t kMultiple = 16;
  int64_t count = std::max<int64_t>(1, (n + size_max - 1) / size_max);
  if (count > 2) count = (count + 3) / 4 * 4;
  const int64_t even = (n + count - 1) / count;
  const int64_t size = (even + kMultiple - 1) / kMultiple * kMultiple;
  return {n, size, (n + size - 1) / size};
}

struct OutputTiles {
  Tiles rows;
  Tiles columns;
  int64_t count() const { return rows.count * columns.count; }
};

// Cuts rows into tiles of at most `rows_max`; if fewer than four, columns too.
inline OutputTiles CutOutput(int64_t rows, int64_t columns, int64_t rows_max,
                             int64_t columns_min) {
  OutputTiles tiles{CutEvenly(rows, rows_max), {columns, columns, 1}};
  if (tiles.rows.count < 4) {
    tiles.columns =
        CutEvenly(columns, std::max<int64_t>(columns_min, (columns + 3) / 4));
  }
  return tiles;
}

// For a weight's gradient, which reads all rows of two matrices. Cuts the
// longer side, into at least four tiles if each keeps `tile_min`, because every
// task reads all of the other operand.
inline OutputTiles CutWeight(int64_t rows, int64_t columns, int64_t tile_min,
                             int64_t tile_max) {
  const auto cut = [&](int64_t n) {
    return CutEvenly(n, std::clamp((n + 3) / 4, tile_min, tile_max));
  };
  if (columns > rows) return {{rows, rows, 1}, cut(columns)};
  return {cut(rows), {columns, columns, 1}};
}

}  // namespace atl::engine
