// The safetensors format: a header that says where each tensor lies, then the
// tensors' bytes.
//
// The file: the header's length N, little-endian uint64; the header, N bytes of
// JSON {"NAME": {"dtype": "F32", "shape": [...], "data_offsets": [begin, end]},
// ..., "__metadata__": {...}}, padded with spaces; the data, to which offsets are
// relative. Tensors follow each other without gaps.
//
// Pure. Thread-safe.

#ifndef WORKER_CHECKPOINT_SAFETENSORS_H_
#define WORKER_CHECKPOINT_SAFETENSORS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace atl::worker {

// Longest header that is read: that of the reference implementation.
inline constexpr int64_t kSafetensorsHeaderBytesMax = 100'000'000;

struct SafetensorsEntry {
  std::string name;
  std::string dtype;           // "F32".
  std::vector<int64_t> shape;  // May be empty: a scalar.
  int64_t begin = 0;           // Offsets in the data.
  int64_t end = 0;
  friend bool operator==(const SafetensorsEntry&,
                         const SafetensorsEntry&) = default;
};

// The file's bytes before the data, for tensors in the order that they will be
// written; offsets are filled in here from the shapes of F32 tensors.
std::string SafetensorsPreamble(std::vector<SafetensorsEntry>& entries);

// Reads the header's JSON. `data_bytes` is what follows it in the file.
//
// INVALID_ARGUMENT: it is not JSON of this form; a name comes twice; a shape
// does not fit its offsets; offsets leave the data, overlap or leave a gap.
// The entries come in the order of their offsets.
absl::StatusOr<std::vector<SafetensorsEntry>> ParseSafetensorsHeader(
    absl::string_view json, int64_t data_bytes);

}  // namespace atl::worker

#endif  // WORKER_CHECKPOINT_SAFETENSORS_H_
