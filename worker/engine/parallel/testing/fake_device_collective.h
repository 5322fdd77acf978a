// A rank whose calls are made on the memory of FakeDeviceOps, as a device's
// are: a world of CPU ranks in NCCL's place, for tests on any machine. A call
// on memory of the host ends the process.
//
// Thread-compatible, as what it stands on.

#pragma once

#include <memory>

#include "worker/collective/collective.h"
#include "worker/engine/ops/testing/fake_device_ops.h"

namespace atl::engine {

// Makes the calls of `inner`, which outlives it, on the contents of `memory`,
// which does too.
std::unique_ptr<collective::Collective> MakeFakeDeviceCollective(
    collective::Collective& inner, const FakeDeviceMemory& memory);

}  // namespace atl::engine
