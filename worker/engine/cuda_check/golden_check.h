// The trainer on a device, against PyTorch's golden values (testing/golden.h).

#pragma once

#include "worker/engine/cuda_check/report.h"

namespace atl::engine::check {

// Losses of five steps, and the first gradient's norm, in f32 for every shape;
// in bf16 for the first. The working directory needs worker/engine/testdata.
void CheckGolden(int device, Report& report);

}  // namespace atl::engine::check
