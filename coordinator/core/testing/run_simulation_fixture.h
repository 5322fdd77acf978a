// A test on a simulated run.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "coordinator/core/testing/run_simulation.h"
#include "gtest/gtest.h"

namespace atl::coordinator {

class RunSimulationTest : public testing::Test {
 protected:
  // `count` islands "i0", "i1", ... join and are ready.
  void Start(const v1::RunSpec& spec, int count = 2) {
    run_ = std::make_unique<RunSimulation>(spec);
    run_->StartServers();
    for (int i = 0; i < count; ++i) JoinReady("i" + std::to_string(i));
  }
  void JoinReady(const std::string& id) {
    ASSERT_TRUE(run_->Join(id).ok());
    ASSERT_TRUE(run_->Ready(id).ok());
  }
  RoundPhase Phase(int32_t f = 0) const { return run_->fragment(f).phase; }

  std::unique_ptr<RunSimulation> run_;
};

}  // namespace atl::coordinator
