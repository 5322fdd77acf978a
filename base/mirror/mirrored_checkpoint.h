// Reads checkpoints of a mirror. Needs no cluster. Thread-compatible.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "atoll/storage/v1/mirror_manifest.pb.h"
#include "base/layout/layout.h"
#include "base/mirror/mirror_names.h"
#include "base/object_store/object_store.h"

namespace atl::mirror {

// The checkpoints that are whole, in order. Errors as ObjectStore::List's.
absl::StatusOr<std::vector<CheckpointPlace>> ListCheckpoints(
    ObjectStore& store);

class MirroredCheckpoint {
 public:
  // Reads and checks the manifest. `store` must outlive the object.
  //
  // NOT_FOUND: it does not exist. DATA_LOSS: it is damaged, or of another
  // format.
  static absl::StatusOr<std::unique_ptr<MirroredCheckpoint>> Open(
      ObjectStore& store, const CheckpointPlace& place);

  const storage::v1::MirrorManifest& manifest() const { return manifest_; }
  const RunLayout& layout() const { return layout_; }

  // Bytes of all parts, and theta's bytes of the largest one.
  int64_t PartBytes() const;
  int64_t ThetaBytesMax() const;

  // Gets the bytes of all parts that were read so far. An error ends the read.
  using OnBytes = std::function<absl::Status(int64_t)>;

  // Reads all parts and checks them. `parameters`: gets theta in the model
  // order, shape [layout.element_count()]; empty: only checks. Holds theta of
  // one part in memory. `on_bytes` may be empty.
  //
  // DATA_LOSS: a part is missing or damaged, or a fragment has another digest
  // than the cut; the message names it. Its values are undefined then. Others:
  // the store's, and those of `on_bytes`.
  absl::Status Read(absl::Span<float> parameters = {},
                    const OnBytes& on_bytes = {}) const;

 private:
  MirroredCheckpoint(ObjectStore& store, storage::v1::MirrorManifest manifest,
                     RunLayout layout)
      : store_(store),
        manifest_(std::move(manifest)),
        layout_(std::move(layout)) {}

  // Reads a part into `theta`, and checks its size, SHA-256 and header. Adds
  // its bytes to `done`.
  absl::Status ReadPart(const storage::v1::MirrorPart& part,
                        std::vector<float>& theta, int64_t& done,
                        const OnBytes& on_bytes) const;

  ObjectStore& store_;
  const storage::v1::MirrorManifest manifest_;
  const RunLayout layout_;
};

}  // namespace atl::mirror
