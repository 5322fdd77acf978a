// A model on disk: a directory that Hugging Face's transformers can load. An
// external model (base/layout/external_model.h) has no config.json and no
// generation_config.json: its own program loads it by the names of its tensors.
//
//   model.safetensors       the parameters, f32, in the model order; or several
//                           files model-00001-of-0000N.safetensors ... with
//                           model.safetensors.index.json
//   config.json             the shape
//   generation_config.json
//   manifest.json           its source, and length and SHA-256 of each file
//
// A write is atomic: it goes to DIR.tmp, is synced and renamed. Reads and
// writes stream the parameters, without a second copy.
//
// Thread-safe for different directories.

#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "atoll/v1/run.pb.h"
#include "base/io/file_system.h"
#include "base/layout/layout.h"

namespace atl::worker {

struct CheckpointSource {
  std::string run_id;  // Empty: from no run.
  int64_t run_epoch = 0;
  int64_t commit_seq = 0;
  int64_t version = 0;  // Of fragment 0.
};

struct CheckpointFiles {
  std::string parameters_sha256;  // As ParametersSha256.
  int64_t size_bytes = 0;         // Of all files.
};

// Default longest weight file: 5 GB, as in other tools.
inline constexpr int64_t kWeightFileBytesMax = 5'000'000'000;

struct CheckpointOptions {
  // Limit for a weight file with more than one tensor; > 0.
  int64_t weight_file_bytes_max = kWeightFileBytesMax;
  std::stop_token stop = {};
};

// Writes `parameters`, shape [layout.element_count()], in the model order, as a
// model of shape `model`. Replaces an existing checkpoint.
//
// ALREADY_EXISTS: the directory is not empty and holds no checkpoint.
// RESOURCE_EXHAUSTED: the disk is full; CANCELLED: stopped; neither leaves
// files behind. Others: the file system's.
absl::StatusOr<CheckpointFiles> WriteCheckpoint(
    FileSystem& file_system, const std::string& directory,
    const v1::ModelSpec& model, const v1::Layout& layout,
    absl::Span<const float> parameters, const CheckpointSource& source,
    const CheckpointOptions& options = {});

// The shape of the model in `directory`. NOT_FOUND: no config.json.
// INVALID_ARGUMENT: as ParseModelConfig, or WriteCheckpoint wrote an external
// model.
absl::StatusOr<v1::ModelSpec> ReadCheckpointModel(FileSystem& file_system,
                                                  const std::string& directory);

// Reads the parameters into `parameters`, shape [layout.element_count()], in
// the model order, from one safetensors file or several with an index. Widens
// BF16 and F16. Checks names, shapes and dtypes before it reads values, and
// SHA-256 if there is a manifest. Names of a GPT-2 may lack "transformer.".
// Ignores buffers, and a head that the layout ties to the embedding. A tensor
// of shape [] may stand for shape [1].
//
// NOT_FOUND: no weights, or a file of them is missing. INVALID_ARGUMENT: other
// tensors than the layout's, or an unsupported dtype. DATA_LOSS: a file is
// truncated or damaged. Messages name the file, the tensor and a remedy.
// CANCELLED: stopped.
absl::Status ReadCheckpoint(FileSystem& file_system,
                            const std::string& directory,
                            const v1::Layout& layout,
                            absl::Span<float> parameters,
                            std::stop_token stop = {});

}  // namespace atl::worker
