// What a coordinator tells one island, as a test shapes it, and the loop under
// it. For tests. Thread-compatible.

#ifndef WORKER_CORE_TESTING_SHAPED_PLAN_H_
#define WORKER_CORE_TESTING_SHAPED_PLAN_H_

#include <cstdint>

#include "atoll/v1/island_service.pb.h"
#include "atoll/v1/plan.pb.h"
#include "atoll/v1/run.pb.h"
#include "gtest/gtest.h"
#include "worker/core/island_loop.h"

namespace atl::worker {

// The join and the plan of the island in slot kSlot of a run that is active. It
// has a batch and a server; a schedule and fragments are the test's.
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
  // The next fragment, at `version`.
  void AddFragment(int64_t version = 0);
  // The fragment's open round is over, if there is one.
  void Close(int32_t fragment);
  // A commit gives `fragment` its next version.
  void Advance(int32_t fragment);
  // The outcome of this island's contribution `seq`.
  void Decide(int32_t fragment, int64_t seq, v1::Outcome outcome);

  v1::JoinResponse join_;  // Without its plan.
  v1::IslandPlan plan_;
};

// With a loop that is told so.
class IslandLoopFixture : public testing::Test, protected ShapedPlan {
 protected:
  IslandLoopFixture() : loop_(kRun) {}

  void Join();
  // The plan as it stands, as the next revision.
  void Publish();
  // A new process.
  void NewLoop();

  IslandLoop loop_;
};

}  // namespace atl::worker

#endif  // WORKER_CORE_TESTING_SHAPED_PLAN_H_
