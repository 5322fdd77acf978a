// Scripted traces as text: events of a run and the coordinator's decisions.
//
// testdata/*.trace has a line "> VERB ARGUMENTS" for each step. Below it are
// the results: records as "record N KIND {fields}", reasons as "- reason", and
// what the run waits for as "waits: ...". Lines that begin with "#" are
// comments. `bazel run //coordinator/core:trace_test -- --rewrite=$PWD`
// rewrites the files.

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

// A record's fields without times and digests of bytes.
std::string Describe(const storage::v1::Record& record) {
  storage::v1::Record shown = record;
  shown.clear_time();
  shown.clear_revision();
  std::string text = shown.ShortDebugString();
  std::string out;
  for (size_t i = 0; i < text.size();) {
    // Of bytes and long strings only the length is shown.
    if (text[i] == '"') {
      size_t end = i + 1;
      while (end < text.size() && text[end] != '"') {
        end += text[end] == '\\' ? 2 : 1;
      }
      const std::string value = text.substr(i, end + 1 - i);
      out +=
          value.size() > 60 || absl::StrContains(value, "\\") ? "..." : value;
      i = end + 1;
    } else {
      out += text[i++];
    }
  }
  return out;
}

class Player {
 public:
  // The results of one step.
  std::string Play(const std::string& line) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    const auto verb = verbs_.find(words[0]);
    if (verb == verbs_.end()) return absl::StrCat("no verb ", words[0], "\n");
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
