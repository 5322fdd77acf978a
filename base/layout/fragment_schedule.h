// At which inner steps fragments are pushed.
//
// Pure. Thread-safe.
//
//   P  fragments of the layout      H  inner steps a round (inner_step_count)
//   p  a fragment, in [0, P)        v  the version that a contribution starts
//                                      from; its merge makes v + 1
//
// Steps are counted over the whole run. A run in rounds trains all fragments
// from their anchors to one push, and waits for the answer. A streaming run
// (Streaming DiLoCo, arXiv 2501.18512) has one clock of steps that does not
// stop: each fragment is pushed by its own schedule, and its answer is applied
// some steps later.

#ifndef BASE_LAYOUT_FRAGMENT_SCHEDULE_H_
#define BASE_LAYOUT_FRAGMENT_SCHEDULE_H_

#include <cstdint>

#include "atoll/v1/run.pb.h"

namespace atl {

// True if the run has one clock of steps: if fragments are staggered, or
// answers are applied later than at their push, or blended, or foreseen.
bool IsStreaming(const v1::ScheduleSpec& schedule);

// Steps done when fragment `p` of `fragment_count` is pushed from version v:
//   staggered  v H + ceil(H (p + 1) / P)     together  (v + 1) H
// Requires: 0 <= p < P, v >= 0.
int64_t PushStep(const v1::ScheduleSpec& schedule, int32_t fragment_count,
                 int32_t p, int64_t version);

// Steps done when the training begins that this push sends: that of the push
// before, or 0.
int64_t StartStep(const v1::ScheduleSpec& schedule, int32_t fragment_count,
                  int32_t p, int64_t version);

}  // namespace atl

#endif  // BASE_LAYOUT_FRAGMENT_SCHEDULE_H_
