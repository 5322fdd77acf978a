// The manifest of a checkpoint on one shard, as readable JSON: its files, with
// sizes and SHA-256. server/store/DESIGN.md, Manifest, has the format.
//
// Pure. Thread-safe.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace atl::server {

// One version file.
struct ManifestFile {
  int32_t fragment = 0;
  int64_t version = 0;
  int64_t commit_seq = 0;    // The version's; 0 for version 0.
  std::string shard_digest;  // This shard's part of the digest, hex.
  std::string digest;        // The fragment's digest over all shards, hex.
  std::string file;          // Relative to the shard's directory.
  int64_t size_bytes = 0;
  std::string sha256;  // The whole file's, hex.
};

struct Manifest {
  std::string run_id;
  int64_t run_epoch = 0;
  std::string pin_id;
  int64_t commit_seq = 0;  // The cut: versions after all COMMITs before it.
  uint64_t layout_fingerprint = 0;
  int32_t shard = 0;
  int32_t shard_count = 0;
  std::vector<ManifestFile> files;  // By fragment, without empty ranges.
  // The shard's checkpoint before it, perhaps deleted since; empty for none.
  std::string parent_pin_id;
  std::string parent_sha256;  // Its manifest's, hex.
};

std::string ToJson(const Manifest& manifest);

// DATA_LOSS: `text` is not a manifest of this format; the message says why.
absl::StatusOr<Manifest> ParseManifest(absl::string_view text);

}  // namespace atl::server
