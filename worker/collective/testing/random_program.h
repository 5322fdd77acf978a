// Random calls whose results each rank knows beforehand.

#ifndef WORKER_COLLECTIVE_TESTING_RANDOM_PROGRAM_H_
#define WORKER_COLLECTIVE_TESTING_RANDOM_PROGRAM_H_

#include <cstdint>

#include "worker/collective/collective.h"

namespace atl::collective {

// Makes `call_count` calls, which are a function of `seed` and the group's size
// alone, and holds every byte that comes out of them to what the inputs of all
// ranks, which are functions of `seed` too, give. Some are started and waited
// for later. Counts go up to `count_max` elements a rank. Fails the test if
// anything differs.
void RunRandomProgram(uint64_t seed, int call_count, int64_t count_max,
                      Collective& collective);

}  // namespace atl::collective

#endif  // WORKER_COLLECTIVE_TESTING_RANDOM_PROGRAM_H_
