#include "cli/flags/device_flag.h"

#include "absl/strings/str_cat.h"
#include "cli/output/error.h"
#include "worker/api/device.h"

namespace atl::cli {

void AddDeviceFlag(flags::Command& command, const std::string& what,
                   std::string& device) {
  device = "cpu";
  command
      .Add("--device", device,
           absl::StrCat("Where ", what,
                        " computes: cpu, cuda or cuda:N. With cuda, "
                        "ranks take the CUDA devices in turn. Add "
                        ",graphs=off to disable CUDA graphs, "
                        ",cudnn=off to disable cuDNN"))
      .ShowDefault();
}

absl::Status CheckDeviceFlag(const std::string& device) {
  const absl::Status status = worker::CheckDevice(device);
  if (status.ok()) return status;
  if (absl::IsInvalidArgument(status)) {
    return UsageError(absl::StrCat("--device: ", status.message()),
                      "Leave the flag out to compute on the CPU.");
  }
  return WithReason(
      WithHint(
          WithExitCode(WithContext(status, absl::StrCat("--device ", device)),
                       ExitCode::kPreflightFailed),
          "Use --device cpu, or leave the flag out, to compute on the CPU."),
      "NO_DEVICE");
}

}  // namespace atl::cli
