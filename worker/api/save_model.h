// Writes parameters from memory as a model directory.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "atoll/v1/run.pb.h"

namespace atl::worker {

// Writes `parameters`, in the model order of `spec.layout`, as a model of shape
// `spec.model` (worker/checkpoint/checkpoint.h). Returns their SHA-256. Blocks;
// thread-safe for different directories.
//
// As RunLayout::Create and WriteCheckpoint; INVALID_ARGUMENT: the number of
// parameters is not the layout's.
absl::StatusOr<std::string> SaveModel(const v1::RunSpec& spec,
                                      absl::Span<const float> parameters,
                                      const std::string& directory);

}  // namespace atl::worker
