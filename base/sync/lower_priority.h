// The priority of a thread whose work can wait.

#pragma once

#include <sys/resource.h>
#include <unistd.h>

namespace atl {

// Adds `niceness` (> 0) to that of the calling thread: on Linux this applies to
// one thread. A sum above 19 is 19. Failure is harmless.
inline void LowerPriority(int niceness) {
  const auto thread = static_cast<id_t>(gettid());
  setpriority(PRIO_PROCESS, thread,
              getpriority(PRIO_PROCESS, thread) + niceness);
}

}  // namespace atl
