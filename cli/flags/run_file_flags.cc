#include "cli/flags/run_file_flags.h"

#include "cli/flags/number_check.h"

namespace atl::cli {

void AddRunFileFlags(CLI::App& command, std::string& file,
                     RunFileChanges& changes) {
  command.add_option("file", file, "Run file, or a preset's name")->required();
  command.add_option(
      "--run-id,--run", changes.run_id,
      "Id of the run; default: run_id in the file, else its name");
  command
      .add_option("--servers", changes.server_count,
                  "Number of servers, instead of the file's")
      ->check(Positive());
  command
      .add_option("--islands", changes.island_count,
                  "Number of islands, instead of the file's")
      ->check(Positive());
  command.add_option("--tokens", changes.tokens,
                     "End the run after this many merged tokens (20B), instead "
                     "of the file's length");
  command.add_option("--data", changes.data_path,
                     "Path of the data, instead of the file's");
  command.add_option("--model", changes.model_directory,
                     "Model directory to start from, instead of the file's");
}

}  // namespace atl::cli
