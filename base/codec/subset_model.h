// The probabilities of subset_coder.h, as a table of integers. Pure. Made at
// compile time with IEEE 754 double operations of one rounding each, so the
// numbers are the same everywhere. A test checks their checksum.

#pragma once

#include <cstddef>
#include <cstdint>

#include "base/codec/bits.h"

namespace atl::codec {

// A subset has at most 2^12 places, of which at most 64 are taken.
inline constexpr int kSubsetLevelMax = 12;
inline constexpr int kSubsetCountMax = 64;

// The number of elements taken of n (1 to 4096): one for every 64, rounded up.
ATL_CODEC_FN constexpr size_t SubsetCount(size_t n) { return (n + 63) / 64; }

// A subset of k has 2^SubsetLevel(k) places: the least power of two that holds
// every n with SubsetCount(n) == k.
ATL_CODEC_FN constexpr int SubsetLevel(size_t k) {
  int level = 6;
  while ((size_t{1} << level) < 64 * k) ++level;
  return level;
}

// ceil(log2 C(2^SubsetLevel(k), k) / 8) for k = 1 to 64.
ATL_CODEC_FN constexpr size_t SubsetBytes(size_t k) {
  constexpr uint8_t kBytes[kSubsetCountMax + 1] = {
      0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 13, 14, 15,
      18, 19, 20, 20, 21, 22, 23, 24, 24, 25, 26, 27, 27, 28, 29, 30, 35,
      36, 36, 37, 38, 39, 40, 41, 41, 42, 43, 44, 45, 45, 46, 47, 48, 49,
      49, 50, 51, 52, 53, 53, 54, 55, 56, 56, 57, 58, 59, 59};
  return kBytes[k];
}

// One row for every level (1 to 12) and count k (2 to 64, below 2^level): the
// cumulative shares of j = 0..k taken places in the left half. A row has k + 1
// numbers in units of 2^-31. The first is 0; 2^31 follows the last.
class SubsetModel {
 public:
  static constexpr int kBits = 31;

  constexpr SubsetModel() {
    uint32_t next = 0;
    for (int level = 1; level <= kSubsetLevelMax; ++level) {
      for (int k = 2; k <= kSubsetCountMax && k < 1 << level; ++k) {
        begins_[level][k] = next;
        FillRow(int64_t{1} << (level - 1), k, shares_ + next);
        next += static_cast<uint32_t>(k) + 1;
      }
    }
  }

  ATL_CODEC_FN const uint32_t* Row(int level, int k) const {
    return shares_ + begins_[level][k];
  }

  // The share of j in a row of k + 1 numbers.
  ATL_CODEC_FN static uint64_t Share(const uint32_t* row, int k, int j) {
    const uint64_t end = j == k ? uint64_t{1} << kBits : row[j + 1];
    return end - row[j];
  }

  // The j whose share contains `at`; its share is never 0.
  ATL_CODEC_FN static int Find(const uint32_t* row, int k, uint32_t at) {
    int j = 0;
    for (int i = 1; i <= k; ++i) j += row[i] <= at ? 1 : 0;
    return j;
  }

  // For tests: the whole table.
  static constexpr size_t kSize = 15627;
  constexpr const uint32_t* table() const { return shares_; }

 private:
  // Shares of j = 0..k for halves of h places. Probabilities fall from the mode
  // to both sides by ratios of integers.
  static constexpr void FillRow(int64_t h, int64_t k, uint32_t* row) {
    double weights[kSubsetCountMax + 1] = {};
    const int64_t least = k > h ? k - h : 0;
    const int64_t most = k < h ? k : h;
    const int64_t mode = k / 2;
    weights[mode] = 1;
    for (int64_t j = mode; j < most; ++j) {
      weights[j + 1] = weights[j] * static_cast<double>((h - j) * (k - j)) /
                       static_cast<double>((j + 1) * (h - k + j + 1));
    }
    for (int64_t j = mode; j > least; --j) {
      weights[j - 1] = weights[j] * static_cast<double>(j * (h - k + j)) /
                       static_cast<double>((h - j + 1) * (k - j + 1));
    }
    double sum = 0;
    for (int64_t j = 0; j <= k; ++j) sum += weights[j];
    uint64_t shares[kSubsetCountMax + 1] = {};
    uint64_t rest = uint64_t{1} << kBits;
    for (int64_t j = least; j <= most; ++j) {
      if (j == mode) continue;
      shares[j] = static_cast<uint64_t>(weights[j] / sum * 2147483648.0) + 1;
      rest -= shares[j];
    }
    shares[mode] = rest;
    uint64_t begin = 0;
    for (int64_t j = 0; j <= k; ++j) {
      row[j] = static_cast<uint32_t>(begin);
      begin += shares[j];
    }
  }

  uint32_t begins_[kSubsetLevelMax + 1][kSubsetCountMax + 1] = {};
  uint32_t shares_[kSize] = {};
};

}  // namespace atl::codec
