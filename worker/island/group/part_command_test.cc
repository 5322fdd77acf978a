#include "worker/island/group/part_command.h"

#include <cstdint>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "base/status/refusal.h"
#include "base/testing/mutator.h"
#include "gtest/gtest.h"

namespace atl::worker {
namespace {

TEST(PartCommandTest, ComesBackAsItWas) {
  PartCommand sent;
  Action& action = sent.action;
  action.kind = ActionKind::kContribute;
  action.fragment = 1;
  action.version = 2;
  action.digest.set_high(~uint64_t{0});
  action.from_version = -1;
  action.commit_seq = 4;
  action.cut.resize(2);
  action.cut[1].set_version(5);
  action.step = 6;
  action.data_shard = 7;
  action.data_position = 8;
  action.run_epoch = 9;
  action.slot = 10;
  action.seq = 11;
  action.contributions = {{0, 3}, {1, 4}};
  action.step_count = 12;
  action.data_begin = 13;
  action.weight = 0.1;
  action.in_background = true;
  action.adopt = true;
  action.needs_repush = true;
  action.warm_up = true;
  sent.save.summary.run_id = "run";
  sent.save.summary.tracks.resize(2);
  sent.save.summary.tracks[1].push_step = 14;
  sent.save.summary.unpushed.emplace_back().set_step_count(3);
  sent.save.step = 15;
  sent.resolved.resize(1);
  sent.resolved[0].set_outcome(v1::OUTCOME_MERGED);
  const auto got = DecodeCommand(EncodeCommand(sent));
  ASSERT_TRUE(got.ok()) << got.status();
  // Encoded again it is the same, so nothing is lost.
  EXPECT_EQ(EncodeCommand(*got), EncodeCommand(sent));
  EXPECT_EQ(got->action.kind, ActionKind::kContribute);
  EXPECT_EQ(got->action.from_version, -1);
  EXPECT_EQ(got->action.contributions, action.contributions);
  EXPECT_EQ(got->action.weight, 0.1);
  EXPECT_TRUE(got->action.in_background);
  EXPECT_EQ(got->save.summary.tracks[1].push_step, 14);
  ASSERT_EQ(got->save.summary.unpushed.size(), 1);
  EXPECT_EQ(got->save.summary.unpushed[0].step_count(), 3);
  EXPECT_EQ(got->save.step, 15);
  EXPECT_EQ(got->resolved[0].outcome(), v1::OUTCOME_MERGED);
}

TEST(PartCommandTest, BringsTheSessionWhereServersAreCalled) {
  PartCommand sent;
  sent.island_epoch = 3;
  sent.session_secret = std::string("\0\xff", 2);
  sent.routes.placement_epoch = 4;
  sent.routes.shards.resize(1);
  sent.routes.shards[0].set_address("host:1");
  for (const ActionKind kind :
       {ActionKind::kPush, ActionKind::kPull, ActionKind::kEvaluate}) {
    sent.action.kind = kind;
    const auto got = DecodeCommand(EncodeCommand(sent));
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->island_epoch, 3);
    EXPECT_EQ(got->session_secret, sent.session_secret);
    EXPECT_EQ(got->routes.placement_epoch, 4);
    ASSERT_EQ(got->routes.shards.size(), 1);
    EXPECT_EQ(got->routes.shards[0].address(), "host:1");
  }
}

TEST(PartCommandTest, EndsWithAReason) {
  PartCommand sent;
  sent.action.kind = ActionKind::kFinish;
  sent.action.status = absl::AbortedError("fenced");
  const auto got = DecodeCommand(EncodeCommand(sent));
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->action.status, sent.action.status);
  const auto no_run = DecodeSetup(EncodeSetup(absl::NotFoundError("no run")));
  EXPECT_EQ(no_run.status(), absl::NotFoundError("no run"));
  v1::Run run;
  run.set_run_id("run");
  EXPECT_EQ(DecodeSetup(EncodeSetup(run))->run_id(), "run");
}

TEST(PartCommandTest, EndsWithTheReasonThatProgramsSwitchOn) {
  const absl::Status removed = WithReason(
      absl::PermissionDeniedError("put out"), {"ISLAND_REMOVED", {}});
  PartCommand sent;
  sent.action.kind = ActionKind::kFinish;
  sent.action.status = removed;
  const auto got = DecodeCommand(EncodeCommand(sent));
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->action.status, removed);
  EXPECT_EQ(DecodeSetup(EncodeSetup(removed)).status(), removed);
}

TEST(PartCommandTest, RefusesWhatIsNone) {
  EXPECT_EQ(DecodeCommand("\xff\xff").status().code(),
            absl::StatusCode::kInternal);
  EXPECT_EQ(DecodeSetup("\xff\xff").status().code(),
            absl::StatusCode::kInternal);
}

TEST(PartCommandTest, AnyMessageIsReadOrRefused) {
  const uint64_t seed = std::random_device()();
  std::cout << "seed " << seed << std::endl;
  Mutator any(seed);
  PartCommand sent;
  sent.action.kind = ActionKind::kContribute;
  sent.action.contributions = {{0, 3}, {1, 4}};
  sent.action.cut.resize(2);
  sent.save.summary.tracks.resize(2);
  sent.resolved.resize(2);
  sent.routes.shards.resize(2);
  v1::Run run;
  run.set_run_id("run");
  const std::vector<std::string> seeds = {
      EncodeCommand(sent), EncodeCommand({}), EncodeSetup(run),
      EncodeSetup(absl::AbortedError("no"))};
  for (int i = 0; i < 20000; ++i) {
    const std::string message = any.Changed(seeds);
    const auto command = DecodeCommand(message);
    // An accepted message can be sent again.
    EXPECT_TRUE(!command.ok() || DecodeCommand(EncodeCommand(*command)).ok());
    DecodeSetup(message).IgnoreError();
  }
}

}  // namespace
}  // namespace atl::worker
