#include "cli/flags/run_file_flags.h"

#include "base/flags/flags.h"

namespace atl::cli {

void AddRunFileFlags(flags::Command& command, std::string& file,
                     RunFileChanges& changes) {
  command.Add("file", file, "Run file, or a preset's name").Required();
  command.Add("--run-id,--run", changes.run_id,
              "Id of the run; default: run_id in the file, else its name");
  command
      .Add("--servers", changes.server_count,
           "Number of servers, instead of the file's")
      .Check(flags::Positive());
  command
      .Add("--islands", changes.island_count,
           "Number of islands, instead of the file's")
      .Check(flags::Positive());
  command.Add("--tokens", changes.tokens,
              "End the run after this many merged tokens (20B), instead "
              "of the file's length");
  command.Add("--data", changes.data_path,
              "Path of the data, instead of the file's");
  command.Add("--model", changes.model_directory,
              "Model directory to start from, instead of the file's");
}

}  // namespace atl::cli
