// The paths that an island needs, and so the only ones that it may use.
//
// Not here, so refused: the rest of the home (keys, documents, other programs'
// configuration), the shared temporary directory, and other islands' files.
//
// Pure. Thread-safe.

#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/sandbox/path_rule.h"

namespace atl {

// The paths of an island and of its machine. They are absolute; a path may name
// nothing.
struct IslandPaths {
  std::string home;  // Empty: unknown.
  std::string program;
  // Files that this process has mapped, and directories of libraries that it
  // may load later.
  std::vector<std::string> mapped_files;
  std::vector<std::string> library_directories;
  std::vector<std::string> device_names;  // In /dev.
  // Files and directories of data that the island's user allowed.
  std::vector<std::string> data;
  // Certificates, secrets, settings.
  std::vector<std::string> read;
  // Its state, cache and temporary directory.
  std::vector<std::string> write;
  // Directories where it makes a unix socket.
  std::vector<std::string> sockets;
};

// The rules of an island. The directory of a mapped library is readable, unless
// it is the home or contains it: then only the library's file is. The program's
// file is readable, its directory is not: it may be a person's downloads.
std::vector<PathRule> IslandRules(const IslandPaths& paths);

// The files of the text of /proc/self/maps, each once.
std::vector<std::string> ParseMappedFiles(absl::string_view maps);

}  // namespace atl
