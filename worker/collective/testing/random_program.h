// Random calls with results that each rank can compute beforehand.

#pragma once

#include <cstdint>

#include "worker/collective/collective.h"

namespace atl::collective {

// Makes `call_count` calls, a function of `seed` and the group's size, and
// compares every output byte with the definition. Inputs are functions of
// `seed` too. Some calls are started and waited for later. Counts go up to
// `count_max` elements a rank. Fails the test at any difference.
void RunRandomProgram(uint64_t seed, int call_count, int64_t count_max,
                      Collective& collective);

}  // namespace atl::collective
