#include "cli/flags/compute_flags.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/machine/limits.h"
#include "cli/output/error.h"
#include "worker/api/device.h"

namespace atl::cli {
namespace {

// Adds a flag whose values are `names`, in the order of Enum's values.
template <typename Enum>
void AddEnum(flags::Command& command, const std::string& flag,
             const std::vector<std::string>& names, const std::string& help,
             Enum& value) {
  const flags::ValueCheck is_member = flags::IsMember(names);
  const auto read = [&value, names, is_member](const std::string& name) {
    const std::string fault = is_member.find_fault(name);
    if (fault.empty()) {
      value = static_cast<Enum>(std::find(names.begin(), names.end(), name) -
                                names.begin());
    }
    return fault;
  };
  command.AddText(flag, {is_member.name, read}, help)
      .Default(names[static_cast<size_t>(value)]);
}

}  // namespace

void AddThreadsFlag(flags::Command& command, int& threads) {
  command.Add("--threads", threads, "Threads to compute with; 0: all")
      .Check(flags::Range(0, 256))
      .ShowDefault();
}

int ChooseThreadCount(int threads) {
  return threads > 0 ? threads : ProcessorCount();
}

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

void AddMeshFlags(flags::Command& command, worker::IslandPlace& place) {
  AddEnum(command, "--sharding", {"replicate", "zero1", "zero2", "zero3"},
          "Divides among dp_shard ranks: nothing (replicate), the optimizer's "
          "state (zero1), also gradients (zero2), also parameters (zero3)",
          place.sharding);
  AddEnum(command, "--pipeline", {"gpipe", "1f1b", "interleaved"},
          "Schedule of the pipeline stages (pp)", place.pipeline);
  command
      .Add("--chunks", place.chunk_count,
           "Stages per pp rank; above 1 only with --pipeline interleaved")
      .Check(flags::Range(1, 1024))
      .ShowDefault();
  command
      .Add("--micro-batches", place.micro_batch_count,
           "Micro-batches per step, one after the other; 0: one, or "
           "as many as keep a pipeline busy")
      .Check(flags::Range(0, 65536))
      .ShowDefault();
  AddEnum(command, "--checkpointing", {"none", "selective", "full"},
          "Recomputes in the backward pass: nothing (none), norms and "
          "activation functions (selective), all but each block's input (full)",
          place.checkpointing);
  command.Add("--optimizer-dir", place.optimizer_directory,
              "Keep the inner optimizer's state in this directory, on a "
              "fast disk, instead of memory");
  command.AddFlag("--optimizer-host", place.optimizer_on_host,
                  "Keep the inner optimizer's state in the host's memory when "
                  "ranks compute on devices");
}

}  // namespace atl::cli
