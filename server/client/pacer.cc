#include "server/client/pacer.h"

#include <algorithm>

namespace atl::server {
namespace {

// How late a timer may fire without lost throughput. With chunks of half of it,
// the cap is exceeded by at most 2.5 % in three seconds.
constexpr absl::Duration kCreditMax = absl::Milliseconds(50);

}  // namespace

Pacer::Pacer(double bytes_per_second, const Clock& clock)
    : bytes_per_second_(bytes_per_second),
      clock_(clock),
      bucket_(std::max(bytes_per_second, 1.0), kCreditMax) {}

absl::Duration Pacer::Take(int64_t bytes) {
  if (!is_capped()) return absl::ZeroDuration();
  MutexLock lock(&mutex_);
  const absl::Time now = clock_.Now();
  return bucket_.Take(bytes, now) - now;
}

void Pacer::GiveBack(int64_t bytes) {
  if (!is_capped()) return;
  MutexLock lock(&mutex_);
  bucket_.GiveBack(bytes);
}

int64_t Pacer::BytesIn(absl::Duration span, int64_t min, int64_t max) const {
  if (!is_capped()) return max;
  const double bytes = bytes_per_second_ * absl::ToDoubleSeconds(span);
  return bytes >= static_cast<double>(max)
             ? max
             : std::max(min, static_cast<int64_t>(bytes));
}

}  // namespace atl::server
