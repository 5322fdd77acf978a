#include "cli/run_file/load.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/flags/flags.h"
#include "base/layout/external_model.h"
#include "base/status/status_macros.h"
#include "cli/output/error.h"
#include "cli/presets/presets.h"
#include "cli/units/units.h"

namespace atl::cli {
namespace {

std::string IdFromName(const std::string& name) {
  std::string id;
  for (char c : name) {
    const unsigned char byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte)) {
      id += static_cast<char>(std::tolower(byte));
    } else {
      id += '-';
    }
  }
  return id.substr(0, 63);
}

// `path`, absolute and without "..". Empty if it is empty.
std::string Absolute(const std::string& path) {
  if (path.empty()) return path;
  std::error_code error;
  return std::filesystem::absolute(path, error).lexically_normal().string();
}

std::optional<std::string> ReadText(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace

absl::Status ApplyChanges(const RunFileChanges& changes, RunFile* run) {
  if (!changes.run_id.empty()) run->run_id = changes.run_id;
  v1::RunSpec& spec = run->spec;
  if (changes.server_count > 0) spec.set_server_count(changes.server_count);
  if (changes.island_count > 0) {
    v1::ScheduleSpec& schedule = *spec.mutable_schedule();
    v1::DataSpec& data = *spec.mutable_data();
    if (data.data_shard_count() == schedule.island_count_min()) {
      data.set_data_shard_count(changes.island_count);
    }
    schedule.set_island_count_min(changes.island_count);
    schedule.set_min_quorum(
        std::min(schedule.min_quorum(), changes.island_count));
  }
  if (!changes.tokens.empty()) {
    const absl::StatusOr<int64_t> count = ParseCount(changes.tokens);
    if (!count.ok()) return WithContext(count.status(), "--tokens");
    spec.mutable_schedule()->set_token_count(*count);
    spec.mutable_schedule()->clear_round_count();
  }
  if (!changes.data_path.empty()) {
    if (IsExternal(spec.model())) {
      return absl::InvalidArgumentError(
          "--data: the trainer of an external model reads the data; leave it "
          "out");
    }
    if (!spec.data().url().empty()) {
      return absl::InvalidArgumentError(
          "--data: the data of this run comes by URL (data.url); leave it out");
    }
    std::error_code error;
    spec.mutable_data()->set_path(
        std::filesystem::absolute(changes.data_path, error).string());
  }
  return absl::OkStatus();
}

absl::StatusOr<RunFile> LoadRunFile(const std::string& path,
                                    const RunFileChanges& changes) {
  RunFileOptions options;
  options.name = path;
  options.find_preset = FindPreset;
  options.preset_names = PresetNames();
  options.model_directory = Absolute(changes.model_directory);
  options.tensors_path = Absolute(changes.tensors_path);
  const std::filesystem::path file(path);
  options.default_run_id = IdFromName(file.stem().string());
  std::optional<std::string> text = ReadText(path);
  if (text.has_value()) {
    std::error_code error;
    options.directory =
        std::filesystem::absolute(file, error).parent_path().string();
  } else {
    text = FindPreset(path);
  }
  if (!text.has_value()) {
    return WithHint(
        WithReason(
            absl::NotFoundError(absl::StrCat("there is no run file ", path,
                                             " or preset of that name")),
            "RUN_FILE_NOT_FOUND"),
        absl::StrCat("Give a readable TOML file or a preset: ", PresetNames(),
                     "."));
  }
  absl::StatusOr<RunFile> run = ParseRunFile(*text, options);
  if (!run.ok()) return run;
  RETURN_IF_ERROR(ApplyChanges(changes, &*run));
  return run;
}

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
