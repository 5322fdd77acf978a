// Checkpoints that servers copy become whole in the mirror.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/core/outputs/plans.h"
#include "coordinator/core/run_queries.h"
#include "coordinator/core/testing/run_simulation_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

v1::RunSpec Mirrored(v1::RunSpec spec) {
  spec.mutable_schedule()->set_round_count(6);
  spec.set_checkpoint_every_round_count(2);
  spec.mutable_checkpoint()->set_mirror(true);
  return spec;
}

class MirrorTest : public RunSimulationTest {
 protected:
  void Commit(int64_t count) {
    const int64_t end = run_->state().commit_seq() + count;
    for (int i = 0; run_->state().commit_seq() < end && i < 100; ++i) {
      for (const char* id : {"i0", "i1"}) run_->PushAll(id);
      run_->FollowPlans();
    }
    run_->FollowPlans();
    ASSERT_GE(run_->state().commit_seq(), end) << run_->machine().waits_for();
  }
  // The checkpoint whose manifest is due; empty: none.
  std::string Due() {
    const auto work = run_->machine().FindMirrorWork();
    return work.has_value() ? work->manifest.pin().pin_id() : "";
  }
  void End(const MirrorWork& work, const std::string& error = "",
           int64_t epochs_more = 0) {
    const event::MirrorEnded ended = {
        .run_epoch = work.manifest.run_epoch() + epochs_more,
        .pin_id = work.manifest.pin().pin_id(),
        .commit_seq = work.manifest.pin().commit_seq(),
        .error = error};
    ASSERT_TRUE(run_->machine().Step(ended, run_->now()).ok());
    run_->Flush();
  }
  v1::RunMirror Shown() { return BuildMirror(run_->machine(), mirror_); }
  void TearDown() override {
    if (run_ != nullptr) run_->CheckLog();
  }

 private:
  struct HasOne : ServerDirectory {
    const ServerInfo* FindServer(const std::string& id) const override {
      return nullptr;
    }
    std::vector<std::string> AliveServers() const override { return {}; }
    bool HasMirror() const override { return true; }
  } mirror_;
};

TEST_F(MirrorTest, AManifestIsDueOnceEveryShardHasCopiedItsParts) {
  Start(Mirrored(SimpleSpec()));
  Commit(2);
  EXPECT_THAT(Due(), IsEmpty());
  EXPECT_EQ(Shown().commit_seq(), 0);
  EXPECT_EQ(Shown().lag(), 2);
  EXPECT_TRUE(Shown().has_wait_start_time());
  run_->makes_copies = true;
  run_->FollowPlan(0);
  EXPECT_THAT(Due(), IsEmpty());
  EXPECT_FALSE(run_->machine().TakeMirrorDue());
  run_->FollowPlan(1);
  EXPECT_TRUE(run_->machine().TakeMirrorDue());
  ASSERT_EQ(Due(), "round-2");

  const MirrorWork work = *run_->machine().FindMirrorWork();
  EXPECT_EQ(work.manifest.run_uid(), run_->state().run_uid());
  EXPECT_EQ(work.manifest.shard_count(), 2);
  EXPECT_THAT(work.manifest.array_names(), ElementsAre("theta"));
  ASSERT_EQ(work.manifest.parts_size(), 2);
  EXPECT_EQ(work.manifest.parts(1).shard(), 1);
  EXPECT_EQ(work.manifest.parts(1).sha256(), std::string(64, 'b'));
  ASSERT_EQ(work.manifest.members_size(), 2);
  for (const auto& member : work.manifest.members()) {
    EXPECT_THAT(member.member().session_sha256(), IsEmpty());
    EXPECT_GT(member.member().next_seq(), 2);
  }
  EXPECT_THAT(work.kept, ElementsAre(Pair(1, 3)));

  End(work);
  EXPECT_THAT(Due(), IsEmpty());
  EXPECT_EQ(Shown().commit_seq(), 3);
  EXPECT_EQ(Shown().lag(), 0);
  EXPECT_TRUE(Shown().has_last_success_time());
  EXPECT_FALSE(Shown().has_wait_start_time());
  Commit(1);
  EXPECT_EQ(Shown().lag(), 1);
}

TEST_F(MirrorTest, TheNewestIsCompletedFirst) {
  Start(Mirrored(SimpleSpec()));
  run_->makes_copies = true;
  Commit(4);
  ASSERT_EQ(Due(), "round-4");
  End(*run_->machine().FindMirrorWork());
  ASSERT_EQ(Due(), "round-2");
  const MirrorWork work = *run_->machine().FindMirrorWork();
  EXPECT_THAT(work.kept, ElementsAre(Pair(1, 3), Pair(1, 5)));
  End(work);
  EXPECT_THAT(Due(), IsEmpty());
  EXPECT_EQ(Shown().commit_seq(), 5);
}

TEST_F(MirrorTest, AFailureIsToldUntilASuccess) {
  Start(Mirrored(SimpleSpec()));
  run_->makes_copies = true;
  Commit(2);
  const MirrorWork work = *run_->machine().FindMirrorWork();
  End(work, "the bucket is away");
  EXPECT_EQ(Shown().error(), "the bucket is away");
  EXPECT_EQ(Due(), "round-2");
  End(work);
  EXPECT_THAT(Shown().error(), IsEmpty());
}

TEST_F(MirrorTest, ARestoreMakesAnAttemptVoid) {
  Start(Mirrored(SimpleSpec()));
  run_->makes_copies = true;
  Commit(2);
  const MirrorWork work = *run_->machine().FindMirrorWork();
  End(work, "", /*epochs_more=*/1);
  EXPECT_EQ(Due(), "round-2");
  ASSERT_TRUE(run_->RestoreRun("round-2").ok());
  End(work);
  EXPECT_EQ(Shown().commit_seq(), 0);
  // The shards copy it again, under the new epoch.
  EXPECT_THAT(Due(), IsEmpty());
  run_->FollowPlans();
  ASSERT_EQ(Due(), "round-2");
  EXPECT_EQ(run_->machine().FindMirrorWork()->manifest.run_epoch(), 2);
}

TEST_F(MirrorTest, ARestoreMakesItsSourceTheNewestOneThere) {
  Start(Mirrored(SimpleSpec()));
  run_->makes_copies = true;
  Commit(4);
  for (const char* id : {"round-4", "round-2"}) {
    ASSERT_EQ(Due(), id);
    End(*run_->machine().FindMirrorWork());
  }
  run_->Pass(absl::Minutes(2));
  ASSERT_TRUE(run_->RestoreRun("round-2").ok());
  // The alert counts from the restore.
  EXPECT_EQ(Shown().wait_start_time().seconds(),
            absl::ToUnixSeconds(run_->now()));
  run_->FollowPlans();
  ASSERT_EQ(Due(), "round-2");
  const MirrorWork work = *run_->machine().FindMirrorWork();
  EXPECT_EQ(work.manifest.run_epoch(), 2);
  // Its first copy and round-4 go.
  EXPECT_THAT(work.kept, ElementsAre(Pair(2, 3)));
  End(work);
  EXPECT_EQ(Shown().commit_seq(), 3);
  EXPECT_FALSE(Shown().has_wait_start_time());
}

TEST_F(MirrorTest, ARestoreEndsTheErrorOfTheEpochBefore) {
  Start(Mirrored(SimpleSpec()));
  run_->makes_copies = true;
  Commit(2);
  End(*run_->machine().FindMirrorWork(), "the bucket is away");
  ASSERT_TRUE(run_->RestoreRun("round-2").ok());
  EXPECT_THAT(Shown().error(), IsEmpty());
}

TEST_F(MirrorTest, ARunThatAnotherClusterOwnsIsCopiedNoMore) {
  Start(Mirrored(SimpleSpec()));
  Commit(2);
  const auto own = [&](int64_t owner_epoch, const std::string& error) {
    const event::MirrorEnded ended = {.run_epoch = run_->state().run_epoch(),
                                      .error = error,
                                      .owner_epoch = owner_epoch};
    ASSERT_TRUE(run_->machine().Step(ended, run_->now()).ok());
    run_->Flush();
  };
  own(1001, "another cluster owns it");
  EXPECT_EQ(Shown().error(), "another cluster owns it");
  EXPECT_TRUE(Shown().has_wait_start_time()) << "the alert counts";
  const v1::ServerRunPlan plan =
      BuildServerRunPlan(run_->state(), run_->machine().observed(), 0);
  for (const v1::Pin& pin : plan.pins()) {
    EXPECT_TRUE(pin.has_mirror()) << "servers would copy it";
  }
  run_->makes_copies = true;
  run_->FollowPlans();
  EXPECT_THAT(Due(), IsEmpty());

  // A restore takes the run back, also one to the same cut again.
  ASSERT_TRUE(run_->RestoreRun("round-2").ok());
  EXPECT_EQ(run_->state().run_epoch(), 1002);
  EXPECT_THAT(Shown().error(), IsEmpty());
  own(1002, "another cluster was faster");
  run_->FollowPlans();
  ASSERT_TRUE(run_->RestoreRun("round-2").ok());
  EXPECT_EQ(run_->state().run_epoch(), 1003);
  run_->FollowPlans();
  EXPECT_EQ(Due(), "round-2");
}

TEST_F(MirrorTest, ARunWithoutAMirrorHasNone) {
  v1::RunSpec spec = Mirrored(SimpleSpec());
  spec.clear_checkpoint();
  Start(spec);
  run_->makes_copies = true;
  Commit(2);
  EXPECT_THAT(Due(), IsEmpty());
  EXPECT_FALSE(BuildRunState(run_->machine(), *run_).has_mirror());
}

TEST_F(MirrorTest, ACoordinatorWithoutAMirrorSaysSo) {
  Start(Mirrored(SimpleSpec()));
  EXPECT_THAT(BuildRunState(run_->machine(), *run_).mirror().error(),
              HasSubstr("--mirror"));
}

}  // namespace
}  // namespace atl::coordinator
