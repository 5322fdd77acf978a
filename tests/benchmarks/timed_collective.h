// A Collective that measures how long its rank waits in it.
//
// Thread-compatible, like any Collective.

#pragma once

#include <memory>

#include "worker/collective/collective.h"

namespace atl::collective {

// Wraps `inner` and adds the seconds that Run and the Wait of started
// operations take to *waited. `waited` outlives the collective; read it only
// while no call runs. Groups split from it add their time too.
std::unique_ptr<Collective> MakeTimed(std::unique_ptr<Collective> inner,
                                      double* waited);

}  // namespace atl::collective
