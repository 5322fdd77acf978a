// Whether cuDNN accepts the graphs for described devices, which need not exist.
// testing/no_driver.cc replaces the driver.

#include "worker/engine/ops/cuda/cudnn_plan.h"

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "worker/engine/ops/cuda/cudnn_api.h"
#include "worker/engine/ops/cuda/plan/attention_graph.h"
#include "worker/engine/ops/shapes.h"

namespace atl::engine::cuda {
namespace {

// About A100 (800), H200 (900) and B200 (1000). The choice of kernels depends
// on the version and on shared memory.
std::string MakeProperties(int version) {
  return absl::StrCat(
      R"({"deviceVer":)", version, R"(,"maxSharedMemoryPerBlockOptin":)",
      version == 800 ? 166912 : 232448,
      R"(,"driverVer":13000,"cudaDeviceId":0,"deviceName":"a device",)",
      R"("maxGridSize":[2147483647,65535,65535],)",
      R"("maxBlockSize":[1024,1024,64],"regsPerBlock":65536,)",
      R"("multiProcessorCount":108,"warpSize":32,)",
      R"("maxSharedMemoryPerBlock":49152,"reservedSharedMemoryPerBlock":1024,)",
      R"("maxRegistersPerSM":65536,"maxCtasPerSM":32,)",
      R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,)",
      R"("isTccDriver":0,"supportCoopLaunch":1,"totalGlobalMem":80000000000,)",
      R"("smClockRateKHz":1410000,"memClockRateKHz":1593000,)",
      R"("l2CacheSize":41943040})");
}

absl::StatusOr<CudnnPlan> Plan(const AttentionShape& shape, int version) {
  const auto api = OpenCudnn();
  if (!api.ok()) return api.status();
  const std::string properties = MakeProperties(version);
  return CudnnPlan::Make(**api, MakeAttentionGraph(shape),
                         {.properties = properties});
}

struct Case {
  int version;
  AttentionShape shape;
};

// cuDNN compiles each graph, some for seconds.
TEST(CudnnPlanTest, HasAKernelThatWritesNoScoresOnEveryDevice) {
  for (const auto& [version, s] :
       {Case{900, {16, 1024, 12, 12, 64}}, Case{900, {4, 2048, 32, 4, 64}},
        Case{900, {2, 1024, 8, 2, 128}}, Case{900, {2, 64, 6, 2, 16}},
        Case{900, {1, 192, 3, 1, 80}}, Case{800, {4, 2048, 32, 4, 64}},
        Case{1000, {4, 2048, 32, 4, 64}}}) {
    const auto plan = Plan(s, version);
    ASSERT_TRUE(plan.ok()) << version << ": " << plan.status();
    EXPECT_LT(plan->scratch_bytes(),
              s.batch * s.head_count * s.sequence_length * s.sequence_length);
  }
}

TEST(CudnnPlanTest, WhatItHasNoKernelForIsAnError) {
  const auto plan = Plan({1, 64, 2, 1, 6}, 900);
  EXPECT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kNotFound) << plan.status();
}

}  // namespace
}  // namespace atl::engine::cuda
