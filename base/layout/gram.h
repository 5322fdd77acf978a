// Inner products of contributions, as sums that do not depend on how vectors
// are cut: blocks, shards and tiles may be added in any order. Pure.
// Thread-compatible.
//
// The inner product of two blocks is an f64. It is rounded once to a multiple
// of 2^-64 and then added as a 128-bit integer. So a block loses at most 2^-65
// (a smaller product counts as 0), and sums are exact. |sums| are below 2^62. A
// larger sum, or one with a value that is not finite, is `overflow`
// permanently. If the squared norms of vectors are below 2^62, no sum of their
// products overflows, however it is cut (Cauchy and Schwarz).

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace atl {

// A sum in units of 2^-64.
class ExactSum {
 public:
  ExactSum() = default;
  // The nearest multiple of 2^-64, ties to even; overflow if `value` is not
  // finite or |value| >= 2^62.
  static ExactSum Round(double value);
  // From the high and low 64 bits, two's complement.
  static ExactSum FromBits(uint64_t high, uint64_t low);

  ExactSum& operator+=(const ExactSum& other);
  // a + b - 2 c: the squared distance of two vectors with squared norms a and
  // b and inner product c.
  static ExactSum Distance(const ExactSum& a, const ExactSum& b,
                           const ExactSum& c);

  bool overflow() const { return units_ == absl::Int128Min(); }
  // The nearest f64 of the sum. Requires: !overflow().
  double ToDouble() const;
  uint64_t high() const {
    return static_cast<uint64_t>(absl::Int128High64(units_));
  }
  uint64_t low() const { return absl::Int128Low64(units_); }

  // Overflow sorts before every sum.
  friend bool operator<(const ExactSum& a, const ExactSum& b) {
    return a.units_ < b.units_;
  }
  friend bool operator==(const ExactSum&, const ExactSum&) = default;

 private:
  explicit ExactSum(absl::int128 units);

  absl::int128 units_ = 0;  // Int128Min: overflow.
};

// Inner products of n vectors with each other: symmetric.
class GramMatrix {
 public:
  // Bytes of an entry in ToBytes.
  static constexpr int kEntryBytes = 16;

  // All 0. Requires: n >= 0.
  explicit GramMatrix(int n = 0);

  int n() const { return n_; }
  // Stored entries: n (n + 1) / 2.
  static int64_t EntryCount(int n) { return int64_t{n} * (n + 1) / 2; }

  // <x_i, x_j>. Requires: 0 <= i, j < n().
  const ExactSum& at(int i, int j) const {
    return i >= j ? entries_[EntryCount(i) + j] : entries_[EntryCount(j) + i];
  }
  // Adds one block's products: rows 0 with 0, 1 with 0, 1 with 1, ...
  // Requires: products.size() == EntryCount(n()).
  void AddProducts(absl::Span<const double> products);
  // Adds the matrix of another range. Requires: other.n() == n().
  GramMatrix& operator+=(const GramMatrix& other);
  // True if any entry has overflowed.
  bool overflow() const;

  // Entries in the order of AddProducts, 16 little-endian bytes each.
  std::string ToBytes() const;
  // INVALID_ARGUMENT: `bytes` does not have EntryCount(n) entries.
  static absl::StatusOr<GramMatrix> FromBytes(int n, absl::string_view bytes);

  friend bool operator==(const GramMatrix&, const GramMatrix&) = default;

 private:
  int n_;
  std::vector<ExactSum> entries_;
};

}  // namespace atl
