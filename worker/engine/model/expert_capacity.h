// What of a sequence other ranks have, where an expert has a capacity: rows
// that come earlier in it are taken first, whoever has them.
//
// Thread-compatible.

#pragma once

#include <cstdint>

#include "worker/engine/model/workspace.h"
#include "worker/engine/ops/ops.h"

namespace atl::engine {

// With cp. [N, E]: how often each expert is chosen before each of this rank's N
// runs (model/unit_slice.h, SequenceRuns) in the run's sequence. `experts` are
// the choices of this rank's rows, `shape` has a group a run. Good until the
// workspace is used. All ranks of the cp group make the call.
//
// Null after an error. Latches INVALID_ARGUMENT: there are more runs than of
// sequences of the model's length.
//
// Instantiated for float and double.
template <typename T>
const T* ChosenBefore(Workspace<T>& work, const RouteShape& shape,
                      const int32_t* experts);

}  // namespace atl::engine
