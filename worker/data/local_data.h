// Decides which local file or folder an island may open for a run's data.
//
// A run comes from a peer. So its path and its file:// URL are labels: they
// open nothing by themselves. An island opens the path that its user gave
// (--data), or a path below a folder that the user allowed once (`atoll data
// allow`). An island without TLS, whose coordinator is on this machine, opens
// the path that the run names.
//
// Thread-safe. Pure, but for ResolveLinks.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "atoll/v1/run.pb.h"

namespace atl::worker {

// The rights that this machine's user gave.
struct LocalDataRights {
  std::string data_path;           // --data; empty: not given.
  std::vector<std::string> roots;  // Allowed folders: absolute, without links.
  bool has_tls = true;
  bool coordinator_is_loopback = false;
};

// The place of an island's data.
struct DataPlace {
  std::string path;   // Path to open here; empty: the data comes by URL.
  std::string right;  // The right to open it, for people.

  // "opens PATH: RIGHT"; empty if nothing is opened.
  std::string Describe() const;
};

// The reason of a refusal by FindDataPlace.
inline constexpr char kDataNotAllowed[] = "DATA_NOT_ALLOWED";

// `path` without links, "." and "..". Errors: the system's.
absl::StatusOr<std::string> ResolveLinks(const std::string& path);

// The path that `data` names: data.path, or the directory of a file:// URL.
// Empty: it names none. For the run's own operator, and for this library.
std::string FindNamedPath(const v1::DataSpec& data);

// Returns whether `path` is `root` or below it. Both: absolute, without links.
bool IsBelow(absl::string_view path, absl::string_view root);

// `resolve` is called only if there are roots. A path below a root is returned
// without links.
//
// FAILED_PRECONDITION, with the reason kDataNotAllowed: the run names a path
// here, and nothing allows it. NOT_FOUND: the run names no data, and --data is
// not given. Each message says what to do, in one line.
absl::StatusOr<DataPlace> FindDataPlace(
    const v1::DataSpec& data, const LocalDataRights& rights,
    const std::function<absl::StatusOr<std::string>(const std::string&)>&
        resolve = ResolveLinks);

}  // namespace atl::worker
