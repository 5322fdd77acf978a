// The inner steps at which fragments are pushed. Pure. Thread-safe.
//
//   P  fragments of the layout      H  inner steps a round (inner_step_count)
//   p  a fragment, in [0, P)        v  the version that a contribution starts
//                                      from; merging it makes v + 1
//
// Steps are counted over the whole run. A run in rounds trains all fragments
// from their anchors to one push, then waits for the answer. A streaming run
// (Streaming DiLoCo, arXiv 2501.18512) never stops training: each fragment is
// pushed on its own schedule, and the answer is applied some steps later.

#pragma once

#include <cstdint>

#include "atoll/v1/run.pb.h"

namespace atl {

// True if the run does not wait for answers: fragments are staggered, or
// answers are applied some steps after the push, blended, or predicted
// (`eager`).
bool IsStreaming(const v1::ScheduleSpec& schedule);

// Steps done when fragment `p` of `fragment_count` is pushed from `version` v:
//   staggered  v H + ceil(H (p + 1) / P)     together  (v + 1) H
// Requires: 0 <= p < P, v >= 0.
int64_t PushStep(const v1::ScheduleSpec& schedule, int32_t fragment_count,
                 int32_t p, int64_t version);

// Pushes a round, P at most: fragments with one push step go together.
int64_t SyncsPerRound(const v1::ScheduleSpec& schedule, int32_t fragment_count);

// Steps done when the training for this push begins: at the previous push of
// the fragment, or 0.
int64_t StartStep(const v1::ScheduleSpec& schedule, int32_t fragment_count,
                  int32_t p, int64_t version);

}  // namespace atl
