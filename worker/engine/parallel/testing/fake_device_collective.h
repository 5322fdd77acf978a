// A Collective on the memory of FakeDeviceOps, in NCCL's place, for tests on
// any machine. A call on host memory ends the process. Thread-compatible.

#pragma once

#include <memory>

#include "worker/collective/collective.h"
#include "worker/engine/ops/testing/fake_device_ops.h"

namespace atl::engine {

// Calls `inner` on the contents of `memory`. Both outlive it.
std::unique_ptr<collective::Collective> MakeFakeDeviceCollective(
    collective::Collective& inner, const FakeDeviceMemory& memory);

}  // namespace atl::engine
