// A model on disk: a directory that Hugging Face's transformers can load.
//
//   model.safetensors       the parameters, f32, in the model order; of more
//                           than one file may hold: model-00001-of-0000N
//                           .safetensors ... and model.safetensors.index.json
//   config.json             the shape
//   generation_config.json
//   manifest.json           what it is, and length and SHA-256 of each file
//
// The directory appears whole: it is written as DIR.tmp, synced and renamed.
// Parameters are streamed: neither way needs a second copy of them.
//
// Thread-safe for different directories.

#ifndef WORKER_CHECKPOINT_CHECKPOINT_H_
#define WORKER_CHECKPOINT_CHECKPOINT_H_

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

// Where a checkpoint comes from.
struct CheckpointSource {
  std::string run_id;  // Empty: from no run.
  int64_t run_epoch = 0;
  int64_t commit_seq = 0;
  int64_t version = 0;  // Of fragment 0.
};

// What was written.
struct CheckpointFiles {
  std::string parameters_sha256;  // As ParametersSha256.
  int64_t size_bytes = 0;         // All files together.
};

// Longest weight file if nobody says: 5 GB, as other tools cut them.
inline constexpr int64_t kWeightFileBytesMax = 5'000'000'000;

struct CheckpointOptions {
  // A weight file holds tensors of at most so many bytes, or a single tensor;
  // > 0.
  int64_t weight_file_bytes_max = kWeightFileBytesMax;
  std::stop_token stop = {};
};

// Writes `parameters`, shape [layout.element_count()], in the model order, as a
// model of shape `model`. A checkpoint that is there is replaced.
//
// ALREADY_EXISTS: the directory is there, is not empty and holds no checkpoint.
// RESOURCE_EXHAUSTED: the disk is full; CANCELLED: stopped; nothing is left
// behind of either. Else as the file system's.
absl::StatusOr<CheckpointFiles> WriteCheckpoint(
    FileSystem& file_system, const std::string& directory,
    const v1::ModelSpec& model, const v1::Layout& layout,
    absl::Span<const float> parameters, const CheckpointSource& source,
    const CheckpointOptions& options = {});

// The shape of the model in `directory`.
//
// NOT_FOUND: it has no config.json. INVALID_ARGUMENT: as ParseModelConfig.
absl::StatusOr<v1::ModelSpec> ReadCheckpointModel(FileSystem& file_system,
                                                  const std::string& directory);

// Reads the parameters into `parameters`, shape [layout.element_count()], in
// the model order, from one safetensors file or from several with their index;
// BF16 and F16 are widened. Names, shapes and dtypes are checked before any
// value is read, and, if there is a manifest, SHA-256. Names of a GPT-2 may
// lack "transformer."; buffers that are no parameters, and a head that the
// layout has as its embedding, are passed over.
//
// NOT_FOUND: there are no weights, or a file of them is missing.
// INVALID_ARGUMENT: their tensors are not the layout's, or of a dtype that is
// not read. DATA_LOSS: a file is truncated, or damaged. Messages name the file,
// the tensor and what to do. CANCELLED: stopped.
absl::Status ReadCheckpoint(FileSystem& file_system,
                            const std::string& directory,
                            const v1::Layout& layout,
                            absl::Span<float> parameters,
                            std::stop_token stop = {});

}  // namespace atl::worker

#endif  // WORKER_CHECKPOINT_CHECKPOINT_H_
