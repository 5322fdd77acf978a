#include "worker/api/island_place.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status/status_macros.h"

namespace atl::worker {

absl::StatusOr<engine::Mesh> MeshOf(const IslandPlace& place) {
  ASSIGN_OR_RETURN(const engine::Mesh mesh, engine::Mesh::Parse(place.mesh));
  if (place.process_count < 1) {
    return absl::InvalidArgumentError("an island has at least one process");
  }
  if (place.process_index < 0 || place.process_index >= place.process_count) {
    return absl::InvalidArgumentError(absl::StrCat(
        "process_index is ", place.process_index, ", but of ",
        place.process_count, " processes the last is ",
        place.process_count - 1));
  }
  if (mesh.rank_count() % place.process_count != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the mesh \"", place.mesh, "\" has ", mesh.rank_count(),
        " ranks, which ", place.process_count,
        " processes cannot share evenly; each takes the same number"));
  }
  if (place.process_count == 1) {
    if (place.rendezvous.empty()) return mesh;
    return absl::InvalidArgumentError(
        "a rendezvous is for an island of several processes; say how many "
        "with processes, or leave it out");
  }
  const size_t colon = place.rendezvous.rfind(':');
  if (colon == std::string::npos || colon == 0 ||
      colon + 1 == place.rendezvous.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rendezvous is \"", place.rendezvous, "\"; several processes need a "
        "HOST:PORT at which process 0 listens and the others reach it"));
  }
  return mesh;
}

}  // namespace atl::worker
