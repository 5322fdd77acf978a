#include "server/store/shard_files.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/layout/ids.h"
#include "base/obs/log.h"
#include "base/random_id/random_id.h"
#include "base/status/status_macros.h"

namespace atl::server {
namespace {

// "#" stands for a number, "*" for an id.
struct FileName {
  absl::string_view folder;
  absl::string_view pattern;
};
constexpr FileName kFiles[] = {
    {"records", "#.log"},
    {"records", "#.log.tmp"},
    {"records", "mark"},
    {"records", "mark.tmp"},
    {"versions", "f#-v#.ver"},
    {"versions", "f#-v#.ver.tmp"},
    {"versions", "f#-v#.spare.tmp"},
    {"sums", "f#-v#.sum"},
    {"deltas", "f#-v#.dlt"},
    {"deltas", "f#-v#.dlt.tmp"},
    {"deltas", "f#-v#.dlt.spare.tmp"},
    {"log", "#.seg"},
    {"checkpoints", "*.json"},
    {"checkpoints", "*.json.tmp"},
};

bool TakeNumber(absl::string_view& name) {
  size_t count = 0;
  while (count < name.size() && absl::ascii_isdigit(name[count])) ++count;
  name.remove_prefix(count);
  return count > 0;
}

bool TakeId(absl::string_view& name) {
  const absl::string_view id = name.substr(0, name.find('.'));
  name.remove_prefix(id.size());
  return ValidateId("id", std::string(id)).ok();
}

bool Matches(absl::string_view name, absl::string_view pattern) {
  for (const char c : pattern) {
    if (c == '#') {
      if (!TakeNumber(name)) return false;
    } else if (c == '*') {
      if (!TakeId(name)) return false;
    } else if (!absl::ConsumePrefix(&name, absl::string_view(&c, 1))) {
      return false;
    }
  }
  return name.empty();
}

}  // namespace

std::optional<std::pair<std::string, std::string>> ParseRunDirectory(
    absl::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == absl::string_view::npos) return std::nullopt;
  std::string run_id(name.substr(0, dot)), run_uid(name.substr(dot + 1));
  if (!ValidateId("run_id", run_id).ok() || !IsRandomId(run_uid)) {
    return std::nullopt;
  }
  return std::pair(std::move(run_id), std::move(run_uid));
}

std::optional<int32_t> ParseShardDirectory(absl::string_view name) {
  int32_t shard = 0;
  if (!absl::ConsumePrefix(&name, "shard-") ||
      !absl::SimpleAtoi(name, &shard) || shard < 0 ||
      name != absl::StrCat(shard)) {
    return std::nullopt;
  }
  return shard;
}

bool IsShardFolder(absl::string_view name) {
  for (const FileName& file : kFiles) {
    if (file.folder == name) return true;
  }
  return false;
}

bool IsShardFile(absl::string_view folder, absl::string_view name) {
  for (const FileName& file : kFiles) {
    if (file.folder == folder && Matches(name, file.pattern)) return true;
  }
  return false;
}

absl::StatusOr<std::vector<std::string>> ListShardFiles(
    FileSystem& fs, const std::string& directory, absl::string_view folder) {
  ASSIGN_OR_RETURN(std::vector<std::string> names, fs.List(directory));
  std::erase_if(names, [&](const std::string& name) {
    if (IsShardFile(folder, name)) return false;
    LOG(WARNING) << directory << "/" << name
                 << " is no file of a server; it is left alone";
    return true;
  });
  return names;
}

}  // namespace atl::server
