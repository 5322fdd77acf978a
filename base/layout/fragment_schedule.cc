#include "base/layout/fragment_schedule.h"

namespace atl {

bool IsStreaming(const v1::ScheduleSpec& schedule) {
  return schedule.overlap_step_count() > 0 || schedule.blend() != 0 ||
         schedule.eager() ||
         schedule.fragment_schedule() == v1::FRAGMENT_SCHEDULE_STAGGERED;
}

int64_t PushStep(const v1::ScheduleSpec& schedule, int32_t fragment_count,
                 int32_t p, int64_t version) {
  const int64_t period = schedule.inner_step_count();
  if (schedule.fragment_schedule() != v1::FRAGMENT_SCHEDULE_STAGGERED) {
    return (version + 1) * period;
  }
  const int64_t within =
      (period * (p + 1) + fragment_count - 1) / fragment_count;
  return version * period + within;
}

int64_t SyncsPerRound(const v1::ScheduleSpec& schedule,
                      int32_t fragment_count) {
  // Push steps never fall from one fragment to the next.
  int64_t count = 0, previous = -1;
  for (int32_t p = 0; p < fragment_count; ++p) {
    const int64_t step = PushStep(schedule, fragment_count, p, 0);
    count += step != previous;
    previous = step;
  }
  return count;
}

int64_t StartStep(const v1::ScheduleSpec& schedule, int32_t fragment_count,
                  int32_t p, int64_t version) {
  return version == 0 ? 0 : PushStep(schedule, fragment_count, p, version - 1);
}

}  // namespace atl
