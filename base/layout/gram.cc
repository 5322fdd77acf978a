#include "base/layout/gram.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status/check.h"

static_assert(std::endian::native == std::endian::little,
              "integers are copied as they lie");

namespace atl {
namespace {

constexpr double kUnitsAOne = 18446744073709551616.0;  // 2^64.

// Sums stay below this, so adding two never wraps.
constexpr absl::int128 kUnitsMax = absl::MakeInt128(int64_t{1} << 62, 0);

}  // namespace

ExactSum::ExactSum(absl::int128 units)
    : units_(units < kUnitsMax && units > -kUnitsMax ? units
                                                     : absl::Int128Min()) {}

ExactSum ExactSum::Round(double value) {
  constexpr double kMax = 4611686018427387904.0;  // 2^62.
  // In this form NaN fails too.
  if (!(value > -kMax && value < kMax)) return ExactSum(absl::Int128Min());
  // Scaling by a power of two is exact; nearbyint rounds ties to even.
  return ExactSum(absl::int128(std::nearbyint(value * kUnitsAOne)));
}

ExactSum ExactSum::FromBits(uint64_t high, uint64_t low) {
  return ExactSum(absl::MakeInt128(static_cast<int64_t>(high), low));
}

ExactSum& ExactSum::operator+=(const ExactSum& other) {
  *this = overflow() || other.overflow() ? ExactSum(absl::Int128Min())
                                         : ExactSum(units_ + other.units_);
  return *this;
}

ExactSum ExactSum::Distance(const ExactSum& a, const ExactSum& b,
                            const ExactSum& c) {
  if (c.overflow()) return c;
  ExactSum distance = a;
  distance += b;
  const ExactSum minus_c(-c.units_);
  distance += minus_c;
  distance += minus_c;
  return distance;
}

double ExactSum::ToDouble() const {
  CHECK(!overflow());
  return static_cast<double>(units_) / kUnitsAOne;
}

GramMatrix::GramMatrix(int n) : n_(n), entries_(EntryCount(n)) {}

void GramMatrix::AddProducts(absl::Span<const double> products) {
  CHECK_EQ(products.size(), entries_.size());
  for (size_t k = 0; k < entries_.size(); ++k) {
    entries_[k] += ExactSum::Round(products[k]);
  }
}

GramMatrix& GramMatrix::operator+=(const GramMatrix& other) {
  CHECK_EQ(n_, other.n_);
  for (size_t k = 0; k < entries_.size(); ++k) entries_[k] += other.entries_[k];
  return *this;
}

bool GramMatrix::overflow() const {
  for (const ExactSum& entry : entries_) {
    if (entry.overflow()) return true;
  }
  return false;
}

std::string GramMatrix::ToBytes() const {
  std::string bytes(entries_.size() * kEntryBytes, '\0');
  for (size_t k = 0; k < entries_.size(); ++k) {
    const uint64_t words[2] = {entries_[k].low(), entries_[k].high()};
    std::memcpy(bytes.data() + k * kEntryBytes, words, kEntryBytes);
  }
  return bytes;
}

absl::StatusOr<GramMatrix> GramMatrix::FromBytes(int n,
                                                 absl::string_view bytes) {
  if (n < 0 ||
      bytes.size() != static_cast<size_t>(EntryCount(n)) * kEntryBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(bytes.size(), " bytes are not the inner products of ", n,
                     " contributions"));
  }
  GramMatrix gram(n);
  for (size_t k = 0; k < gram.entries_.size(); ++k) {
    uint64_t words[2];
    std::memcpy(words, bytes.data() + k * kEntryBytes, kEntryBytes);
    gram.entries_[k] = ExactSum::FromBits(words[1], words[0]);
  }
  return gram;
}

}  // namespace atl
