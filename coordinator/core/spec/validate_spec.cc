#include "coordinator/core/spec/validate_spec.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/features/features.h"
#include "base/layout/digest.h"
#include "base/layout/external_model.h"
#include "base/layout/layout.h"
#include "base/layout/run_length.h"
#include "base/layout/run_timing.h"
#include "coordinator/core/rounds/kept_checkpoints.h"
#include "coordinator/core/spec/checker.h"
#include "coordinator/core/verdict/verdict_rule.h"
#include "google/protobuf/duration.pb.h"

namespace atl::coordinator {
namespace {

// The largest steps and rounds. No sum or product of two overflows.
constexpr int64_t kCountMax = int64_t{1} << 31;
constexpr double kNormFactorMax = 1e6;

void CheckLayout(const v1::RunSpec& spec, Checker& check) {
  check.InRange(spec.layout().fragment_count(), 1, kFragmentsMax,
                "layout.fragment_count");
  const absl::StatusOr<RunLayout> layout = RunLayout::Create(spec.layout());
  check.Require(layout.ok(), "layout", layout.status().message());
  const v1::InitSpec& init = spec.init();
  check.Require(init.fragment_digests_size() ==
                    (init.import() ? spec.layout().fragment_count() : 0),
                "init.fragment_digests",
                init.import()
                    ? "must name the digest of every fragment's version 0"
                    : "must be empty unless init.import is set");
  for (int f = 0; f < init.fragment_digests_size(); ++f) {
    check.Require(Digest128::FromHex(init.fragment_digests(f)).has_value(),
                  absl::StrCat("init.fragment_digests[", f, "]"),
                  "must be 32 lower-case hex digits");
  }
  if (init.import()) return;
  for (int i = 0; i < spec.layout().tensors_size(); ++i) {
    const v1::TensorInit& init = spec.layout().tensors(i).init();
    check.Require(init.kind() == v1::INIT_KIND_CONSTANT ||
                      (init.kind() == v1::INIT_KIND_NORMAL &&
                       std::isfinite(init.value()) && init.value() >= 0),
                  absl::StrCat("layout.tensors[", i, "].init"),
                  "needs a kind, and a standard deviation of at least 0 if "
                  "normal, unless the run imports version 0");
  }
}

void CheckModel(const v1::ModelSpec& model, Checker& check) {
  const bool gpt2 = model.architecture() == "gpt2";
  const bool mixture = model.architecture() == "mixtral";
  check.Require(
      gpt2 || mixture || model.architecture() == "llama", "model.architecture",
      absl::StrCat("is \"", model.architecture(),
                   "\"; there are \"llama\", \"gpt2\" and \"mixtral\", and "
                   "\"external\" for a trainer's own model"));
  check.InRange(model.vocab_size(), 2, 1 << 24, "model.vocab_size");
  check.InRange(model.hidden_size(), 1, 1 << 20, "model.hidden_size");
  check.InRange(model.intermediate_size(), 1, 1 << 22,
                "model.intermediate_size");
  check.InRange(model.layer_count(), 1, 4096, "model.layer_count");
  check.InRange(model.head_count(), 1, 1 << 16, "model.head_count");
  check.InRange(model.kv_head_count(), 1, 1 << 16, "model.kv_head_count");
  check.InRange(model.sequence_length(), 1, 1 << 24, "model.sequence_length");
  if (model.head_count() >= 1) {
    check.Require(model.hidden_size() % model.head_count() == 0,
                  "model.head_count", "must divide model.hidden_size");
  }
  if (model.kv_head_count() >= 1) {
    check.Require(model.head_count() % model.kv_head_count() == 0,
                  "model.kv_head_count", "must divide model.head_count");
  }
  if (gpt2) {
    check.Require(model.kv_head_count() == model.head_count(),
                  "model.kv_head_count", "must be model.head_count in a gpt2");
    check.Require(model.tie_embeddings(), "model.tie_embeddings",
                  "must be true in a gpt2");
  } else {
    check.Positive(model.rope_theta(), "model.rope_theta");
  }
  if (mixture) {
    check.InRange(model.expert_count(), 1, 1024, "model.expert_count");
    check.InRange(model.experts_per_token(), 1,
                  std::min(model.expert_count(), 16),
                  "model.experts_per_token");
  } else {
    check.Require(model.expert_count() == 0, "model.expert_count",
                  "only a mixtral has experts: leave it 0");
    check.Require(model.experts_per_token() == 0, "model.experts_per_token",
                  "only a mixtral has experts: leave it 0");
  }
  check.NotNegative(model.router_loss_weight(), "model.router_loss_weight");
  check.NotNegative(model.expert_capacity_factor(),
                    "model.expert_capacity_factor");
  check.NotNegative(model.rms_norm_eps(), "model.rms_norm_eps");
}

void CheckInner(const v1::InnerSpec& inner, Checker& check) {
  check.Require(inner.optimizer() == v1::INNER_OPTIMIZER_KIND_SGD ||
                    inner.optimizer() == v1::INNER_OPTIMIZER_KIND_ADAMW,
                "inner.optimizer", "must be SGD or ADAMW");
  check.Positive(inner.learning_rate(), "inner.learning_rate");
  if (inner.optimizer() == v1::INNER_OPTIMIZER_KIND_ADAMW) {
    check.Rate(inner.beta1(), "inner.beta1");
    check.Rate(inner.beta2(), "inner.beta2");
    check.Positive(inner.epsilon(), "inner.epsilon");
    check.NotNegative(inner.weight_decay(), "inner.weight_decay");
  } else {
    check.Require(inner.weight_decay() == 0, "inner.weight_decay",
                  "SGD has no weight decay: leave it 0");
  }
  check.NotNegative(inner.clip_norm(), "inner.clip_norm");
  check.InRange(inner.warmup_step_count(), 0, kCountMax,
                "inner.warmup_step_count");
  check.Require(inner.final_learning_rate_fraction() >= 0 &&
                    inner.final_learning_rate_fraction() <= 1,
                "inner.final_learning_rate_fraction", "must be in [0, 1]");
  check.InRange(inner.batch_size(), 1, 1 << 20, "inner.batch_size");
  check.Require(v1::ComputeType_IsValid(inner.compute()), "inner.compute",
                "must be F32 or BF16");
}

// Refuses constants that the rule does not read, so that no operator relies on
// a defence that does not exist.
void CheckMergeConstants(const v1::MergeSpec& merge, Checker& check) {
  const v1::MergeRuleKind rule = merge.rule();
  const bool counts_hostile = rule == v1::MERGE_RULE_KIND_TRIMMED_MEAN ||
                              rule == v1::MERGE_RULE_KIND_KRUM ||
                              rule == v1::MERGE_RULE_KIND_MDA;
  if (counts_hostile) {
    check.InRange(
        merge.byzantine_count(), 0,
        rule == v1::MERGE_RULE_KIND_MDA ? kMdaByzantineMax : kIslandsMax,
        "outer.merge.byzantine_count");
  } else {
    check.Require(merge.byzantine_count() == 0, "outer.merge.byzantine_count",
                  "only TRIMMED_MEAN, KRUM and MDA read it: leave it 0");
  }
  check.Require(rule == v1::MERGE_RULE_KIND_KRUM || merge.selected_count() == 0,
                "outer.merge.selected_count", "only KRUM reads it: leave it 0");
  const bool clips = rule == v1::MERGE_RULE_KIND_NORM_CLIP ||
                     rule == v1::MERGE_RULE_KIND_CENTRED_CLIP;
  if (clips) {
    check.NotNegative(merge.clip_factor(), "outer.merge.clip_factor");
    check.InRange(merge.clip_round_count(), 0, kMedianNormsMax,
                  "outer.merge.clip_round_count");
  } else {
    check.Require(merge.clip_factor() == 0, "outer.merge.clip_factor",
                  "only NORM_CLIP and CENTRED_CLIP read it: leave it 0");
    check.Require(merge.clip_round_count() == 0, "outer.merge.clip_round_count",
                  "only NORM_CLIP and CENTRED_CLIP read it: leave it 0");
  }
  if (rule == v1::MERGE_RULE_KIND_CENTRED_CLIP) {
    check.InRange(merge.iteration_count(), 0, 64,
                  "outer.merge.iteration_count");
  } else {
    check.Require(merge.iteration_count() == 0, "outer.merge.iteration_count",
                  "only CENTRED_CLIP reads it: leave it 0");
  }
  check.Require(
      rule == v1::MERGE_RULE_KIND_RDA || merge.mean_tensor_classes().empty(),
      "outer.merge.mean_tensor_classes",
      "only RDA reads it: with another rule a plain mean of some tensors "
      "would let one island control them");
  for (const int tensor_class : merge.mean_tensor_classes()) {
    check.Require(tensor_class != v1::TENSOR_CLASS_UNSPECIFIED &&
                      v1::TensorClass_IsValid(tensor_class),
                  "outer.merge.mean_tensor_classes", "must be classes");
  }
}

void CheckOuter(const v1::OuterSpec& outer, Checker& check) {
  const v1::OuterOptimizerKind kind = outer.optimizer();
  check.Require(kind != v1::OUTER_OPTIMIZER_KIND_UNSPECIFIED &&
                    v1::OuterOptimizerKind_IsValid(kind),
                "outer.optimizer", "must name an outer optimizer");
  if (kind != v1::OUTER_OPTIMIZER_KIND_FEDAVG) {
    check.Positive(outer.learning_rate(), "outer.learning_rate");
  }
  const bool has_momentum = kind == v1::OUTER_OPTIMIZER_KIND_MOMENTUM ||
                            kind == v1::OUTER_OPTIMIZER_KIND_NESTEROV ||
                            kind == v1::OUTER_OPTIMIZER_KIND_FEDAVGM ||
                            kind == v1::OUTER_OPTIMIZER_KIND_DELAYED_NESTEROV;
  if (has_momentum) {
    check.Rate(outer.momentum(), "outer.momentum");
  } else {
    check.Require(outer.momentum() == 0, "outer.momentum",
                  "this outer optimizer has no momentum: leave it 0");
  }
  const bool is_adaptive = kind == v1::OUTER_OPTIMIZER_KIND_FEDADAM ||
                           kind == v1::OUTER_OPTIMIZER_KIND_FEDYOGI ||
                           kind == v1::OUTER_OPTIMIZER_KIND_FEDADAGRAD;
  if (is_adaptive) {
    check.Rate(outer.beta1(), "outer.beta1");
    check.Positive(outer.tau(), "outer.tau");
    if (kind != v1::OUTER_OPTIMIZER_KIND_FEDADAGRAD) {
      check.Rate(outer.beta2(), "outer.beta2");
    }
  }
  check.Require(v1::MergeRuleKind_IsValid(outer.merge().rule()),
                "outer.merge.rule", "must name a merge rule");
  CheckMergeConstants(outer.merge(), check);
  if (kind == v1::OUTER_OPTIMIZER_KIND_DELAYED_NESTEROV) {
    check.InRange(outer.buffer_count(), 1, kIslandsMax, "outer.buffer_count");
    check.Require(outer.momentum_share() >= 0 &&
                      outer.momentum_share() * outer.buffer_count() <= 1,
                  "outer.momentum_share",
                  absl::StrCat("is ", outer.momentum_share(),
                               "; must be in [0, 1 / outer.buffer_count]"));
  } else {
    check.Require(outer.buffer_count() == 0 && outer.momentum_share() == 0,
                  "outer.buffer_count",
                  "only DELAYED_NESTEROV reads it and outer.momentum_share: "
                  "leave both 0");
  }
  check.Require(outer.weighting() != v1::WEIGHTING_UNSPECIFIED &&
                    v1::Weighting_IsValid(outer.weighting()),
                "outer.weighting",
                "must be TOKENS, SAMPLES, UNIFORM or "
                "TOKENS_SQUARED_PER_STEP");
  check.NotNegative(outer.contribution_norm_max(),
                    "outer.contribution_norm_max");
  const double factor = outer.enrolled_norm_factor();
  check.Require(factor == 0 || (factor >= 1 && factor <= kNormFactorMax),
                "outer.enrolled_norm_factor",
                absl::StrCat("is ", factor,
                             "; must be 0 (no bound), or in [1, 1e6]"));
}

void CheckMergeCounts(const v1::RunSpec& spec, Checker& check) {
  const v1::MergeSpec& merge = spec.outer().merge();
  const int64_t quorum = spec.schedule().min_quorum();
  const int64_t f = merge.byzantine_count();
  if (merge.rule() == v1::MERGE_RULE_KIND_TRIMMED_MEAN) {
    check.Require(
        quorum >= 2 * f + 1, "outer.merge.byzantine_count",
        absl::StrCat("a trimmed mean leaves out ", f,
                     " values at each end, so a round needs ", 2 * f + 1,
                     " contributions, and "
                     "schedule.min_quorum is ",
                     quorum));
  }
  if (merge.rule() == v1::MERGE_RULE_KIND_MDA) {
    check.Require(quorum >= 2 * f + 1, "outer.merge.byzantine_count",
                  absl::StrCat("minimum-diameter averaging against ", f,
                               " hostile islands needs ", 2 * f + 1,
                               " contributions a round, and "
                               "schedule.min_quorum is ",
                               quorum));
  }
  if (merge.rule() == v1::MERGE_RULE_KIND_KRUM) {
    check.Require(
        quorum >= 2 * f + 3, "outer.merge.byzantine_count",
        absl::StrCat("Krum against ", f, " hostile islands needs ", 2 * f + 3,
                     " contributions a round, and "
                     "schedule.min_quorum is ",
                     quorum));
    check.Require(
        merge.selected_count() >= 0 &&
            merge.selected_count() <= std::max<int64_t>(quorum - f - 2, 1),
        "outer.merge.selected_count",
        "must be at most schedule.min_quorum - byzantine_count - 2");
  }
  const absl::StatusOr<RunLayout> layout = RunLayout::Create(spec.layout());
  if (!layout.ok()) return;
  const int64_t most = ContributionsMax(*layout, spec);
  check.Require(quorum <= most, "schedule.min_quorum",
                absl::StrCat("this merge rule takes at most ", most,
                             " contributions a round in this layout: its "
                             "statistics would not fit a report"));
}

void CheckStrict(const v1::ScheduleSpec& schedule, Checker& check) {
  check.Require(schedule.grace_window().seconds() == 0 &&
                    schedule.grace_window().nanos() == 0,
                "schedule.grace_window",
                "a strict run awaits every member, so there is no grace: leave "
                "it 0, or choose elastic timing");
  check.Require(schedule.round_deadline().seconds() == 0 &&
                    schedule.round_deadline().nanos() == 0,
                "schedule.round_deadline",
                "a strict run does not depend on time: leave it 0, or choose "
                "elastic timing");
  check.Require(schedule.max_ahead_steps() == 0, "schedule.max_ahead_steps",
                "a strict run takes exactly the planned steps: leave it 0, or "
                "choose elastic timing");
  check.Require(schedule.max_staleness() == 0, "schedule.max_staleness",
                "a strict run merges all contributions of a round into the "
                "version that they were made from: leave it 0, or choose "
                "elastic timing");
}

bool ComparesContributions(v1::MergeRuleKind rule) {
  return rule == v1::MERGE_RULE_KIND_RDA ||
         rule == v1::MERGE_RULE_KIND_TRIMMED_MEAN ||
         rule == v1::MERGE_RULE_KIND_MEDIAN ||
         rule == v1::MERGE_RULE_KIND_KRUM || rule == v1::MERGE_RULE_KIND_MDA;
}

void CheckAsyncOuter(const v1::OuterSpec& outer, Checker& check) {
  check.Require(!ComparesContributions(outer.merge().rule()),
                "outer.merge.rule",
                "an async run merges one contribution at a time, so that RDA, "
                "TRIMMED_MEAN, MEDIAN, KRUM and MDA have nothing to compare it "
                "with: choose WEIGHTED_MEAN, NORM_CLIP or CENTRED_CLIP, or "
                "leave schedule.max_staleness 0");
  check.Require(outer.weighting() == v1::WEIGHTING_UNIFORM, "outer.weighting",
                "an async run merges one contribution at a time, so there is "
                "nothing to weigh it against: choose UNIFORM");
  check.Require(outer.optimizer() != v1::OUTER_OPTIMIZER_KIND_FEDAVG,
                "outer.optimizer",
                "FEDAVG applies the mean of a round's contributions in full; "
                "one at a time, their full steps would add up: choose SGD "
                "with a learning rate, or DELAYED_NESTEROV");
}

void CheckAsync(const v1::RunSpec& spec, Checker& check) {
  const v1::ScheduleSpec& schedule = spec.schedule();
  check.Require(
      schedule.min_quorum() <= 1, "schedule.min_quorum",
      "an async run merges each contribution immediately: leave it 1, "
      "or leave schedule.max_staleness 0");
  check.Require(schedule.grace_window().seconds() == 0 &&
                    schedule.grace_window().nanos() == 0,
                "schedule.grace_window",
                "an async run merges each contribution immediately, without "
                "waiting for others: leave it 0, or leave "
                "schedule.max_staleness 0");
  check.Require(
      schedule.sample_fraction() == 0 || schedule.sample_fraction() == 1,
      "schedule.sample_fraction",
      "an async run has no rounds to sample islands for: leave it 1");
  check.Require(schedule.overlap_step_count() == 0,
                "schedule.overlap_step_count",
                "an async island waits only for its own contribution: leave it "
                "0, or leave schedule.max_staleness 0");
  check.Require(schedule.blend() == 0, "schedule.blend",
                "an async island starts from the version that it pulls, and "
                "late contributions are merged: leave it 0");
  check.Require(
      schedule.fragment_schedule() != v1::FRAGMENT_SCHEDULE_STAGGERED,
      "schedule.fragment_schedule",
      "islands of an async run have no common steps to stagger: choose "
      "TOGETHER");
  check.Require(!schedule.eager(), "schedule.eager",
                "an async island waits only for its own contribution: leave it "
                "false");
  check.Require(spec.durability() != v1::DURABILITY_ISLAND, "durability",
                "ISLAND needs to know before a push which contributions its "
                "round will merge, and an async run does not: choose MACHINE "
                "or PROCESS");
  CheckAsyncOuter(spec.outer(), check);
}

void CheckLength(const v1::RunSpec& spec, Checker& check) {
  const v1::ScheduleSpec& schedule = spec.schedule();
  check.Require(
      schedule.round_count() != 0 || schedule.token_count() != 0,
      "schedule.round_count",
      "is 0, and so is schedule.token_count: set one or both; the run "
      "ends at the limit that it reaches first");
  check.InRange(schedule.round_count(), 0, kCountMax, "schedule.round_count");
  int64_t step_count = 0;
  check.Require(!__builtin_mul_overflow(schedule.inner_step_count(),
                                        schedule.round_count(), &step_count) &&
                    step_count <= (int64_t{1} << 53),
                "schedule.round_count",
                "times schedule.inner_step_count must be at most 2^53");
  if (schedule.token_count() == 0) return;
  const int64_t least = TokensAStep(spec);
  check.Require(
      schedule.token_count() >= least &&
          schedule.token_count() <= kTokenBudgetMax,
      "schedule.token_count",
      absl::StrCat("is ", schedule.token_count(), "; must be in [", least, ", ",
                   kTokenBudgetMax,
                   "]: at least the tokens of one inner step "
                   "(inner.batch_size x model.sequence_length, or what "
                   "weight_unit counts instead), at most 2^53"));
}

void CheckSchedule(const v1::ScheduleSpec& schedule, Checker& check) {
  check.Require(schedule.timing() == v1::TIMING_STRICT ||
                    schedule.timing() == v1::TIMING_ELASTIC,
                "schedule.timing", "must be STRICT or ELASTIC");
  check.InRange(schedule.inner_step_count(), 1, kCountMax,
                "schedule.inner_step_count");
  check.InRange(schedule.island_count_min(), 1, kIslandsMax,
                "schedule.island_count_min");
  check.InRange(schedule.min_quorum(), 1, kIslandsMax, "schedule.min_quorum");
  check.Require(schedule.min_quorum() <= schedule.island_count_min(),
                "schedule.min_quorum",
                "must be at most schedule.island_count_min, or the first round "
                "could not close");
  check.Duration(schedule.grace_window(), "schedule.grace_window");
  check.Duration(schedule.round_deadline(), "schedule.round_deadline");
  check.Duration(schedule.lease_duration(), "schedule.lease_duration");
  const google::protobuf::Duration& lease = schedule.lease_duration();
  check.Require((lease.seconds() == 0 && lease.nanos() == 0) ||
                    lease.seconds() > 0 || lease.nanos() >= 100000000,
                "schedule.lease_duration",
                "must be at least 0.1 s: heartbeats take time; 0 means 30 s");
  check.InRange(schedule.max_staleness(), 0, kCountMax,
                "schedule.max_staleness");
  check.InRange(schedule.max_ahead_steps(), 0, kCountMax,
                "schedule.max_ahead_steps");
  const double fraction = schedule.sample_fraction();
  check.Require(
      fraction >= 0 && fraction <= 1, "schedule.sample_fraction",
      absl::StrCat("is ", fraction, "; must be in (0, 1]; 0 means 1"));
  if (schedule.timing() == v1::TIMING_STRICT) CheckStrict(schedule, check);
}

// Checks settings that only async runs accept, and those that they refuse.
void CheckTiming(const v1::RunSpec& spec, Checker& check) {
  if (IsAsync(spec.schedule())) return CheckAsync(spec, check);
  check.Require(
      spec.outer().optimizer() != v1::OUTER_OPTIMIZER_KIND_DELAYED_NESTEROV,
      "outer.optimizer",
      "Delayed Nesterov takes one step for each contribution, and "
      "rounds of this run merge several: it is for async runs, "
      "which have elastic timing and schedule.max_staleness above 0");
}

void CheckHistory(const v1::RunSpec& spec, Checker& check) {
  check.InRange(spec.history().keep_round_count(), 0, kCountMax,
                "history.keep_round_count");
  check.InRange(spec.evaluation().every_round_count(), 0, kCountMax,
                "evaluation.every_round_count");
}

// At level ISLAND shards merge live, chunk by chunk by slot, and keep nothing.
void CheckLevelIsland(const v1::RunSpec& spec, Checker& check) {
  const v1::ScheduleSpec& schedule = spec.schedule();
  check.Require(schedule.timing() == v1::TIMING_STRICT, "durability",
                "ISLAND needs schedule.timing STRICT: shards wait for every "
                "expected island, and a slow one delays the pushes of all");
  const v1::MergeRuleKind rule = spec.outer().merge().rule();
  check.Require(rule == v1::MERGE_RULE_KIND_UNSPECIFIED ||
                    rule == v1::MERGE_RULE_KIND_WEIGHTED_MEAN,
                "durability",
                "ISLAND needs the merge rule WEIGHTED_MEAN: every other rule "
                "looks at all contributions of a round before it merges one, "
                "and at this level shards keep none");
}

void CheckPlanSizes(const v1::RunSpec& spec, Checker& check) {
  const int32_t most = IslandsMax(spec.layout().fragment_count());
  if (most == kIslandsMax) return;
  check.Require(spec.schedule().island_count_min() <= most,
                "schedule.island_count_min",
                absl::StrCat("is ", spec.schedule().island_count_min(),
                             ", and a run of ", spec.layout().fragment_count(),
                             " fragments takes at most ", most,
                             " islands: a server's plan of all rounds would "
                             "not fit in one message; choose fewer "
                             "fragments"));
}

}  // namespace

std::vector<FieldViolation> ValidateSpec(const v1::RunSpec& spec) {
  std::vector<FieldViolation> violations;
  Checker check(violations);
  CheckLayout(spec, check);
  CheckExternal(spec, violations);
  if (!IsExternal(spec.model())) {
    CheckModel(spec.model(), check);
    CheckInner(spec.inner(), check);
  }
  CheckOuter(spec.outer(), check);
  CheckSchedule(spec.schedule(), check);
  CheckLength(spec, check);
  CheckTiming(spec, check);
  CheckMergeCounts(spec, check);
  CheckData(spec, violations);
  CheckHistory(spec, check);
  CheckPlanSizes(spec, check);
  CheckExchange(spec, violations);
  ValidateStreaming(spec, violations);
  check.Require(v1::Durability_IsValid(spec.durability()), "durability",
                "must be MACHINE, PROCESS or ISLAND");
  if (spec.durability() == v1::DURABILITY_ISLAND) CheckLevelIsland(spec, check);
  check.InRange(spec.server_count(), 1, kServersMax, "server_count");
  check.InRange(spec.checkpoint_every_round_count(), 0, kCountMax,
                "checkpoint_every_round_count");
  check.InRange(spec.checkpoint().keep_count(), 0, kCheckpointsMax,
                "checkpoint.keep_count");
  check.Require(v1::GuardAction_IsValid(spec.guard().on_norm()),
                "guard.on_norm", "must be ALERT or PAUSE");
  // Unknown values are named above. An unknown field has no name here.
  check.Require(
      !violations.empty() || (RequiredFeatures(spec) & kUnknown) == 0, "",
      "has a value or a field that is newer than this coordinator: upgrade "
      "the coordinator, or leave it out");
  return violations;
}

}  // namespace atl::coordinator
