#include "coordinator/core/state/phase_table.h"

#include <algorithm>

#include "base/time/proto_time.h"

namespace atl::coordinator {
namespace {

// The phases that islands report.
constexpr std::array<v1::Phase, 5> kPhases = {
    v1::PHASE_TRAIN, v1::PHASE_ENCODE, v1::PHASE_PUSH, v1::PHASE_WAIT,
    v1::PHASE_APPLY};
constexpr size_t kPush = 2;  // In kPhases.
static_assert(kPhases[kPush] == v1::PHASE_PUSH);

}  // namespace

const PhaseTable::Syncs& PhaseTable::kept() const {
  static const Syncs* const empty = new Syncs();
  return kept_ == nullptr ? *empty : *kept_;
}

bool PhaseTable::Add(const v1::SyncPhases& sync) {
  const Syncs& known = kept();
  const auto found =
      std::lower_bound(known.begin(), known.end(), sync.seq(), IsBefore);
  if (found != known.end() && found->seq == sync.seq()) return false;
  if (known.size() == kKeptMax && found == known.begin()) return false;
  const auto place = found - known.begin();
  Sync added;
  added.seq = sync.seq();
  for (const v1::PhaseTime& phase : sync.phases()) {
    const auto kind = std::find(kPhases.begin(), kPhases.end(), phase.phase());
    if (kind == kPhases.end()) continue;
    added.spans[kind - kPhases.begin()] = {
        absl::ToUnixMicros(FromProto(phase.start_time())),
        absl::ToInt64Microseconds(FromProto(phase.duration()))};
  }
  if (kept_ == nullptr || shares_) kept_ = std::make_shared<Syncs>(known);
  shares_ = false;
  kept_->insert(kept_->begin() + place, added);
  if (kept_->size() > kKeptMax) kept_->erase(kept_->begin());
  return true;
}

absl::Duration PhaseTable::MedianPush(size_t count) const {
  std::vector<int64_t> pushes;
  const Syncs& known = kept();
  const size_t first = known.size() - std::min(count, known.size());
  for (size_t i = first; i < known.size(); ++i) {
    const int64_t duration_us = known[i].spans[kPush].duration_us;
    if (duration_us >= 0) pushes.push_back(duration_us);
  }
  if (pushes.empty()) return absl::ZeroDuration();
  const auto middle = pushes.begin() + (pushes.size() - 1) / 2;
  std::nth_element(pushes.begin(), middle, pushes.end());
  return absl::Microseconds(*middle);
}

std::vector<v1::PhaseTime> PhaseTable::Find(int64_t seq) const {
  const Syncs& known = kept();
  const auto sync =
      std::lower_bound(known.begin(), known.end(), seq, IsBefore);
  std::vector<v1::PhaseTime> phases;
  if (sync == known.end() || sync->seq != seq) return phases;
  std::vector<size_t> order;
  for (size_t i = 0; i < kPhases.size(); ++i) {
    if (sync->spans[i].duration_us >= 0) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return sync->spans[a].start_us < sync->spans[b].start_us;
  });
  for (const size_t i : order) {
    v1::PhaseTime& phase = phases.emplace_back();
    phase.set_phase(kPhases[i]);
    *phase.mutable_start_time() =
        ToProto(absl::FromUnixMicros(sync->spans[i].start_us));
    *phase.mutable_duration() =
        ToProto(absl::Microseconds(sync->spans[i].duration_us));
  }
  return phases;
}

}  // namespace atl::coordinator
