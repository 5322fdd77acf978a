// The devices of this machine. Thread-safe.

#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "atoll/v1/island_service.pb.h"
#include "worker/engine/device/devices.h"
#include "worker/engine/trainer.h"

namespace atl::worker {

// The processor: kind "cpu", its model's name ("cpu" if unknown), the machine's
// memory in bytes (0 if unknown).
v1::Device DescribeCpu();
// For a Join: the device of rank `rank`; on a CPU DescribeCpu().
v1::Device DescribeDevice(const engine::Devices& devices, int rank);

// Checks that this program can compute on `device`, "cpu", "cuda" or "cuda:N",
// on this machine. INVALID_ARGUMENT: not a device. FAILED_PRECONDITION: not
// built in, or the machine has none; the message gives a remedy.
absl::Status CheckDevice(absl::string_view device);

// A trainer of one rank. Errors of engine::Trainer and engine::Devices.
absl::StatusOr<std::unique_ptr<engine::Trainer>> MakeTrainerOn(
    engine::Devices& devices, const engine::TrainerOptions& options);

}  // namespace atl::worker
