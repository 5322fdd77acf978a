#include "worker/api/island_meter.h"

#include <algorithm>

namespace atl::worker {
namespace {

void Add(int64_t bytes, absl::Duration span, Measured* sum) {
  if (bytes <= 0 || span <= absl::ZeroDuration()) return;
  sum->bytes += bytes;
  sum->seconds += absl::ToDoubleSeconds(span);
}

}  // namespace

void IslandMeter::Stepped(absl::Time begin, absl::Time end) {
  first_begin_ = std::min(first_begin_, begin);
  last_end_ = std::max(last_end_, end);
  stepping_ += std::max(end - begin, absl::ZeroDuration());
}

void IslandMeter::Pushed(int64_t bytes, absl::Duration span) {
  Add(bytes, span, &measured_.pushed);
}

void IslandMeter::Pulled(int64_t bytes, absl::Duration span) {
  Add(bytes, span, &measured_.pulled);
}

void IslandMeter::Contributed(int64_t bytes, absl::Duration span) {
  Add(bytes, span, &measured_.contributed);
}

IslandMeasurements IslandMeter::measurements(double tokens_per_second) const {
  IslandMeasurements measured = measured_;
  measured.tokens_per_second = tokens_per_second;
  return measured;
}

double IslandMeter::utilization() const {
  if (last_end_ <= first_begin_) return 0;
  return std::min(1.0, absl::FDivDuration(stepping_, last_end_ - first_begin_));
}

}  // namespace atl::worker
