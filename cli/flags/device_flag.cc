#include "cli/flags/device_flag.h"

#include "absl/strings/str_cat.h"
#include "cli/output/error.h"
#include "worker/api/device.h"

namespace atl::cli {

void AddDeviceFlag(CLI::App& command, const std::string& what,
                   std::string& device) {
  device = "cpu";
  command
      .add_option("--device", device,
                  absl::StrCat("Where ", what,
                               " computes: cpu, cuda or cuda:N; of several "
                               "CUDA devices ranks take one each, in turn; "
                               "with ,graphs=off without CUDA graphs, with "
                               ",cudnn=off without cuDNN"))
      ->capture_default_str();
}

absl::Status CheckDeviceFlag(const std::string& device) {
  const absl::Status status = worker::CheckDevice(device);
  if (status.ok()) return status;
  if (absl::IsInvalidArgument(status)) {
    return UsageError(absl::StrCat("--device: ", status.message()),
                      "Without the flag the processor computes.");
  }
  return WithReason(
      WithHint(
          WithExitCode(WithContext(status, absl::StrCat("--device ", device)),
                       ExitCode::kPreflightFailed),
          "Without the flag, or with --device cpu, the processor "
          "computes."),
      "NO_DEVICE");
}

}  // namespace atl::cli
