#include "base/machine/cgroup.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace atl {
namespace {

using Strings = std::vector<std::string>;

// A mounted hierarchy.
struct Mount {
  bool is_v2 = false;
  Strings controllers;      // Version 1 only: "cpu", "memory", ...
  std::string group;        // The group that the mount point shows.
  std::string mount_point;  // Without the root of the files.
};

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Strings ReadWords(const std::string& path) {
  return absl::StrSplit(ReadText(path), absl::ByAnyChar(" \t\n"),
                        absl::SkipEmpty());
}

// mountinfo writes a space in a path as \040.
std::string Unescape(const std::string& path) {
  std::string out;
  return absl::CUnescape(path, &out) ? out : path;
}

// Reads a line of mountinfo; proc(5) names the fields.
std::optional<Mount> ParseMount(absl::string_view line) {
  const std::pair<std::string, std::string> halves =
      absl::StrSplit(line, absl::MaxSplits(" - ", 1));
  const Strings first = absl::StrSplit(halves.first, ' ');
  const Strings second = absl::StrSplit(halves.second, ' ');
  if (first.size() < 5 || second.size() < 3) return std::nullopt;
  Mount mount;
  mount.is_v2 = second[0] == "cgroup2";
  if (!mount.is_v2 && second[0] != "cgroup") return std::nullopt;
  mount.controllers = absl::StrSplit(second[2], ',');
  mount.group = Unescape(first[3]);
  mount.mount_point = Unescape(first[4]);
  return mount;
}

// This process's group in the hierarchy of `mount`, by the lines
// "4:cpu,cpuacct:/a/b" and "0::/a/b" of /proc/self/cgroup.
std::string FindGroup(const std::string& cgroup, const Mount& mount) {
  for (const absl::string_view line : absl::StrSplit(cgroup, '\n')) {
    const Strings fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() < 3) continue;
    const Strings names = absl::StrSplit(fields[1], ',', absl::SkipEmpty());
    const bool is_its =
        mount.is_v2 ? fields[0] == "0" && names.empty()
                    : absl::c_any_of(names, [&](const auto& name) {
                        return absl::c_linear_search(mount.controllers, name);
                      });
    if (is_its) return fields[2];
  }
  return "/";
}

// The directories of the process's group and its ancestors that the mount
// shows.
Strings FindDirectories(const std::string& root, const std::string& cgroup,
                        const Mount& mount) {
  const std::string top = absl::StrCat(root, mount.mount_point);
  Strings directories = {top};
  const std::string group = FindGroup(cgroup, mount);
  absl::string_view below = group;
  if (mount.group != "/" && !absl::ConsumePrefix(&below, mount.group)) {
    return directories;
  }
  const Strings parts = absl::StrSplit(below, '/', absl::SkipEmpty());
  // A path out of the process's cgroup namespace.
  if (absl::c_linear_search(parts, "..")) return directories;
  for (const std::string& part : parts) {
    directories.push_back(absl::StrCat(directories.back(), "/", part));
  }
  return directories;
}

template <typename Number>
void TakeMin(std::optional<Number>& least, Number value) {
  least = std::min(least.value_or(value), value);
}

void AddMemory(const std::string& path, CgroupLimits& limits) {
  const Strings words = ReadWords(path);
  int64_t bytes = 0;
  if (!words.empty() && absl::SimpleAtoi(words[0], &bytes) && bytes > 0) {
    TakeMin(limits.memory_bytes, bytes);
  }
}

// `words`: quota and period in microseconds; "max" or -1: no quota.
void AddQuota(const Strings& words, CgroupLimits& limits) {
  double quota = 0, period = 0;
  if (words.size() == 2 && absl::SimpleAtod(words[0], &quota) &&
      absl::SimpleAtod(words[1], &period) && quota > 0 && period > 0) {
    TakeMin(limits.processors, quota / period);
  }
}

}  // namespace

CgroupLimits ReadCgroupLimits(const std::string& root) {
  const std::string mounts = ReadText(root + "/proc/self/mountinfo");
  const std::string cgroup = ReadText(root + "/proc/self/cgroup");
  CgroupLimits limits;
  for (const absl::string_view line : absl::StrSplit(mounts, '\n')) {
    const std::optional<Mount> mount = ParseMount(line);
    if (!mount.has_value()) continue;
    for (const std::string& group : FindDirectories(root, cgroup, *mount)) {
      if (mount->is_v2) {
        AddMemory(group + "/memory.max", limits);
        AddMemory(group + "/memory.high", limits);
        AddQuota(ReadWords(group + "/cpu.max"), limits);
        continue;
      }
      AddMemory(group + "/memory.limit_in_bytes", limits);
      Strings quota = ReadWords(group + "/cpu.cfs_quota_us");
      for (std::string& word : ReadWords(group + "/cpu.cfs_period_us")) {
        quota.push_back(std::move(word));
      }
      AddQuota(quota, limits);
    }
  }
  return limits;
}

}  // namespace atl
