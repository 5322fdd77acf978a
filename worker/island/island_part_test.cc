// Runs the lanes of a streaming part on one thread, in the orders that threads
// may take.

#include "worker/island/island_part.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/layout/digest.h"
#include "gtest/gtest.h"
#include "worker/api/testing/island_fixture.h"
#include "worker/island/group/island_world.h"
#include "worker/island/testing/memory_service.h"
#include "worker/island/testing/tiny_run.h"

namespace atl::worker {
namespace {

using Arrays = SaveArrays<std::vector<float>>;

class IslandPartTest : public IslandFixture {
 protected:
  static v1::RunSpec Streaming(TinyRunOptions tiny, bool eager) {
    tiny.fragment_count = 2;
    tiny.inner_step_count = 5;
    v1::RunSpec spec = TinyRun(tiny);
    v1::ScheduleSpec& schedule = *spec.mutable_schedule();
    schedule.set_fragment_schedule(v1::FRAGMENT_SCHEDULE_STAGGERED);
    schedule.set_overlap_step_count(4);
    schedule.set_eager(eager);
    return spec;
  }

  // A part with the ranks of `mesh`, two steps after version 0.
  void Begin(const std::string& name, bool eager, const std::string& mesh) {
    const v1::RunSpec spec = Streaming(Tiny(1), eager);
    service_ = std::make_unique<MemoryService>(spec);
    links_.file_system = &files_;
    links_.make_parameter_client = [this](const v1::Run&,
                                          const HeldLayout&) {
      return absl::StatusOr<std::unique_ptr<server::ParameterClient>>(
          service_->MakeParameters());
    };
    part_ = nullptr;
    auto world = IslandWorld::Join({.mesh = mesh}, {}, absl::Minutes(2));
    ASSERT_TRUE(world.ok()) << world.status();
    world_ = *std::move(world);
    links_.make_trainer = [this](const engine::TrainerOptions& trainer) {
      return world_->MakeTrainer(trainer);
    };
    options_ = Options(name);
    auto part = IslandPart::Create(options_, links_, service_->run());
    ASSERT_TRUE(part.ok()) << part.status();
    part_ = *std::move(part);
    step_ = 0;
    losses_.clear();
    for (int32_t f = 0; f < 2; ++f) {
      PartCommand pull;
      pull.action.kind = ActionKind::kPull;
      pull.action.fragment = f;
      Do(Lane::kPull, pull);
    }
    Do(Lane::kTraining, ActionKind::kBeginRound);
    Train(2);
  }

  void Train(int count) {
    for (int i = 0; i < count; ++i, ++step_) {
      PartCommand train;
      train.action.kind = ActionKind::kTrain;
      train.action.step = step_;
      train.action.data_position = 4 * step_;
      Do(Lane::kTraining, train);
      ASSERT_TRUE(result_.step.loss.has_value());
      losses_.push_back(*result_.step.loss);
    }
  }

  void Contribute(int32_t fragment, int64_t seq) {
    PartCommand contribute;
    Action& action = contribute.action;
    action.kind = ActionKind::kContribute;
    action.in_background = true;
    action.seq = seq;
    action.run_epoch = 1;
    action.step_count = 2;
    action.data_position = 4 * step_;
    action.contributions = {{fragment, 0}};
    contribute.save.summary.run_id = "test";
    contribute.save.summary.seq = seq;
    Do(Lane::kTraining, contribute);
  }

  // Runs the save lane; returns the arrays that it wrote.
  Arrays Save(int64_t seq) {
    PartCommand save;
    save.action.kind = ActionKind::kSave;
    save.action.seq = seq;
    Do(Lane::kSave, save);
    auto read = ReadWhole();
    EXPECT_TRUE(read.ok()) << read.status();
    return read.ok() ? std::move(read->arrays) : Arrays();
  }

  absl::StatusOr<worker::Save> ReadWhole() {
    const SavePlace place = {options_.work_directory, options_.run_id,
                             options_.island_id};
    return ReadSave(files_, SavePath(place, 0, 1));
  }

  // The losses of steps [begin, end), as a contribution adds them up.
  double MeanLoss(size_t begin, size_t end) const {
    double sum = 0;
    for (size_t i = begin; i < end; ++i) sum += losses_[i];
    return sum / static_cast<double>(end - begin);
  }

  void Apply(int32_t fragment) {
    PartCommand apply;
    apply.action.kind = ActionKind::kApply;
    apply.action.fragment = fragment;
    Do(Lane::kTraining, apply);
  }

  void Do(Lane lane, ActionKind kind) {
    PartCommand command;
    command.action.kind = kind;
    Do(lane, command);
  }
  void Do(Lane lane, PartCommand command) {
    if (command.action.kind == ActionKind::kPull) {
      command.action.digest = ComputeDigest(command.action.fragment);
    }
    result_ = PartResult();
    const absl::Status status = part_->Do(lane, command, {}, result_);
    ASSERT_TRUE(status.ok())
        << ActionName(command.action.kind) << ": " << status;
  }

  v1::Digest ComputeDigest(int32_t fragment) const {
    const RunLayout& layout = part_->layout();
    std::vector<float> values(layout.fragment_element_count(fragment));
    service_->MakeParameters()->Pull(fragment, 0, std::nullopt,
                                     absl::MakeSpan(values), {});
    return RangeDigest(layout, fragment,
                       {0, layout.fragment_block_count(fragment)}, values)
        .ToProto();
  }

  std::unique_ptr<MemoryService> service_;
  IslandLinks links_;
  RunIslandOptions options_;
  std::unique_ptr<IslandWorld> world_;  // Outlives the part's trainer.
  std::unique_ptr<IslandPart> part_;
  int64_t step_ = 0;
  std::vector<double> losses_;  // By step.
  PartResult result_;           // The newest command's.
};

bool Same(const Arrays& a, const Arrays& b) {
  return a.first_moment == b.first_moment &&
         a.second_moment == b.second_moment && a.local == b.local &&
         a.eager_momentum == b.eager_momentum &&
         a.eager_foreseen == b.eager_foreseen;
}

// The save lane may run after later steps and applies. Covers a trainer that
// calls before_write and one of several ranks, which does not.
TEST_F(IslandPartTest, WhatASaveHoldsIsOfItsStepHoweverLateItIsWritten) {
  for (const std::string mesh : {"", "dp_shard=2"}) {
    for (const bool eager : {false, true}) {
      SCOPED_TRACE(absl::StrCat("mesh '", mesh, "', eager ", eager));
      const std::string name = absl::StrCat(mesh.size(), "-", eager);
      Begin(absl::StrCat("at-once-", name), eager, mesh);
      Contribute(0, 1);
      const Arrays at_once = Save(1);
      EXPECT_FALSE(at_once.local.empty());
      EXPECT_FALSE(at_once.first_moment.empty());
      EXPECT_EQ(at_once.eager_foreseen.empty(), !eager);

      Begin(absl::StrCat("late-", name), eager, mesh);
      Contribute(0, 1);
      Train(2);
      EXPECT_TRUE(Same(Save(1), at_once)) << "after steps";

      Begin(absl::StrCat("applied-", name), eager, mesh);
      Contribute(0, 1);
      Apply(0);
      EXPECT_TRUE(Same(Save(1), at_once)) << "after an apply";

      // Control: another step changes it.
      Begin(absl::StrCat("later-", name), eager, mesh);
      Train(1);
      Contribute(0, 1);
      EXPECT_FALSE(Same(Save(1), at_once));
    }
  }
}

TEST_F(IslandPartTest, AContributionHasTheMeanLossOfItsFragmentsSteps) {
  Begin("losses", /*eager=*/false, "");
  Contribute(0, 1);
  EXPECT_EQ(result_.loss, MeanLoss(0, 2));
  Train(1);
  Save(1);
  auto first = ReadWhole();
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->contributions[0].info.training_loss(), MeanLoss(0, 2));
  EXPECT_EQ(first->header.losses[0], LossSum());
  EXPECT_EQ(first->header.losses[1].step_count, 2);

  Train(1);
  Contribute(1, 2);
  Save(2);
  auto second = ReadWhole();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->contributions.back().info.training_loss(), MeanLoss(0, 4));
  EXPECT_EQ(second->header.losses[0].mean(), MeanLoss(2, 4));
}

// A try that was not saved, and steps after it, make one contribution.
TEST_F(IslandPartTest, AContributionThatIsTakenAgainHasTheLossOfAllItsSteps) {
  Begin("again", /*eager=*/false, "");
  Contribute(0, 1);
  Train(1);
  Contribute(0, 1);
  Save(1);
  auto read = ReadWhole();
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_DOUBLE_EQ(read->contributions[0].info.training_loss(), MeanLoss(0, 3));
}

}  // namespace
}  // namespace atl::worker
