#include "coordinator/core/rounds/kept_checkpoints.h"

#include <algorithm>
#include <cstddef>
#include <set>

namespace atl::coordinator {
namespace {

// Keeps the first of each period among the `count` newest periods.
void KeepFirsts(const std::vector<KnownCheckpoint>& oldest_first,
                absl::Duration period, int64_t count, absl::Time now,
                std::vector<const KnownCheckpoint*>& kept) {
  const auto period_of = [&](absl::Time time) {
    return absl::ToInt64Seconds(
        absl::Floor(time - absl::UnixEpoch(), period)) /
           absl::ToInt64Seconds(period);
  };
  std::set<int64_t> periods;
  std::vector<const KnownCheckpoint*> firsts;
  for (const KnownCheckpoint& one : oldest_first) {
    const int64_t index = period_of(one.time);
    if (index <= period_of(now) - count) continue;
    if (periods.insert(index).second) firsts.push_back(&one);
  }
  kept.insert(kept.end(), firsts.rbegin(), firsts.rend());
}

}  // namespace

std::vector<std::string> ListExpired(std::vector<KnownCheckpoint> checkpoints,
                                     int keep_count, absl::Time now) {
  std::sort(checkpoints.begin(), checkpoints.end(),
            [](const KnownCheckpoint& a, const KnownCheckpoint& b) {
              return a.commit_seq < b.commit_seq;
            });
  std::vector<const KnownCheckpoint*> wanted;  // The most wanted first.
  for (const KnownCheckpoint& one : checkpoints) {
    if (!one.suspect) wanted = {&one};
  }
  const size_t newest_count = std::clamp(
      keep_count == 0 ? kKeepCountDefault : keep_count, 1, kCheckpointsMax);
  for (size_t i = 0; i < std::min(newest_count, checkpoints.size()); ++i) {
    wanted.push_back(&checkpoints[checkpoints.size() - 1 - i]);
  }
  KeepFirsts(checkpoints, absl::Hours(24), 7, now, wanted);
  KeepFirsts(checkpoints, absl::Hours(1), 24, now, wanted);
  std::set<const KnownCheckpoint*> kept;
  for (const KnownCheckpoint* one : wanted) {
    if (kept.size() < kCheckpointsMax) kept.insert(one);
  }
  std::vector<std::string> expired;
  for (const KnownCheckpoint& one : checkpoints) {
    if (!kept.contains(&one)) expired.push_back(one.pin_id);
  }
  return expired;
}

}  // namespace atl::coordinator
