#include "cli/flags/mesh_flags.h"

#include <algorithm>
#include <string>
#include <vector>

namespace atl::cli {
namespace {

// Adds an option whose values are `names`, in the order of Enum's values.
template <typename Enum>
void AddEnum(CLI::App& command, const std::string& flag,
             const std::vector<std::string>& names, const std::string& help,
             Enum& value) {
  command
      .add_option_function<std::string>(
          flag,
          [&value, names](const std::string& name) {
            value = static_cast<Enum>(
                std::find(names.begin(), names.end(), name) - names.begin());
          },
          help)
      ->check(CLI::IsMember(names))
      ->default_str(names[static_cast<size_t>(value)]);
}

}  // namespace

void AddMeshFlags(CLI::App& command, worker::IslandPlace& place) {
  AddEnum(command, "--sharding", {"replicate", "zero1", "zero2", "zero3"},
          "What dp_shard ranks divide: nothing (replicate), the optimizer's "
          "state (zero1), also gradients (zero2), also parameters (zero3)",
          place.sharding);
  AddEnum(command, "--pipeline", {"gpipe", "1f1b", "interleaved"},
          "Schedule of the pipeline stages (pp)", place.pipeline);
  command
      .add_option(
          "--chunks", place.chunk_count,
          "Stages per pp rank; above 1 only with --pipeline interleaved")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command
      .add_option("--micro-batches", place.micro_batch_count,
                  "Micro-batches per step, one after the other; 0: one, or "
                  "as many as keep a pipeline busy")
      ->check(CLI::Range(0, 65536))
      ->capture_default_str();
  AddEnum(command, "--checkpointing", {"none", "selective", "full"},
          "What the backward pass recomputes: nothing (none), norms and "
          "activation functions (selective), all but each block's input (full)",
          place.checkpointing);
  command.add_option("--optimizer-dir", place.optimizer_directory,
                     "Keep the inner optimizer's state in this directory, on a "
                     "fast disk, instead of memory");
  command.add_flag("--optimizer-host", place.optimizer_on_host,
                   "Keep the inner optimizer's state in the host's memory when "
                   "ranks compute on devices");
}

}  // namespace atl::cli
