// A Collective that notes how long its rank waits in it.
//
// Thread-compatible, as any Collective.

#pragma once

#include <memory>

#include "worker/collective/collective.h"

namespace atl::collective {

// `inner`, and the seconds that Run and the Wait of what was started take are
// added to *waited, which outlives it and is read while no call is made. Groups
// that are split from it add theirs.
std::unique_ptr<Collective> MakeTimed(std::unique_ptr<Collective> inner,
                                      double* waited);

}  // namespace atl::collective
