// The checks that need a device and its libraries.

#pragma once

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/codec/codec.h"
#include "tests/cuda_check/ranks.h"
#include "tests/cuda_check/report.h"
#include "tests/cuda_check/speed.h"
#include "worker/engine/ops/compute_type.h"
#include "worker/engine/ops/cuda/cuda_ops.h"

namespace atl::engine::check {

// Compares a device's codecs with the CPU's fastest path, bit by bit. Encodes
// and accumulates blocks of random values on both. Encoded bytes, remaining
// values, sums, and the faults of faulty bytes must be equal.
//
// INTERNAL: something differs.
absl::Status CheckCodec(codec::CodecId id, uint64_t seed, cuda::CudaOps& ops);

// The trainer on a device, against PyTorch's golden values (testing/golden.h).
// Losses of five steps, and the first gradient's norm, in f32 for every shape;
// in bf16 for the first. The working directory needs worker/engine/testdata.
void CheckGolden(int device, Report& report);

// Checks that cuDNN loads, and says its version.
void CheckCudnn(Report& report);

// Checks that the libraries do the work that they were loaded for: a fallback
// gives right results, but slowly and without a message. Looks at each product,
// and in bf16 attention, in a step of one layer of each shape of SpeedShapes,
// with its whole batch. A check fails if our kernel computed it. `make_ops`
// returns new operations, or null after a report.
void CheckFallbacks(
    ComputeType compute,
    absl::FunctionRef<std::unique_ptr<cuda::CudaOps>()> make_ops,
    Report& report);

// The speed of attention alone: one layer of `shape` with its whole batch,
// medians of several forward and backward passes. Reports whether a library or
// our kernel computed the forward pass, and why our kernel did.
//
// RESOURCE_EXHAUSTED: no memory. UNAVAILABLE: the device failed.
absl::Status MeasureAttention(const SpeedShape& shape, cuda::CudaOps& ops,
                              Report& report);

// NCCL's collectives between processes that share one device, one rank's part:
// the result of every kind of call, groups, started calls, the speed of an
// all-reduce, and the error when ranks make different calls.
void CheckNccl(const NcclRank& rank, Report& report);

// NCCL alone on a shared device, with none of our collectives: what fails here
// is not a fault of ours. One rank's part: an all-reduce whose numbers are
// compared. With `kill` the last rank then kills itself, and the others abort an
// all-reduce that waits for it. Waits without a bound: the parent kills the
// process at its limit.
void ControlNccl(const NcclRank& at, bool kill, Report& report);

}  // namespace atl::engine::check
