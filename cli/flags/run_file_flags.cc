#include "cli/flags/run_file_flags.h"

#include "cli/flags/number_check.h"

namespace atl::cli {

void AddRunFileFlags(CLI::App& command, std::string& file,
                     RunFileChanges& changes) {
  command.add_option("file", file, "Run file, or a preset's name")->required();
  command.add_option("--run-id,--run", changes.run_id,
                     "Id of the run; the file's name without it");
  command
      .add_option("--servers", changes.server_count,
                  "Servers, if not as the file says")
      ->check(Positive());
  command
      .add_option("--islands", changes.island_count,
                  "Islands, if not as the file says")
      ->check(Positive());
  command.add_option("--tokens", changes.tokens,
                     "End after so many merged tokens (20B), in place of the "
                     "file's length");
  command.add_option("--data", changes.data_path,
                     "Place of the data, if not as the file says");
  command.add_option("--model", changes.model_directory,
                     "Model to start from, if not as the file says");
}

}  // namespace atl::cli
