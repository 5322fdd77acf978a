// What this machine computes with, for a Join. Thread-safe.

#ifndef WORKER_API_DEVICE_H_
#define WORKER_API_DEVICE_H_

#include "atoll/v1/island_service.pb.h"

namespace atl::worker {

// The processor: kind "cpu", its model's name ("cpu" if the system does not
// say), the machine's memory in bytes (0 if it does not say).
v1::Device DescribeCpu();

}  // namespace atl::worker

#endif  // WORKER_API_DEVICE_H_
