// manifest.json of a model directory that this program wrote. Pure.
// Thread-safe.
//
//   {"format": 1, "kind": "atoll checkpoint", "run_id": ..., "run_uid": ...,
//    "run_epoch": ..., "commit_seq": ..., "version": ...,
//    "layout_fingerprint": ..., "element_count": ..., "parameters_sha256": ...,
//    "files": [{"name": ..., "bytes": ..., "sha256": ...}, ...]}
//
// While the files of a directory are replaced, and after a crash in the middle,
// its manifest is unfinished: "format" is "unfinished", and "files" has the
// names of the old files and of the new ones. Every reader refuses it, those of
// older versions too.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace atl::worker {

inline constexpr char kManifestName[] = "manifest.json";

struct CheckpointSource {
  std::string run_id;   // Empty: from no run.
  std::string run_uid;  // Empty: from no run, or an older version wrote it.
  int64_t run_epoch = 0;
  int64_t commit_seq = 0;
  int64_t version = 0;  // The version of fragment 0.
};

struct CheckpointManifest {
  struct File {
    std::string name;  // A file name in the directory, without "/".
    int64_t size_bytes = 0;
    std::string sha256;  // 64 lower-case hex digits.
  };

  bool is_finished = true;
  CheckpointSource source;
  std::string architecture;  // Empty, or kExternalArchitecture.
  std::string layout_fingerprint;
  int64_t element_count = 0;
  std::string parameters_sha256;
  std::vector<File> files;  // Without the manifest.
};

std::string WriteCheckpointManifest(const CheckpointManifest &manifest);

// nullopt: `text` is not of WriteCheckpointManifest, e.g. the manifest of a
// data set.
std::optional<CheckpointManifest> ParseCheckpointManifest(
    absl::string_view text);

}  // namespace atl::worker
