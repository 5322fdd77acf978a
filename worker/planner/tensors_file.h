// The layout of an external model as a JSON file, which its trainer writes.
// Pure. Thread-safe.
//
//   {"version": 1,
//    "tensors": [
//      {"name": "w", "shape": [3, 4], "fragment": 0,
//       "init": {"kind": "normal", "value": 0.02}, "class": "matrix"},
//      ...]}
//
// The order of the list is the order of the layout. A tensor must have a name
// (1 to 256 of A-Z, a-z, 0-9, '.', '_' and '-') and a shape; a scalar has shape
// [1]. The other keys are optional:
//
//   fragment  all tensors name their fragment, or none does. If none does,
//             fragments are adjacent tensors, with the smallest possible
//             largest fragment.
//   init      "constant": every element is `value` (default 0); "normal": mean
//             0 and standard deviation `value`. Default: constant 0. A run that
//             imports its parameters ignores it.
//   class     "matrix", "embedding" or "vector": what merge rules may treat
//             differently (MergeSpec.mean_tensor_classes). Default: "vector"
//             for one dimension, otherwise "matrix". "buffer": the mean of the
//             islands' values, without the outer optimizer.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "atoll/v1/run.pb.h"

namespace atl::worker {

// Most bytes of a file: 65536 tensors take less.
inline constexpr int64_t kTensorsFileBytesMax = 64 << 20;

struct TensorsFileOptions {
  std::string name = "tensors.json";  // The file's name in messages.
  // Number of fragments. 0: as many as the tensors name; if they name none,
  // `fragment_count_default`, but at most one a tensor.
  int32_t fragment_count = 0;
  int32_t fragment_count_default = 1;
};

// Parses a file's text. The layout is one that RunLayout::Create accepts.
//
// INVALID_ARGUMENT: not JSON of this form; an unknown key; a name or shape that
// no layout may have; a repeated name; a fragment that is out of range, empty
// or named by some tensors only; more fragments than tensors. The message names
// the file, the tensor and a remedy.
absl::StatusOr<v1::Layout> ParseTensorsFile(absl::string_view text,
                                            const TensorsFileOptions& options);

}  // namespace atl::worker
