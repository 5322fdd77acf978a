#include "base/sandbox/island_paths.h"

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace atl {
namespace {

// The system's programs and libraries.
constexpr const char* kPrograms[] = {"/usr",    "/lib",    "/lib32",
                                     "/lib64",  "/libx32", "/opt"};
// The kernel's view of the machine, and how names become addresses.
constexpr const char* kFacts[] = {"/etc", "/proc", "/sys",
                                  "/run/systemd/resolve"};
constexpr const char* kDevices[] = {"/dev/null",   "/dev/zero", "/dev/random",
                                    "/dev/urandom", "/dev/tty"};
// By prefix: devices of CUDA (dxg: under Windows), and of NCCL.
constexpr const char* kDevicePrefixes[] = {"nvidia", "dxg", "infiniband",
                                           "gdrdrv"};

// True if `directory` is the home or has it below.
bool HoldsHome(absl::string_view directory, absl::string_view home) {
  if (directory.empty() || directory == "/") return true;
  return !home.empty() &&
         absl::StartsWith(absl::StrCat(home, "/"),
                          absl::StrCat(directory, "/"));
}

}  // namespace

std::vector<PathRule> IslandRules(const IslandPaths& paths) {
  std::vector<PathRule> rules;
  const auto add = [&rules](const auto& list, PathAccess access) {
    for (const auto& path : list) rules.push_back({path, access});
  };
  const absl::string_view home = absl::StripSuffix(paths.home, "/");
  // Itself, which it executes again, also after an upgrade has removed it.
  rules.push_back({"/proc/self/exe", PathAccess::kExecute});
  add(kPrograms, PathAccess::kExecute);
  add(kFacts, PathAccess::kRead);
  std::set<std::string> libraries;
  for (const std::string& file : paths.mapped_files) {
    if (file == paths.program) continue;
    const std::string directory = file.substr(0, file.rfind('/'));
    libraries.insert(HoldsHome(directory, home) ? file : directory);
  }
  for (const std::string& directory : paths.library_directories) {
    if (!HoldsHome(absl::StripSuffix(directory, "/"), home)) {
      libraries.insert(directory);
    }
  }
  // The loader of a program may be among them.
  add(libraries, PathAccess::kExecute);
  // `--only-idle` looks for terminals.
  rules.push_back({"/dev", PathAccess::kList});
  add(kDevices, PathAccess::kDevice);
  for (const std::string& name : paths.device_names) {
    for (const char* prefix : kDevicePrefixes) {
      if (absl::StartsWith(name, prefix)) {
        rules.push_back({absl::StrCat("/dev/", name), PathAccess::kDevice});
      }
    }
  }
  rules.push_back({"/dev/shm", PathAccess::kWrite});
  if (!home.empty()) {
    rules.push_back({absl::StrCat(home, "/.nv"), PathAccess::kWrite});
  }
  add(paths.data, PathAccess::kRead);
  add(paths.read, PathAccess::kRead);
  add(paths.write, PathAccess::kWrite);
  add(paths.sockets, PathAccess::kSocket);
  return rules;
}

std::vector<std::string> ParseMappedFiles(absl::string_view maps) {
  std::set<std::string> files;
  for (const absl::string_view line : absl::StrSplit(maps, '\n')) {
    // address perms offset device inode path
    const size_t slash = line.find('/');
    if (slash == absl::string_view::npos) continue;
    const absl::string_view path = line.substr(slash);
    if (absl::StartsWith(path, "/dev/") || absl::EndsWith(path, " (deleted)")) {
      continue;
    }
    files.insert(std::string(path));
  }
  return {files.begin(), files.end()};
}

}  // namespace atl
