#include "cli/volunteer/local_name.h"

#include "absl/strings/str_cat.h"
#include "base/codec/sha256.h"

namespace atl::cli {

std::string LocalDirectory(absl::string_view state_directory) {
  return absl::StrCat(state_directory, "/local");
}

// A hash, because a socket's path is short and three names are long.
std::string LocalName(absl::string_view directory,
                      absl::string_view run_id, absl::string_view island_id) {
  const std::string hash = codec::ToHex(codec::ComputeSha256(
      absl::StrCat(directory, "\n", run_id, "\n", island_id)));
  return absl::StrCat(hash.substr(0, 32), ".sock");
}

}  // namespace atl::cli
