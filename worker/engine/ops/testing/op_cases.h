// Every operation as a test case on random inputs: compares an implementation
// with the definition in f64. For tests and cuda_check.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/engine/ops/ops.h"

namespace atl::engine {

// Buffers in the memory of the operations.
template <typename T>
struct OpBuffers {
  std::vector<T*> floats;
  std::vector<int32_t*> ints;
};

struct OpCase {
  std::string name;
  // The contents before the run. All buffers are compared after it.
  std::vector<std::vector<float>> floats;
  std::vector<std::vector<int32_t>> ints;
  // Relative to a value plus a tenth of its buffer's largest.
  double tolerance = 1e-5;
  // Buffers that products read; rounded first for bfloat16.
  std::vector<size_t> operands;
  std::function<void(BasicOps<float>&, const OpBuffers<float>&)> run_f32;
  std::function<void(BasicOps<double>&, const OpBuffers<double>&)> run_f64;
};

struct OpCaseOptions {
  uint64_t seed = 1;
  // Up to thousands of elements, for slow implementations; else up to millions.
  bool small = true;
};

std::vector<OpCase> MakeOpCases(const OpCaseOptions& options);

// Cases with operands, with tolerances for bfloat16 products and attention.
std::vector<OpCase> MakeBf16Cases(const OpCaseOptions& options);

// Runs the case twice with `ops` and once by definition.
//
// INTERNAL: a value exceeds its tolerance, or the runs have different bits; the
// message says where. Errors of `ops`.
absl::Status HoldOpCase(const OpCase& op_case, Ops& ops);

}  // namespace atl::engine
