// The CPU as Devices. Thread-safe and stateless.

#ifndef WORKER_ENGINE_DEVICE_CPU_DEVICES_H_
#define WORKER_ENGINE_DEVICE_CPU_DEVICES_H_

#include <memory>

#include "worker/engine/device/devices.h"

namespace atl::engine {

std::unique_ptr<Devices> MakeCpuDevices();

// An instance that is never destroyed.
Devices& CpuDevices();

}  // namespace atl::engine

#endif  // WORKER_ENGINE_DEVICE_CPU_DEVICES_H_
