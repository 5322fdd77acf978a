#include "worker/island/meter/island_meter.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace atl::worker {
namespace {

void Add(int64_t bytes, absl::Duration span, Measured* sum) {
  if (bytes <= 0 || span <= absl::ZeroDuration()) return;
  sum->bytes += bytes;
  sum->seconds += absl::ToDoubleSeconds(span);
}

// "pulling fragment 3" without the 3.
std::string WithoutNumbers(absl::string_view text) {
  std::string kept;
  for (const char c : text) {
    if (absl::ascii_isdigit(c)) {
      if (!kept.empty() && kept.back() == ' ') kept.pop_back();
    } else {
      kept += c;
    }
  }
  return kept;
}

}  // namespace

void IslandMeter::Stepped(absl::Time begin, absl::Time end) {
  // Pauses before the first step do not count.
  if (last_end_ != absl::InfinitePast()) {
    for (const auto& [what, since] : since_step_) {
      Pause& sum = pauses_[what];
      sum.what = what;
      sum.count += since.count;
      sum.span += since.span;
    }
  }
  since_step_.clear();
  first_begin_ = std::min(first_begin_, begin);
  last_end_ = std::max(last_end_, end);
  stepping_ += std::max(end - begin, absl::ZeroDuration());
}

void IslandMeter::Paused(absl::string_view what, absl::Duration span) {
  Pause& since = since_step_[WithoutNumbers(what)];
  ++since.count;
  since.span += std::max(span, absl::ZeroDuration());
}

std::vector<Pause> IslandMeter::pauses() const {
  std::vector<Pause> all;
  for (const auto& [what, pause] : pauses_) all.push_back(pause);
  std::stable_sort(all.begin(), all.end(), [](const Pause& a, const Pause& b) {
    return a.span > b.span;
  });
  return all;
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
