// With cp, counts the expert choices that other ranks have in a sequence. An
// expert with a capacity takes the earliest rows of a sequence first, on
// whichever rank they are. Thread-compatible.

#pragma once

#include <cstdint>

#include "worker/engine/model/workspace.h"
#include "worker/engine/ops/ops.h"

namespace atl::engine {

// Returns [N, E], valid until the workspace is used again: for each of this
// rank's N runs (model/unit_slice.h, SequenceRuns), how often each expert is
// chosen before it in its sequence. `experts` are the choices of this rank's
// rows; `shape` has one group per run. Needs cp, and all ranks of the cp group
// must call it. Instantiated for float and double.
//
// Null after an error. Latches INVALID_ARGUMENT if there are more runs than
// those of whole sequences of the model's length.
template <typename T>
const T* ChosenBefore(Workspace<T>& work, const RouteShape& shape,
                      const int32_t* experts);

}  // namespace atl::engine
