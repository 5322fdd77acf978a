#include "tests/cuda_check/mesh_check.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cuda_check/report.h"
#include "worker/collective/local/local_world.h"
#include "worker/engine/device/cpu_devices.h"

namespace atl::engine::check {
namespace {

constexpr int kSteps = 2;

struct Outcome {
  int passed = 0, failed = 0;
  std::string text;
};

// Runs all ranks of a CPU world, one thread each, with the given `seeds`.
Outcome Check(const std::vector<uint64_t>& seeds) {
  collective::LocalWorld world(static_cast<int>(seeds.size()));
  auto ranks = world.TakeRanks();
  std::vector<Outcome> outcomes(seeds.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < seeds.size(); ++r) {
    threads.emplace_back([&, r] {
      char* text = nullptr;
      size_t size = 0;
      std::FILE* const out = open_memstream(&text, &size);
      Report report(out);
      CheckMeshes(*ranks[r], CpuDevices(), seeds[r], kSteps, report);
      std::fclose(out);
      outcomes[r] = {report.passed(), report.failed(), std::string(text, size)};
      std::free(text);
    });
  }
  for (std::thread& thread : threads) thread.join();
  Outcome all;
  for (const Outcome& outcome : outcomes) {
    all.passed += outcome.passed;
    all.failed += outcome.failed;
    all.text += outcome.text;
  }
  return all;
}

TEST(MeshCheckTest, CpuRanksPass) {
  const uint64_t seed = std::random_device()();
  std::cout << "seed " << seed << std::endl;
  const Outcome two = Check({seed, seed});
  EXPECT_EQ(two.failed, 0) << two.text;
  EXPECT_EQ(two.passed, 2 * (12 + 9));
  const Outcome four = Check({seed, seed, seed, seed});
  EXPECT_EQ(four.failed, 0) << four.text;
  EXPECT_EQ(four.passed, 4 * (9 + 6));
}

TEST(MeshCheckTest, RanksThatDifferFail) {
  const Outcome outcome = Check({1, 2});
  EXPECT_GT(outcome.failed, 10) << outcome.text;
}

}  // namespace
}  // namespace atl::engine::check
