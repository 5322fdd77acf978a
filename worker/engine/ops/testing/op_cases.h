// Every operation as a case with fresh random inputs, to hold an implementation
// to the definition in f64. For tests and for the program that checks a device.

#ifndef WORKER_ENGINE_OPS_TESTING_OP_CASES_H_
#define WORKER_ENGINE_OPS_TESTING_OP_CASES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/engine/ops/ops.h"

namespace atl::engine {

// Buffers of a case as a call gets them, in the memory of its operations.
template <typename T>
struct OpBuffers {
  std::vector<T*> floats;
  std::vector<int32_t*> ints;
};

struct OpCase {
  std::string name;
  // What the buffers hold before; all are compared after.
  std::vector<std::vector<float>> floats;
  std::vector<std::vector<int32_t>> ints;
  // Of a value and a tenth of its buffer's largest.
  double tolerance = 1e-5;
  // Buffers that products read: of bfloat16 these are rounded first.
  std::vector<size_t> operands;
  std::function<void(BasicOps<float>&, const OpBuffers<float>&)> run_f32;
  std::function<void(BasicOps<double>&, const OpBuffers<double>&)> run_f64;
};

struct OpCaseOptions {
  uint64_t seed = 1;
  // Shapes of a few thousand elements, for what is slow; else up to millions.
  bool small = true;
};

// All operations, in shapes that are odd and even, small and not.
std::vector<OpCase> MakeOpCases(const OpCaseOptions& options);

// What products of bfloat16 operands, and attention on them, may be off: cases
// with operands alone are made.
std::vector<OpCase> MakeBf16Cases(const OpCaseOptions& options);

// Runs the case twice with `ops` and once by definition.
//
// INTERNAL: a value is further off than it may be, or the two runs have
// different bits; the message says where. Also the error of `ops` itself.
absl::Status HoldOpCase(const OpCase& op_case, Ops& ops);

}  // namespace atl::engine

#endif  // WORKER_ENGINE_OPS_TESTING_OP_CASES_H_
