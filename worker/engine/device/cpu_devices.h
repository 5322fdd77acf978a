// The CPU as Devices. Thread-safe and stateless.

#pragma once

#include <memory>

#include "worker/engine/device/devices.h"

namespace atl::engine {

std::unique_ptr<Devices> MakeCpuDevices();

// An instance that is never destroyed.
Devices& CpuDevices();

}  // namespace atl::engine
