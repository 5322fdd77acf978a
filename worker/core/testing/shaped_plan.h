// Test helper: what a coordinator tells one island, and a loop that gets it.

#pragma once

#include <cstdint>
#include <vector>

#include "atoll/v1/island_service.pb.h"
#include "atoll/v1/plan.pb.h"
#include "atoll/v1/run.pb.h"
#include "gtest/gtest.h"
#include "worker/core/island_loop.h"

namespace atl::worker {

// The join and the plan of the island in slot kSlot of an active run, with a
// batch and a server. The test adds the schedule and fragments.
class ShapedPlan {
 protected:
  static constexpr char kRun[] = "run";
  static constexpr int32_t kSlot = 1;
  static constexpr int32_t kBatch = 4;

  ShapedPlan();

  v1::RunSpec& Spec() { return *join_.mutable_run()->mutable_spec(); }
  v1::ScheduleSpec& Schedule() { return *Spec().mutable_schedule(); }
  int64_t Version(int32_t fragment) const {
    return plan_.cut(fragment).version();
  }
  void AddFragment(int64_t version = 0);
  // Opens the fragment's next round, of a streaming run with so many fragments.
  void OpenInStream(int32_t fragment_count, int32_t fragment,
                    const std::vector<int32_t>& slots = {0, kSlot});
  // Ends the fragment's open round, if there is one.
  void Close(int32_t fragment);
  void Advance(int32_t fragment);
  void Decide(int32_t fragment, int64_t seq, v1::Outcome outcome);

  v1::JoinResponse join_;  // Without its plan.
  v1::IslandPlan plan_;
};

class IslandLoopFixture : public testing::Test, protected ShapedPlan {
 protected:
  IslandLoopFixture() : loop_(kRun) {}

  void Join();
  // Sends the current plan as the next revision.
  void Publish();
  // Simulates a new process.
  void NewLoop();

  IslandLoop loop_;
};

}  // namespace atl::worker
