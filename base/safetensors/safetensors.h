// The safetensors format: a header that locates each tensor, then their bytes.
//
// The file: the header's length N, little-endian uint64; the header, N bytes of
// JSON {"NAME": {"dtype": "F32", "shape": [...], "data_offsets": [begin, end]},
// ..., "__metadata__": {...}}, padded with spaces; the data. Offsets are
// relative to the data. There are no gaps between tensors.
//
// Pure. Thread-safe.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace atl {

// The reference implementation's limit.
inline constexpr int64_t kSafetensorsHeaderBytesMax = 100'000'000;

struct SafetensorsEntry {
  std::string name;
  std::string dtype;           // "F32".
  std::vector<int64_t> shape;  // Empty for a scalar.
  int64_t begin = 0;           // Offsets in the data.
  int64_t end = 0;
  friend bool operator==(const SafetensorsEntry&,
                         const SafetensorsEntry&) = default;
};

// For messages: "[2, 3]".
std::string ShapeText(absl::Span<const int64_t> shape);

// True if `entry` has the shape of a layout's tensor. A layout has no scalars:
// [1] stands for [].
bool HasShape(const SafetensorsEntry& entry, absl::Span<const int64_t> shape);

// The file's bytes before the data, for F32 tensors in file order; fills in the
// offsets from the shapes. The default metadata is what transformers requires.
std::string SafetensorsPreamble(
    std::vector<SafetensorsEntry>& entries,
    const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

// Parses the header's JSON; `data_bytes` is the size of the data. Returns the
// entries in the order of their offsets.
//
// INVALID_ARGUMENT: not JSON of this form; a repeated name; a shape that does
// not fit its offsets; offsets outside the data, overlapping or with a gap.
absl::StatusOr<std::vector<SafetensorsEntry>> ParseSafetensorsHeader(
    absl::string_view json, int64_t data_bytes);

}  // namespace atl
