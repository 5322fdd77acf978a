// A Copier on its own stream.

#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "worker/engine/ops/cuda/runtime.h"
#include "worker/engine/ops/ops.h"

namespace atl::engine::cuda {

// Its Follow waits for `stream`, which must outlive it.
//
// UNAVAILABLE: the device cannot be used.
absl::StatusOr<std::unique_ptr<Copier>> MakeStreamCopier(int device,
                                                         cudaStream_t stream);

}  // namespace atl::engine::cuda
