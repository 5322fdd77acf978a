#include "coordinator/core/spec/validate_spec.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/coordinator.h"
#include "coordinator/core/run_queries.h"
#include "coordinator/core/testing/run_simulation.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using Change = std::function<void(v1::RunSpec&)>;

TEST(ValidateSpecTest, TakesAGoodSpec) {
  EXPECT_TRUE(ValidateSpec(SimpleSpec(3)).empty());
  EXPECT_TRUE(ValidateSpec(ElasticSpec()).empty());
  v1::RunSpec island = SimpleSpec(3);
  island.set_durability(v1::DURABILITY_ISLAND);
  EXPECT_TRUE(ValidateSpec(island).empty());
  island.mutable_schedule()->set_overlap_step_count(
      island.schedule().inner_step_count() - 1);
  EXPECT_TRUE(ValidateSpec(island).empty());
}

TEST(ValidateSpecTest, ARunIsGivenALengthInRoundsInTokensOrInBoth) {
  struct Length {
    int64_t round_count;
    int64_t token_count;
    std::string field;  // Empty: accepted.
    std::string words;
  };
  const Length lengths[] = {
      {3, 0, "", ""},
      {0, 20, "", ""},  // One step of two sequences of ten tokens.
      {3, int64_t{1} << 53, "", ""},
      {0, 0, "spec.schedule.round_count", "set one or both"},
      {-1, 1000, "spec.schedule.round_count", "is -1"},
      {0, -1, "spec.schedule.token_count", "at least the tokens of one"},
      {3, 19, "spec.schedule.token_count", "is 19; must be in [20, "},
      {0, INT64_MAX, "spec.schedule.token_count", "at most 2^53"},
  };
  for (const Length& length : lengths) {
    SCOPED_TRACE(length.words);
    v1::RunSpec spec = SimpleSpec();
    spec.mutable_schedule()->set_round_count(length.round_count);
    spec.mutable_schedule()->set_token_count(length.token_count);
    const std::vector<FieldViolation> violations = ValidateSpec(spec);
    ASSERT_EQ(violations.size(), length.field.empty() ? 0u : 1u);
    if (violations.empty()) continue;
    EXPECT_EQ(violations[0].field, length.field);
    EXPECT_THAT(violations[0].description, testing::HasSubstr(length.words));
  }
}

TEST(ValidateSpecTest, AFieldOfANewerProgramIsRefused) {
  v1::RunSpec spec = SimpleSpec();
  v1::OuterSpec* outer = spec.mutable_outer();
  outer->GetReflection()->MutableUnknownFields(outer)->AddVarint(900, 1);
  const std::vector<FieldViolation> violations = ValidateSpec(spec);
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].field, "spec");
  EXPECT_THAT(violations[0].description, testing::HasSubstr("newer"));
}

TEST(ValidateSpecTest, NamesTheFieldOfEveryFault) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<std::pair<std::string, Change>> faults = {
      {"spec.layout", [](auto& s) { s.mutable_layout()->clear_tensors(); }},
      {"spec.layout.fragment_count",
       [](auto& s) { s.mutable_layout()->set_fragment_count(0); }},
      {"spec.layout",
       [](auto& s) {
         s.mutable_layout()->mutable_tensors(0)->set_shape(0, -1);
       }},
      {"spec.layout.tensors[0].init",
       [](auto& s) { s.mutable_layout()->mutable_tensors(0)->clear_init(); }},
      {"spec.init.fragment_digests",
       [](auto& s) { s.mutable_init()->set_import(true); }},
      {"spec.init.fragment_digests",
       [](auto& s) {
         s.mutable_init()->add_fragment_digests(std::string(32, 'a'));
       }},
      {"spec.init.fragment_digests[0]",
       [](auto& s) {
         s.mutable_init()->set_import(true);
         s.mutable_init()->add_fragment_digests("0123");
       }},
      {"spec.history.keep_round_count",
       [](auto& s) { s.mutable_history()->set_keep_round_count(-1); }},
      {"spec.history.keep_round_count",
       [](auto& s) {
         s.mutable_history()->set_keep_round_count((int64_t{1} << 31) + 1);
       }},
      {"spec.checkpoint.keep_count",
       [](auto& s) { s.mutable_checkpoint()->set_keep_count(33); }},
      {"spec.checkpoint.keep_count",
       [](auto& s) { s.mutable_checkpoint()->set_keep_count(-1); }},
      {"spec.guard.on_norm",
       [](auto& s) {
         s.mutable_guard()->set_on_norm(static_cast<v1::GuardAction>(9));
       }},
      {"spec.durability",
       [](auto& s) {
         s.set_durability(v1::DURABILITY_ISLAND);
         s.mutable_schedule()->set_timing(v1::TIMING_ELASTIC);
       }},
      {"spec.durability",
       [](auto& s) {
         s.set_durability(v1::DURABILITY_ISLAND);
         s.mutable_outer()->mutable_merge()->set_rule(
             v1::MERGE_RULE_KIND_MEDIAN);
       }},
      {"spec.durability",
       [](auto& s) {
         s.set_durability(v1::DURABILITY_ISLAND);
         s.mutable_outer()->mutable_merge()->set_rule(v1::MERGE_RULE_KIND_RDA);
       }},
      {"spec.exchange.up",
       [](auto& s) {
         s.mutable_exchange()->set_up(static_cast<v1::Codec>(8));
       }},
      {"spec.exchange.down",
       [](auto& s) {
         s.mutable_exchange()->set_down(static_cast<v1::Codec>(99));
       }},
      {"spec.exchange.error_feedback",
       [](auto& s) { s.mutable_exchange()->set_error_feedback(true); }},
      {"spec.model.architecture",
       [](auto& s) { s.mutable_model()->set_architecture("gpt"); }},
      {"spec.model.tie_embeddings",
       [](auto& s) { s.mutable_model()->set_architecture("gpt2"); }},
      {"spec.model.expert_count",
       [](auto& s) { s.mutable_model()->set_architecture("mixtral"); }},
      {"spec.model.kv_head_count",
       [](auto& s) {
         s.mutable_model()->set_head_count(4);
         s.mutable_model()->set_kv_head_count(3);
       }},
      {"spec.inner.optimizer",
       [](auto& s) {
         s.mutable_inner()->set_optimizer(v1::INNER_OPTIMIZER_KIND_UNSPECIFIED);
       }},
      {"spec.inner.learning_rate",
       [=](auto& s) { s.mutable_inner()->set_learning_rate(nan); }},
      {"spec.inner.epsilon",
       [](auto& s) {
         s.mutable_inner()->set_optimizer(v1::INNER_OPTIMIZER_KIND_ADAMW);
       }},
      {"spec.inner.weight_decay",
       [](auto& s) { s.mutable_inner()->set_weight_decay(0.1); }},
      {"spec.inner.batch_size",
       [](auto& s) { s.mutable_inner()->set_batch_size(0); }},
      {"spec.outer.optimizer",
       [](auto& s) { s.mutable_outer()->clear_optimizer(); }},
      {"spec.outer.learning_rate",
       [](auto& s) {
         s.mutable_outer()->set_optimizer(v1::OUTER_OPTIMIZER_KIND_SGD);
       }},
      {"spec.outer.momentum",
       [](auto& s) { s.mutable_outer()->set_momentum(0.5); }},
      {"spec.outer.tau",
       [](auto& s) {
         s.mutable_outer()->set_optimizer(v1::OUTER_OPTIMIZER_KIND_FEDADAM);
         s.mutable_outer()->set_learning_rate(0.1);
       }},
      {"spec.outer.weighting",
       [](auto& s) { s.mutable_outer()->clear_weighting(); }},
      {"spec.schedule.timing",
       [](auto& s) { s.mutable_schedule()->clear_timing(); }},
      {"spec.schedule.inner_step_count",
       [](auto& s) { s.mutable_schedule()->set_inner_step_count(0); }},
      {"spec.schedule.round_count",
       [](auto& s) { s.mutable_schedule()->set_round_count(INT64_MAX); }},
      {"spec.schedule.min_quorum",
       [](auto& s) { s.mutable_schedule()->set_min_quorum(3); }},
      {"spec.schedule.max_staleness",
       [](auto& s) { s.mutable_schedule()->set_max_staleness(1); }},
      {"spec.schedule.sample_fraction",
       [](auto& s) { s.mutable_schedule()->set_sample_fraction(1.5); }},
      {"spec.schedule.grace_window",
       [](auto& s) {
         s.mutable_schedule()->mutable_grace_window()->set_seconds(1);
       }},
      {"spec.schedule.round_deadline",
       [](auto& s) {
         s.mutable_schedule()->mutable_round_deadline()->set_seconds(1);
       }},
      {"spec.schedule.max_ahead_steps",
       [](auto& s) { s.mutable_schedule()->set_max_ahead_steps(1); }},
      {"spec.schedule.lease_duration",
       [](auto& s) {
         s.mutable_schedule()->mutable_lease_duration()->set_nanos(1);
       }},
      {"spec.data.format", [](auto& s) { s.mutable_data()->clear_format(); }},
      {"spec.data.fingerprint",
       [](auto& s) { s.mutable_data()->set_fingerprint("xyz"); }},
      {"spec.data.data_shard_count",
       [](auto& s) { s.mutable_data()->set_data_shard_count(1); }},
      {"spec.data.validation_fraction",
       [](auto& s) {
         s.mutable_evaluation()->set_every_round_count(1);
         s.mutable_evaluation()->set_batch_count(1);
       }},
      {"spec.server_count", [](auto& s) { s.set_server_count(0); }},
      {"spec.durability",
       [](auto& s) { s.set_durability(static_cast<v1::Durability>(9)); }},
  };
  for (const auto& [field, change] : faults) {
    v1::RunSpec spec = SimpleSpec();
    change(spec);
    bool named = false;
    for (const FieldViolation& violation : ValidateSpec(spec)) {
      named = named || violation.field == field;
      EXPECT_GT(violation.description.size(), 8u);
    }
    EXPECT_TRUE(named) << field;
  }
}

TEST(ValidateSpecTest, FragmentsTimesIslandsAreBounded) {
  v1::RunSpec spec = ElasticSpec(kFragmentsMax);
  spec.mutable_data()->set_data_shard_count(kIslandsMax);
  spec.mutable_schedule()->set_island_count_min(128);
  EXPECT_TRUE(ValidateSpec(spec).empty());
  spec.mutable_schedule()->set_island_count_min(129);
  const std::vector<FieldViolation> violations = ValidateSpec(spec);
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].field, "spec.schedule.island_count_min");
  EXPECT_THAT(violations[0].description,
              testing::HasSubstr("a run of 256 fragments takes at most 128"));
  spec = ElasticSpec(32);
  spec.mutable_data()->set_data_shard_count(kIslandsMax);
  spec.mutable_schedule()->set_island_count_min(kIslandsMax);
  EXPECT_TRUE(ValidateSpec(spec).empty());
}

TEST(ValidateSpecTest, ANormFactorIs0OrFrom1To1e6) {
  v1::RunSpec spec = ElasticSpec();
  for (const double factor : {0.0, 1.0, 8.0, 1e6}) {
    spec.mutable_outer()->set_enrolled_norm_factor(factor);
    EXPECT_TRUE(ValidateSpec(spec).empty()) << factor;
  }
  for (const double factor : {-1.0, 0.99, 1.01e6, std::nan(""),
                              std::numeric_limits<double>::infinity()}) {
    spec.mutable_outer()->set_enrolled_norm_factor(factor);
    ASSERT_EQ(ValidateSpec(spec).size(), 1) << factor;
    EXPECT_EQ(ValidateSpec(spec)[0].field, "spec.outer.enrolled_norm_factor");
  }
}

TEST(ValidateSpecTest, NamesWhatAnAsyncRunDoesNotTake) {
  EXPECT_TRUE(ValidateSpec(AsyncSpec()).empty());
  const std::vector<std::pair<std::string, Change>> faults = {
      {"spec.schedule.min_quorum",
       [](auto& s) { s.mutable_schedule()->set_min_quorum(2); }},
      {"spec.schedule.grace_window",
       [](auto& s) {
         s.mutable_schedule()->mutable_grace_window()->set_nanos(1);
       }},
      {"spec.schedule.sample_fraction",
       [](auto& s) { s.mutable_schedule()->set_sample_fraction(0.5); }},
      {"spec.schedule.overlap_step_count",
       [](auto& s) { s.mutable_schedule()->set_overlap_step_count(1); }},
      {"spec.schedule.blend",
       [](auto& s) { s.mutable_schedule()->set_blend(0.5); }},
      {"spec.schedule.fragment_schedule",
       [](auto& s) {
         s.mutable_schedule()->set_fragment_schedule(
             v1::FRAGMENT_SCHEDULE_STAGGERED);
       }},
      {"spec.schedule.eager",
       [](auto& s) { s.mutable_schedule()->set_eager(true); }},
      {"spec.schedule.max_staleness",
       [](auto& s) { s.mutable_schedule()->set_timing(v1::TIMING_STRICT); }},
      {"spec.durability",
       [](auto& s) { s.set_durability(v1::DURABILITY_ISLAND); }},
      {"spec.outer.weighting",
       [](auto& s) { s.mutable_outer()->set_weighting(v1::WEIGHTING_TOKENS); }},
      {"spec.outer.optimizer",
       [](auto& s) {
         s.mutable_outer()->set_optimizer(v1::OUTER_OPTIMIZER_KIND_FEDAVG);
       }},
      {"spec.outer.optimizer",
       [](auto& s) { s.mutable_schedule()->set_max_staleness(0); }},
      {"spec.outer.buffer_count",
       [](auto& s) { s.mutable_outer()->set_buffer_count(0); }},
      {"spec.outer.buffer_count",
       [](auto& s) {
         s.mutable_outer()->set_optimizer(v1::OUTER_OPTIMIZER_KIND_NESTEROV);
       }},
      {"spec.outer.momentum_share",
       [](auto& s) { s.mutable_outer()->set_momentum_share(0.51); }},
  };
  for (const auto& [field, change] : faults) {
    v1::RunSpec spec = AsyncSpec();
    change(spec);
    bool named = false;
    for (const FieldViolation& violation : ValidateSpec(spec)) {
      named = named || violation.field == field;
    }
    EXPECT_TRUE(named) << field;
  }
  for (v1::MergeRuleKind rule :
       {v1::MERGE_RULE_KIND_RDA, v1::MERGE_RULE_KIND_TRIMMED_MEAN,
        v1::MERGE_RULE_KIND_MEDIAN, v1::MERGE_RULE_KIND_KRUM,
        v1::MERGE_RULE_KIND_MDA}) {
    v1::RunSpec spec = AsyncSpec();
    spec.mutable_outer()->mutable_merge()->set_rule(rule);
    ASSERT_FALSE(ValidateSpec(spec).empty());
    bool named = false;
    for (const FieldViolation& violation : ValidateSpec(spec)) {
      named = named || violation.field == "spec.outer.merge.rule";
    }
    EXPECT_TRUE(named) << rule;
  }
  // Naive async, and the clips, which need only one contribution.
  v1::RunSpec naive = AsyncSpec();
  naive.mutable_outer()->set_optimizer(v1::OUTER_OPTIMIZER_KIND_NESTEROV);
  naive.mutable_outer()->set_buffer_count(0);
  naive.mutable_outer()->mutable_merge()->set_rule(
      v1::MERGE_RULE_KIND_NORM_CLIP);
  EXPECT_TRUE(ValidateSpec(naive).empty());
}

TEST(CreateRunTest, IsIdempotentAndRefusesAnotherSpec) {
  Coordinator coordinator({});
  const absl::Time now = absl::FromUnixSeconds(1);
  coordinator.Start(now, {"cluster", "start"}, 0);
  v1::CreateRunRequest request;
  request.set_run_id("run");
  *request.mutable_spec() = SimpleSpec();
  request.set_validate_only(true);
  ASSERT_TRUE(coordinator.CreateRun(request, now).ok());
  EXPECT_FALSE(coordinator.FindRun("run").ok());
  request.set_validate_only(false);
  const auto created = coordinator.CreateRun(request, now);
  ASSERT_TRUE(created.ok());
  const auto again = coordinator.CreateRun(request, now + absl::Seconds(5));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->run().DebugString(), created->run().DebugString());
  request.mutable_spec()->set_server_count(1);
  EXPECT_EQ(coordinator.CreateRun(request, now).status().code(),
            absl::StatusCode::kAlreadyExists);
  request.set_run_id("Not an id");
  EXPECT_EQ(coordinator.CreateRun(request, now).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(CreateRunTest, ReplayGivesTheCoordinatorAgainWithAGreaterEpoch) {
  Coordinator first({});
  const absl::Time now = absl::FromUnixSeconds(1);
  first.Start(now, {"cluster", "start"}, 0);
  v1::CreateRunRequest request;
  *request.mutable_spec() = SimpleSpec();
  for (const char* id : {"a", "b"}) {
    request.set_run_id(id);
    ASSERT_TRUE(first.CreateRun(request, now).ok());
  }
  v1::RegisterServerRequest server;
  server.set_server_id("s");
  server.set_address("h:1");
  server.set_incarnation(3);
  ASSERT_TRUE(first.RegisterServer(server, now).ok());
  Coordinator second({});
  for (const LogEntry& entry : first.TakeEffects(now).batch.entries) {
    ASSERT_TRUE(second.Replay(entry).ok());
  }
  second.Start(now, {"other", "second"}, 1);
  EXPECT_EQ(second.coordinator_epoch(), first.coordinator_epoch() + 1);
  EXPECT_TRUE(second.FindRun("b").ok());
  EXPECT_TRUE(second.CheckServer("s", 3).ok());
  EXPECT_EQ(second.CheckServer("s", 2).code(), absl::StatusCode::kAborted);
  server.set_incarnation(2);
  EXPECT_EQ(second.RegisterServer(server, now).status().code(),
            absl::StatusCode::kAborted);
  const std::vector<RunToList> listed = second.ListRuns();
  ASSERT_EQ(listed.size(), 2u);
  EXPECT_EQ(listed[1].spec.get(), &(*second.FindRun("b"))->state().spec())
      << "a list of many runs copies no spec here";
  EXPECT_EQ(
      BuildRuns(listed).runs(1).SerializeAsString(),
      BuildRun(**second.FindRun("b"), /*with_tensors=*/false)
          .SerializeAsString());
}

TEST(CoordinatorTest, TakesOnlyPageTokensThatItGave) {
  const std::vector<std::string> run_ids = {"a", "b", "c"};
  v1::ListRunsRequest list;
  list.set_page_size(2);
  const auto first = PlanRuns(run_ids, list);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->end, 2u);
  list.set_page_token(first->next_page_token);
  const auto last = PlanRuns(run_ids, list);
  EXPECT_EQ(last->begin, 2u);
  EXPECT_EQ(last->end, 3u);
  EXPECT_EQ(last->next_page_token, "");
  // The run that the token names is gone.
  EXPECT_EQ(PlanRuns({"a", "c"}, list)->begin, 1u);
  // Tokens of other methods or nearly valid ones.
  for (const char* token : {"1", "bb", "B"}) {
    list.set_page_token(token);
    EXPECT_EQ(PlanRuns(run_ids, list).status().code(),
              absl::StatusCode::kInvalidArgument)
        << token;
  }
}

TEST(CoordinatorTest, NamesTheFieldOfABadIdOnce) {
  Coordinator coordinator({});
  const absl::Time now = absl::FromUnixSeconds(1);
  coordinator.Start(now, {"cluster", "start"}, 0);
  v1::RegisterServerRequest server;
  server.set_server_id("S 1");
  server.set_address("h:1");
  server.set_incarnation(1);
  const absl::Status status = coordinator.RegisterServer(server, now).status();
  EXPECT_EQ(status.message(),
            "server_id: \"S 1\" is not an id: use 1 to 63 of a-z, 0-9 and '-'");
  EXPECT_TRUE(status.GetPayload("type.googleapis.com/google.rpc.BadRequest")
                  .has_value());
}

TEST(CoordinatorTest, CallsASilentServerAwayUntilItReports) {
  CoordinatorOptions options;
  options.server_lease_duration = absl::Seconds(10);
  Coordinator coordinator(options);
  const absl::Time now = absl::FromUnixSeconds(1);
  coordinator.Start(now, {"cluster", "start"}, 0);
  v1::RegisterServerRequest server;
  server.set_server_id("s");
  server.set_address("h:1");
  server.set_incarnation(1);
  ASSERT_TRUE(coordinator.RegisterServer(server, now).ok());
  EXPECT_EQ(coordinator.NextTimer(), now + absl::Seconds(10));
  coordinator.Advance(now + absl::Seconds(10));
  EXPECT_FALSE(coordinator.FindServer("s")->alive);
  v1::ReportShardsRequest report;
  report.set_server_id("s");
  report.set_incarnation(1);
  report.set_report_seq(1);
  ASSERT_TRUE(coordinator.ReportShards(report, now + absl::Seconds(11)).ok());
  EXPECT_TRUE(coordinator.FindServer("s")->alive);
  coordinator.AddStall(absl::Minutes(1));
  EXPECT_EQ(coordinator.NextTimer(), now + absl::Seconds(81));
  coordinator.Advance(now + absl::Seconds(80));
  EXPECT_TRUE(coordinator.FindServer("s")->alive);
  coordinator.Advance(now + absl::Seconds(81));
  EXPECT_FALSE(coordinator.FindServer("s")->alive);
}

}  // namespace
}  // namespace atl::coordinator
