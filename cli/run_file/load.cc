#include "cli/run_file/load.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/codec/sha256.h"
#include "base/io/files.h"
#include "base/layout/external_model.h"
#include "base/layout/ids.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "cli/output/error.h"
#include "cli/presets/presets.h"
#include "cli/units/units.h"

namespace atl::cli {
namespace {

constexpr size_t kDigestDigits = 8;
// An id has at most 63 characters.
constexpr size_t kReadableBytesMax = 63 - 1 - kDigestDigits;

absl::Status CannotRead(const std::string& path, int error_number) {
  return WithHint(absl::InvalidArgumentError(
                      ErrnoToStatus(error_number, path).message()),
                  "Let this user read it.");
}

absl::Status NotARunFile(const std::string& path, absl::string_view what) {
  return WithHint(
      WithReason(absl::InvalidArgumentError(absl::StrCat(
                     path, " is ", what, ", and a run file is a regular file")),
                 "NOT_A_RUN_FILE"),
      "Write the text to a file, and give its name.");
}

// NOT_FOUND: there is no such file.
absl::StatusOr<std::string> ReadText(const std::string& path) {
  if (path == "-") return NotARunFile(path, "the standard input");
  std::error_code error;
  const std::filesystem::file_status status =
      std::filesystem::status(path, error);
  // A name that cannot be looked up has no type.
  if (status.type() == std::filesystem::file_type::none) {
    return CannotRead(path, error.value());
  }
  if (!std::filesystem::exists(status)) return absl::NotFoundError(path);
  if (std::filesystem::is_directory(status)) {
    return NotARunFile(path, "a directory");
  }
  if (std::filesystem::is_fifo(status)) return NotARunFile(path, "a pipe");
  if (!std::filesystem::is_regular_file(status)) {
    return NotARunFile(path, "a device or a socket");
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return CannotRead(path, errno);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace

std::string IdFromName(const std::string& name) {
  if (ValidateId("", name).ok() && name[0] != '-') return name;
  std::string id;
  for (const unsigned char c : name) {
    const bool is_kept = absl::ascii_isalnum(c);
    if (!is_kept && (id.empty() || id.back() == '-')) continue;
    id += is_kept ? absl::ascii_tolower(c) : '-';
  }
  id = id.substr(0, kReadableBytesMax);
  if (!id.empty() && id.back() == '-') id.pop_back();
  return absl::StrCat(
      id.empty() ? "run" : id, "-",
      codec::ToHex(codec::ComputeSha256(name)).substr(0, kDigestDigits));
}

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
    // As it was typed: "link/.." is not the link's own folder.
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
  options.model_directory = AbsolutePath(changes.model_directory);
  options.tensors_path = AbsolutePath(changes.tensors_path);
  options.default_run_id =
      IdFromName(std::filesystem::path(path).stem().string());
  absl::StatusOr<std::string> text = ReadText(path);
  const std::optional<std::string> preset = FindPreset(path);
  if (text.ok()) {
    std::error_code error;
    options.directory =
        std::filesystem::absolute(path, error).parent_path().string();
  } else if (preset.has_value()) {
    text = *preset;
  }
  if (!text.ok() && !absl::IsNotFound(text.status())) return text.status();
  if (!text.ok()) {
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
