// What this machine computes with, for a Join. Thread-safe.

#ifndef WORKER_API_DEVICE_H_
#define WORKER_API_DEVICE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "atoll/v1/island_service.pb.h"

namespace atl::worker {

// The processor: kind "cpu", its model's name, the machine's memory in bytes
// (0 if the system does not say).
v1::Device DescribeCpu();

// The first "model name" of a /proc/cpuinfo, at most 128 bytes; "cpu" without.
std::string CpuModelName(absl::string_view cpuinfo);

}  // namespace atl::worker

#endif  // WORKER_API_DEVICE_H_
