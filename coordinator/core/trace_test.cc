// Scripted traces as text: events of a run and the coordinator's decisions.
//
// testdata/*.trace has a line "> VERB ARGUMENTS" for each step. Below it are
// the results: records as "record N KIND key fields", reasons as "- reason",
// the plan if it changed, and what the run waits for as "waits: ...". Lines
// that begin with "#" are comments. `bazel run //coordinator/core:trace_test --
// --rewrite=$PWD` rewrites the files.

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "coordinator/core/run_machine.h"
#include "coordinator/core/testing/run_simulation.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

constexpr char kFolder[] = "coordinator/core/testdata/";
std::string rewrite_root;  // NOLINT: set by a flag.

// " SLOT/SEQ OUTCOME (reason)" of each outcome.
template <typename Outcomes>
std::string DescribeOutcomes(const Outcomes& outcomes) {
  std::string text;
  for (const v1::ContributionOutcome& outcome : outcomes) {
    absl::StrAppend(&text, " ", outcome.key().slot(), "/", outcome.key().seq(),
                    " ", v1::Outcome_Name(outcome.outcome()).substr(8));
    if (!outcome.reason().empty()) {
      absl::StrAppend(&text, " (", outcome.reason(), ")");
    }
  }
  return text;
}

// "KIND key fields" of a record, in one short line.
std::string Describe(const storage::v1::Record& record) {
  switch (record.body_case()) {
    case storage::v1::Record::kRunCreated:
      return "created";
    case storage::v1::Record::kRunPlaced:
      return absl::StrCat(
          "placed on ", absl::StrJoin(record.run_placed().server_ids(), ", "));
    case storage::v1::Record::kRunStarted:
      return absl::StrCat("started with ", record.run_started().version0_size(),
                          " fragments");
    case storage::v1::Record::kRunStateSet:
      return absl::StrCat("state ",
                          v1::RunState_Name(record.run_state_set().state()),
                          " ", record.run_state_set().reason());
    case storage::v1::Record::kMemberSet: {
      const storage::v1::MemberSet& member = record.member_set();
      return absl::StrCat(v1::IslandState_Name(member.state()), " ",
                          member.island_id(), " slot ", member.slot(),
                          " epoch ", member.island_epoch(), " next_seq ",
                          member.next_seq());
    }
    case storage::v1::Record::kRoundOpened: {
      const v1::OpenRound& open = record.round_opened();
      std::string text =
          absl::StrCat("OPEN ", open.fragment(), " v", open.version(),
                       " attempt ", open.attempt(), " for");
      for (const v1::SlotPlan& plan : open.slots()) {
        absl::StrAppend(&text, " ", plan.slot(), "x", plan.step_count());
      }
      return text;
    }
    case storage::v1::Record::kRoundSealed: {
      const v1::Seal& seal = record.round_sealed().seal();
      std::string text =
          absl::StrCat("SEAL ", seal.fragment(), " v", seal.version(),
                       " attempt ", seal.attempt(), " of");
      for (const v1::SealedContribution& sealed : seal.contributions()) {
        absl::StrAppend(&text, " ", sealed.key().slot(), "/",
                        sealed.key().seq(), "*", sealed.weight());
      }
      return text;
    }
    case storage::v1::Record::kRoundJudged:
      return absl::StrCat("VERDICT ", record.round_judged().fragment(), " v",
                          record.round_judged().version());
    case storage::v1::Record::kRoundCommitted: {
      const v1::Commit& commit = record.round_committed().commit();
      return absl::StrCat("COMMIT ", commit.commit_seq(), ": ",
                          commit.fragment(), " v", commit.version(),
                          DescribeOutcomes(commit.outcomes()));
    }
    case storage::v1::Record::kRoundAborted: {
      const storage::v1::RoundAborted& abort = record.round_aborted();
      return absl::StrCat("ABORT ", abort.fragment(), " v", abort.version(),
                          " attempt ", abort.attempt(), ": ", abort.reason(),
                          DescribeOutcomes(abort.outcomes()));
    }
    case storage::v1::Record::kOutcomesSet:
      return absl::StrCat("outcomes",
                          DescribeOutcomes(record.outcomes_set().outcomes()));
    case storage::v1::Record::kPinSet:
      return absl::StrCat("pin ", record.pin_set().pin().pin_id(), " at ",
                          record.pin_set().pin().commit_seq());
    case storage::v1::Record::kPinReleased:
      return absl::StrCat("unpin ", record.pin_released().pin_id());
    case storage::v1::Record::kEvaluated:
      return absl::StrCat("evaluated v",
                          record.evaluated().evaluation().version());
    default:
      ADD_FAILURE() << record.ShortDebugString();
      return "unknown";
  }
}

// The plan that follows from the state: cut, open rounds and seals.
std::string DescribePlan(const RunState& state) {
  std::string text = absl::StrCat(v1::RunState_Name(state.state()), " cut");
  for (const FragmentState& fragment : state.fragments()) {
    absl::StrAppend(&text, " v", fragment.newest.version(),
                    fragment.phase == RoundPhase::kOpen     ? "+open"
                    : fragment.phase == RoundPhase::kSealed ? "+sealed"
                                                            : "");
  }
  return text;
}

class Player {
 public:
  // The results of one step.
  std::string Play(const std::string& line) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    const auto verb = verbs_.find(words[0]);
    if (verb == verbs_.end()) {
      ADD_FAILURE() << "no verb " << words[0];
      return "";
    }
    if (run_ == nullptr && words[0] != "run") return "no run yet\n";
    const absl::Status status = verb->second(words);
    std::string out;
    if (!status.ok()) absl::StrAppend(&out, "  ", status.ToString(), "\n");
    if (run_ == nullptr) return out;
    run_->Flush();
    for (; seen_ < run_->log().size(); ++seen_) {
      absl::StrAppend(&out, "  record ", seen_ + 1, " ",
                      Describe(run_->log()[seen_]), "\n");
    }
    for (const std::string& reason : run_->machine().TakeReasons()) {
      absl::StrAppend(&out, "  - ", reason, "\n");
    }
    if (const std::string plan = DescribePlan(run_->state()); plan != plan_) {
      plan_ = plan;
      absl::StrAppend(&out, "  plan: ", plan, "\n");
    }
    if (run_->machine().waits_for() != waits_for_) {
      waits_for_ = run_->machine().waits_for();
      absl::StrAppend(&out, "  waits: ",
                      waits_for_.empty() ? "for nothing" : waits_for_, "\n");
    }
    return out;
  }

 private:
  using Words = std::vector<std::string>;

  static int Number(const Words& words, size_t i) {
    int value = 0;
    if (i < words.size()) {
      EXPECT_TRUE(absl::SimpleAtoi(words[i], &value)) << words[i];
    }
    return value;
  }
  static absl::Status Done() { return absl::OkStatus(); }
  static absl::Status If(bool done) {
    return done ? Done() : absl::FailedPreconditionError("it cannot");
  }

  absl::Status Start(const Words& words) {
    const int fragments = std::max(1, Number(words, 2));
    v1::RunSpec spec = words[1] == "elastic" ? ElasticSpec(fragments)
                       : words[1] == "async" ? AsyncSpec(fragments)
                                             : SimpleSpec(fragments);
    if (words[1] == "streaming") {
      spec.mutable_schedule()->set_fragment_schedule(
          v1::FRAGMENT_SCHEDULE_STAGGERED);
    }
    run_ = std::make_unique<RunSimulation>(spec);
    return Done();
  }

  const std::map<std::string, std::function<absl::Status(const Words&)>>
      verbs_ = {
          // run strict|elastic|async|streaming FRAGMENTS
          {"run", [this](const Words& w) { return Start(w); }},
          {"servers",
           [this](const Words&) {
             run_->StartServers();
             return Done();
           }},
          {"join", [this](const Words& w) { return run_->Join(w[1]); }},
          {"ready", [this](const Words& w) { return run_->Ready(w[1]); }},
          {"leave", [this](const Words& w) { return run_->Leave(w[1]); }},
          {"remove", [this](const Words& w) { return run_->Remove(w[1]); }},
          {"readmit",
           [this](const Words& w) { return run_->Remove(w[1], true); }},
          // push ISLAND FRAGMENT SHARD
          {"push",
           [this](const Words& w) {
             return If(run_->Push(w[1], Number(w, 2), Number(w, 3)));
           }},
          {"push-all",
           [this](const Words& w) {
             run_->PushAll(w[1]);
             return Done();
           }},
          {"refuse",
           [this](const Words& w) {
             run_->RefusePush(w[1], Number(w, 2), Number(w, 3));
             return Done();
           }},
          // Shards follow their plans: merge, apply, persist and report.
          {"follow",
           [this](const Words& w) {
             if (w.size() > 1)
               run_->FollowPlan(Number(w, 1));
             else
               run_->FollowPlans();
             return Done();
           }},
          {"lose",
           [this](const Words& w) {
             return If(run_->Lose(w[1], Number(w, 2), Number(w, 3)));
           }},
          {"push-again",
           [this](const Words& w) { return If(run_->PushAgain(w[1])); }},
          {"not-finite",
           [this](const Words&) {
             run_->finite = false;
             return Done();
           }},
          // pass SECONDS [ISLAND that is silent]
          {"pass",
           [this](const Words& w) {
             std::set<std::string> silent;
             if (w.size() > 2) silent.insert(w[2]);
             run_->Pass(absl::Seconds(Number(w, 1)), silent);
             return Done();
           }},
          {"restart",
           [this](const Words&) {
             run_->Restart();
             return Done();
           }},
          {"pause",
           [this](const Words&) {
             return run_->machine().Step(event::Pause(), run_->now()).status();
           }},
          {"resume",
           [this](const Words&) {
             return run_->machine().Step(event::Resume(), run_->now()).status();
           }},
  };
  std::unique_ptr<RunSimulation> run_;
  size_t seen_ = 0;
  std::string plan_;
  std::string waits_for_;
};

class TraceTest : public testing::TestWithParam<const char*> {};

TEST_P(TraceTest, DecidesAsWritten) {
  const std::string name = absl::StrCat(kFolder, GetParam(), ".trace");
  std::ifstream file(name);
  ASSERT_TRUE(file) << name;
  std::stringstream text;
  text << file.rdbuf();
  Player player;
  std::string played;
  for (const absl::string_view line : absl::StrSplit(text.str(), '\n')) {
    if (absl::StartsWith(line, "#") || line.empty()) {
      absl::StrAppend(&played, line, "\n");
    } else if (absl::StartsWith(line, "> ")) {
      absl::StrAppend(&played, line, "\n",
                      player.Play(std::string(absl::StripPrefix(line, "> "))));
    }
  }
  while (absl::EndsWith(played, "\n\n")) played.pop_back();
  if (!rewrite_root.empty()) {
    std::ofstream(absl::StrCat(rewrite_root, "/", name)) << played;
    return;
  }
  EXPECT_EQ(played, text.str())
      << name << " differs. If the change is right: bazel run "
      << "//coordinator/core:trace_test -- --rewrite=$PWD";
}

INSTANTIATE_TEST_SUITE_P(
    All, TraceTest,
    testing::Values("abort", "async_commit", "lost_contribution", "plain_round",
                    "quorum_grace", "removal", "restart", "streaming"),
    [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace atl::coordinator

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    absl::string_view value = argv[i];
    if (absl::ConsumePrefix(&value, "--rewrite=")) {
      atl::coordinator::rewrite_root = std::string(value);
    }
  }
  return RUN_ALL_TESTS();
}
