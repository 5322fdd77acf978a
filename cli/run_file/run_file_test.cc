#include "cli/run_file/run_file.h"

#include <cstdint>
#include <iostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/testing/mutator.h"
#include "cli/output/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kSmall[] = R"(
[model]
vocab_size = 256
hidden_size = 32
intermediate_size = 64
layer_count = 1
head_count = 2
sequence_length = 16
[schedule]
inner_step_count = 2
round_count = 3
island_count_min = 4
[data]
path = "text"
)";

constexpr char kExternal[] = R"(
[model]
architecture = "external"
tensors = "tensors.json"
[schedule]
inner_step_count = 2
round_count = 3
island_count_min = 4
)";


RunFileOptions Options() {
  RunFileOptions options;
  options.name = "a.toml";
  options.directory = "/home/me";
  options.default_run_id = "a";
  options.preset_names = "tiny";
  options.find_preset =
      [](absl::string_view name) -> std::optional<std::string> {
    if (name != "tiny") return std::nullopt;
    return std::string(kSmall);
  };
  return options;
}

RunFile Read(const std::string& text) {
  absl::StatusOr<RunFile> run = ParseRunFile(text, Options());
  EXPECT_TRUE(run.ok()) << run.status();
  return run.ok() ? *std::move(run) : RunFile();
}

std::string Fault(const std::string& text) {
  absl::StatusOr<RunFile> run = ParseRunFile(text, Options());
  EXPECT_FALSE(run.ok());
  if (run.ok()) return "";
  EXPECT_EQ(ToExitCode(run.status()), ExitCode::kInvalidConfig);
  EXPECT_EQ(GetReason(run.status()), "RUN_FILE_INVALID");
  return std::string(run.status().message());
}

TEST(RunFileTest, ReadsEveryKindOfValue) {
  const RunFile run = Read(absl::StrCat(R"(
run_id = "mine"
durability = "process"
server_count = 3
[init]
seed = 7
[history]
keep_round_count = 500
[inner]
optimizer = "sgd"
learning_rate = 1
reset_each_round = true
)",
                                        kSmall, R"(
[layout]
fragment_count = 2
)"));
  EXPECT_EQ(run.run_id, "mine");
  EXPECT_EQ(run.spec.history().keep_round_count(), 500);
  EXPECT_EQ(run.spec.durability(), v1::DURABILITY_PROCESS);
  EXPECT_EQ(run.spec.server_count(), 3);
  EXPECT_EQ(run.spec.init().seed(), 7);
  EXPECT_EQ(run.spec.inner().optimizer(), v1::INNER_OPTIMIZER_KIND_SGD);
  EXPECT_EQ(run.spec.inner().learning_rate(), 1.0);
  EXPECT_TRUE(run.spec.inner().reset_each_round());
  EXPECT_EQ(run.spec.layout().fragment_count(), 2);
}

TEST(RunFileTest, ReadsAStreamingSchedule) {
  const RunFile run = Read(absl::StrCat(kSmall, R"(
[layout]
fragment_count = 2
fragment_pattern = "balanced"
)",
                                        "[outer]\nmomentum = 0.9\n"));
  EXPECT_EQ(run.fragment_pattern, "balanced");
  EXPECT_THAT(Fault(absl::StrCat(
                  kSmall, "[layout]\nfragment_pattern = \"random\"\n")),
              HasSubstr("must be one of \"strided\", \"balanced\""));
  const RunFile streaming = Read(
      "preset = \"tiny\"\n[schedule]\nfragment_schedule = \"staggered\"\n"
      "overlap_step_count = 3\nblend = 0.5\neager = false\n");
  EXPECT_EQ(streaming.fragment_pattern, "strided");
  const v1::ScheduleSpec& schedule = streaming.spec.schedule();
  EXPECT_EQ(schedule.fragment_schedule(), v1::FRAGMENT_SCHEDULE_STAGGERED);
  EXPECT_EQ(schedule.overlap_step_count(), 3);
  EXPECT_EQ(schedule.blend(), 0.5);
  EXPECT_THAT(Fault("preset = \"tiny\"\n[schedule]\nblend = 1.5\n"),
              HasSubstr("must be at most 1"));
}

TEST(RunFileTest, FragmentsAreCountedOrMadeOfLayers) {
  const RunFile neither = Read(kSmall);
  EXPECT_EQ(neither.layers_a_fragment, 0);
  EXPECT_EQ(neither.spec.layout().fragment_count(), 1);
  const RunFile layers =
      Read(absl::StrCat(kSmall, "[layout]\nlayers_a_fragment = 3\n"));
  EXPECT_EQ(layers.layers_a_fragment, 3);
  EXPECT_EQ(layers.spec.layout().fragment_count(), 0);
  const RunFile both = Read(absl::StrCat(
      kSmall, "[layout]\nlayers_a_fragment = 1\nfragment_count = 24\n"));
  EXPECT_EQ(both.layers_a_fragment, 1);
  EXPECT_EQ(both.spec.layout().fragment_count(), 24);
  for (const char* value : {"0", "-3", "1.5", "\"three\""}) {
    EXPECT_THAT(Fault(absl::StrCat(kSmall, "[layout]\nlayers_a_fragment = ",
                                   value, "\n")),
                HasSubstr("'layout.layers_a_fragment' must be a whole number"));
  }
}

TEST(RunFileTest, AFilesFragmentsAreInPlaceOfItsPresets) {
  RunFileOptions options;
  options.preset_names = "counted, layered";
  options.find_preset = [](absl::string_view name) {
    return absl::StrCat(kSmall, "[layout]\n",
                        name == "counted" ? "fragment_count = 2\n"
                                          : "layers_a_fragment = 3\n");
  };
  options.default_run_id = "run";
  const auto read = [&](absl::string_view text) {
    absl::StatusOr<RunFile> run = ParseRunFile(text, options);
    EXPECT_TRUE(run.ok()) << run.status();
    return run.ok() ? *std::move(run) : RunFile();
  };
  const RunFile counted =
      read("preset = \"layered\"\n[layout]\nfragment_count = 2\n");
  EXPECT_EQ(counted.layers_a_fragment, 0);
  EXPECT_EQ(counted.spec.layout().fragment_count(), 2);
  const RunFile layered =
      read("preset = \"counted\"\n[layout]\nlayers_a_fragment = 3\n");
  EXPECT_EQ(layered.layers_a_fragment, 3);
  EXPECT_EQ(layered.spec.layout().fragment_count(), 0);
}

TEST(RunFileTest, AMergeRuleIsATableOfItsOwn) {
  const RunFile run = Read(
      "preset = \"tiny\"\n[outer.merge]\nrule = \"rda\"\n"
      "mean_tensor_classes = [\"embedding\", \"vector\"]\n");
  const v1::MergeSpec& merge = run.spec.outer().merge();
  EXPECT_EQ(merge.rule(), v1::MERGE_RULE_KIND_RDA);
  ASSERT_EQ(merge.mean_tensor_classes_size(), 2);
  EXPECT_EQ(merge.mean_tensor_classes(0), v1::TENSOR_CLASS_EMBEDDING);
  EXPECT_EQ(merge.mean_tensor_classes(1), v1::TENSOR_CLASS_VECTOR);
  EXPECT_THAT(Fault("preset = \"tiny\"\n[outer.merge]\nrule = \"crum\"\n"),
              HasSubstr("did you mean \"krum\"?"));
  EXPECT_THAT(Fault("preset = \"tiny\"\n[outer.merge]\n"
                    "mean_tensor_classes = \"embedding\"\n"),
              HasSubstr("must be a list"));
  EXPECT_THAT(Fault("preset = \"tiny\"\n[outer.merge]\nrule = \"rda\"\n"
                    "mean_tensor_classes = [\"vektor\"]\n"),
              HasSubstr("did you mean \"vector\"?"));
}

TEST(RunFileTest, AnExchangeIsATableOfItsOwn) {
  const RunFile run = Read(
      "preset = \"tiny\"\n[exchange]\nup = \"top_k\"\n"
      "error_feedback = true\nerror_feedback_decay = 0.95\nseed = 3\n");
  EXPECT_EQ(run.spec.exchange().up(), v1::CODEC_TOP_K);
  EXPECT_TRUE(run.spec.exchange().error_feedback());
  EXPECT_EQ(run.spec.exchange().error_feedback_decay(), 0.95);
  EXPECT_EQ(run.spec.exchange().seed(), 3);
  EXPECT_THAT(Fault("preset = \"tiny\"\n[exchange]\nup = \"int9\"\n"),
              HasSubstr("did you mean \"int8\"?"));
  EXPECT_THAT(Fault("preset = \"tiny\"\n[exchange]\n"
                    "error_feedback_decay = 1.5\n"),
              HasSubstr("must be at most 1"));
}

TEST(RunFileTest, CheckpointsAndTheGuardAreTables) {
  const RunFile run = Read(absl::StrCat(
      kSmall, "[checkpoint]\nevery_round_count = 10\nkeep_count = 3\n",
      "[guard]\non_norm = \"pause\"\n"));
  EXPECT_EQ(run.spec.checkpoint_every_round_count(), 10);
  EXPECT_EQ(run.spec.checkpoint().keep_count(), 3);
  EXPECT_EQ(run.spec.guard().on_norm(), v1::GUARD_ACTION_PAUSE);
  EXPECT_THAT(Fault(absl::StrCat(kSmall, "[guard]\non_norm = \"stop\"\n")),
              HasSubstr("'guard.on_norm' must be one of \"alert\", \"pause\""));
  EXPECT_THAT(Fault(absl::StrCat(kSmall, "[checkpoint]\nkeep_count = 33\n")),
              HasSubstr("'checkpoint.keep_count' must be at most 32"));
  EXPECT_THAT(
      Fault(absl::StrCat(kSmall, "[checkpoint]\nevery_round_count = -1\n")),
      HasSubstr("'checkpoint.every_round_count' must be at least 0"));
}

TEST(RunFileTest, TheOlderNameOfTheCheckpointsKeyIsReadToo) {
  EXPECT_EQ(Read(absl::StrCat("checkpoint_every_round_count = 7\n", kSmall))
                .spec.checkpoint_every_round_count(),
            7);
  const std::string both =
      Fault(absl::StrCat("checkpoint_every_round_count = 7\n", kSmall,
                         "[checkpoint]\nevery_round_count = 7\n"));
  EXPECT_THAT(both, HasSubstr("are two names of one value"));
  EXPECT_THAT(both, HasSubstr("a.toml:"));
  // A file's own key replaces its preset's, by either name.
  RunFileOptions options = Options();
  options.find_preset =
      [](absl::string_view name) -> std::optional<std::string> {
    return absl::StrCat("checkpoint_every_round_count = 7\n", kSmall);
  };
  const absl::StatusOr<RunFile> own = ParseRunFile(
      "preset = \"tiny\"\n[checkpoint]\nevery_round_count = 2\n", options);
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(own->spec.checkpoint_every_round_count(), 2);
}

TEST(RunFileTest, DurationsAreText) {
  const std::string text = std::string(kSmall);
  const RunFile run = Read(
      absl::StrCat("preset = \"tiny\"\n[schedule]\ngrace_window = \"1m30s\"\n",
                   "round_deadline = \"250ms\"\n"));
  EXPECT_EQ(run.spec.schedule().grace_window().seconds(), 90);
  EXPECT_EQ(run.spec.schedule().round_deadline().nanos(), 250000000);
  EXPECT_THAT(
      Fault("preset = \"tiny\"\n[schedule]\ngrace_window = 30\n"),
      HasSubstr("a.toml:3: 'schedule.grace_window' must be a duration"));
}

TEST(RunFileTest, AFilesValuesBeatItsPresetsAndThoseTheDefaults) {
  const RunFile run = Read("preset = \"tiny\"\n[schedule]\nround_count = 9\n");
  EXPECT_EQ(run.spec.schedule().round_count(), 9);
  EXPECT_EQ(run.spec.schedule().inner_step_count(), 2);
  EXPECT_EQ(run.spec.inner().optimizer(), v1::INNER_OPTIMIZER_KIND_ADAMW);
}

TEST(RunFileTest, FillsInWhatFollowsFromOtherValues) {
  const RunFile run = Read(kSmall);
  EXPECT_EQ(run.run_id, "a");
  EXPECT_EQ(run.spec.model().kv_head_count(), 2);
  EXPECT_EQ(run.spec.schedule().min_quorum(), 4);
  EXPECT_EQ(run.spec.data().data_shard_count(), 4);
  EXPECT_FALSE(run.has_fingerprint);
}

TEST(RunFileTest, DefaultsHoldForOptimizersThatReadThem) {
  EXPECT_EQ(Read(kSmall).spec.outer().momentum(), 0.9);
  EXPECT_EQ(Read(kSmall).spec.inner().weight_decay(), 0.1);
  const RunFile run = Read(
      "preset = \"tiny\"\n[inner]\noptimizer = \"sgd\"\n"
      "[outer]\noptimizer = \"fedavg\"\n");
  EXPECT_EQ(run.spec.outer().momentum(), 0);
  EXPECT_EQ(run.spec.inner().weight_decay(), 0);
  // An explicit value stays; the coordinator refuses it.
  EXPECT_EQ(Read("preset = \"tiny\"\n[inner]\noptimizer = \"sgd\"\n"
                 "weight_decay = 0.5\n")
                .spec.inner()
                .weight_decay(),
            0.5);
}

TEST(RunFileTest, AnAsyncRunMergesOneContributionAtATime) {
  const std::string async = "preset = \"tiny\"\n[schedule]\ntiming = "
      "\"elastic\"\nmax_staleness = 4\n[outer]\noptimizer = "
      "\"delayed_nesterov\"\nbuffer_count = 4\n";
  const v1::RunSpec spec = Read(async).spec;
  EXPECT_EQ(spec.outer().weighting(), v1::WEIGHTING_UNIFORM);
  EXPECT_EQ(spec.outer().momentum(), 0.9);
  EXPECT_EQ(spec.schedule().min_quorum(), 1);
  // An explicit value stays; the coordinator refuses it.
  EXPECT_EQ(Read(async + "weighting = \"tokens\"\n").spec.outer().weighting(),
            v1::WEIGHTING_TOKENS);
}

TEST(RunFileTest, DataPathsAreRelativeToTheFile) {
  EXPECT_EQ(Read(kSmall).spec.data().path(), "/home/me/text");
  EXPECT_EQ(
      Read("preset = \"tiny\"\n[data]\npath = \"/abs\"\n").spec.data().path(),
      "/abs");
}

TEST(RunFileTest, AUrlReplacesThePresetsData) {
  const RunFile run = Read(
      "preset = \"tiny\"\n[data]\nurl = \"s3://bucket/manifest.json\"\n"
      "order = \"by_file\"\n");
  EXPECT_EQ(run.spec.data().url(), "s3://bucket/manifest.json");
  EXPECT_EQ(run.spec.data().order(), v1::DATA_ORDER_BY_FILE);
  EXPECT_EQ(run.spec.data().path(), "");
  EXPECT_EQ(run.spec.data().format(), v1::DATA_FORMAT_UNSPECIFIED);
  EXPECT_EQ(run.spec.data().validation_fraction(), 0);
  EXPECT_EQ(run.spec.data().data_shard_count(), 4);
  EXPECT_FALSE(run.has_fingerprint);
}

TEST(RunFileTest, AUrlNeedsTheOrderByFile) {
  const std::string url =
      "preset = \"tiny\"\n[data]\nurl = \"s3://bucket/manifest.json\"\n";
  EXPECT_THAT(Fault(url), HasSubstr("'data.order' must be \"by_file\""));
  EXPECT_THAT(Fault(url + "order = \"shuffled\"\n"),
              HasSubstr("a.toml:4: 'data.order' must be one of \"by_file\""));
  EXPECT_THAT(Fault(url + "order = \"by_file\"\npath = \"text\"\n"),
              HasSubstr("exclude each other"));
}

TEST(RunFileTest, AnEmptyFingerprintSaysThatDataIsLocal) {
  const RunFile run = Read("preset = \"tiny\"\n[data]\nfingerprint = \"\"\n");
  EXPECT_TRUE(run.has_fingerprint);
  EXPECT_EQ(run.spec.data().fingerprint(), "");
}

TEST(RunFileTest, AnUnknownKeyIsToldWithItsLineAndTheNearestName) {
  EXPECT_THAT(Fault("preset = \"tiny\"\n[inner]\nlearning_rte = 1\n"),
              HasSubstr("a.toml:3: unknown key 'inner.learning_rte'; did you "
                        "mean 'inner.learning_rate'?"));
  EXPECT_THAT(Fault("presett = \"tiny\"\n"),
              HasSubstr("a.toml:1: unknown key 'presett'; did you mean "
                        "'preset'?"));
  EXPECT_THAT(Fault("preset = \"tiny\"\n\n[shedule]\nround_count = 1\n"),
              HasSubstr("a.toml:3: unknown key 'shedule'; did you mean "
                        "'schedule'?"));
}

TEST(RunFileTest, TellsEveryFaultAtOnce) {
  const std::string fault = Fault(
      "preset = \"tiny\"\n[inner]\nfoo = 1\nbeta1 = 2\noptimizer = \"adam\"\n");
  EXPECT_THAT(fault, HasSubstr("a.toml:3: unknown key 'inner.foo'"));
  EXPECT_THAT(fault, HasSubstr("a.toml:4: 'inner.beta1' must be less than 1"));
  EXPECT_THAT(fault, HasSubstr("a.toml:5: 'inner.optimizer' must be one of"));
  EXPECT_THAT(fault, HasSubstr("did you mean \"adamw\"?"));
}

TEST(RunFileTest, RefusesWrongTypes) {
  const std::string fault = Fault(
      "preset = \"tiny\"\nserver_count = \"two\"\nlayout = 3\n[data]\n"
      "path = 1\n[init]\nmodel = 1\nseed = -1\n[schedule]\n"
      "round_count = 2.5\n[outer]\nlearning_rate = \"big\"\n"
      "[inner]\nreset_each_round = 1\n");
  EXPECT_THAT(fault, HasSubstr(":2: 'server_count' must be a whole number"));
  EXPECT_THAT(fault, HasSubstr(":3: 'layout' is a table"));
  EXPECT_THAT(fault, HasSubstr(":5: 'data.path' must be a string"));
  EXPECT_THAT(fault, HasSubstr(":7: 'init.model' must be a string"));
  EXPECT_THAT(fault, HasSubstr(":8: 'init.seed' must not be negative"));
  EXPECT_THAT(fault, HasSubstr(":10: 'schedule.round_count' must be a whole"));
  EXPECT_THAT(fault, HasSubstr(":12: 'outer.learning_rate' must be a number"));
  EXPECT_THAT(fault, HasSubstr(":14: 'inner.reset_each_round' must be true or"));
}

TEST(RunFileTest, RefusesNumbersOutOfRange) {
  EXPECT_THAT(Fault("preset = \"tiny\"\nserver_count = 0\n"),
              HasSubstr(":2: 'server_count' must be at least 1, is 0"));
  EXPECT_THAT(Fault("preset = \"tiny\"\n[inner]\nlearning_rate = inf\n"),
              HasSubstr(":3: 'inner.learning_rate' must be finite"));
  EXPECT_THAT(Fault("preset = \"tiny\"\n[model]\nvocab_size = 99999999999\n"),
              HasSubstr(":3: 'model.vocab_size' must be at most"));
  EXPECT_THAT(Fault("preset = \"tiny\"\n[history]\nkeep_round_count = -1\n"),
              HasSubstr(":3: 'history.keep_round_count' must be at least 0"));
}

TEST(RunFileTest, RefusesWhatIsNotToml) {
  EXPECT_THAT(Fault("[model\n"), HasSubstr("a.toml:1: "));
}

TEST(RunFileTest, AnyTextIsReadOrRefused) {
  const uint64_t seed = std::random_device()();
  std::cout << "seed " << seed << std::endl;
  Mutator any(seed);
  const std::vector<std::string> seeds = {
      kSmall, "preset = \"tiny\"\n[outer]\noptimizer = \"nesterov\"\n",
      "preset = \"tiny\"\n[schedule]\ngrace_window = \"2s\"\n"
      "[outer.merge]\nrule = \"rda\"\n[layout]\nlayers_a_fragment = 2\n",
      "[init]\nmodel = \"dir\"\n[data]\npath = \"t\"\n"
      "[[layout.tensors]]\n", kExternal};
  int read_count = 0;
  for (int i = 0; i < 20000; ++i) {
    read_count += ParseRunFile(any.Changed(seeds), Options()).ok() ? 1 : 0;
  }
  EXPECT_GT(read_count, 100);
}

TEST(RunFileTest, NamesThePresetsThatThereAre) {
  EXPECT_THAT(Fault("\npreset = \"huge\"\n"),
              HasSubstr("a.toml:2: there is no preset 'huge'; presets are "
                        "tiny"));
}

TEST(RunFileTest, TensorsFollowFromTheModel) {
  EXPECT_THAT(Fault("preset = \"tiny\"\n[[layout.tensors]]\nname = \"x\"\n"),
              HasSubstr("'layout.tensors' follows from [model]"));
}

TEST(RunFileTest, AModelToImportStandsForTheKeysOfModel) {
  const RunFile run = Read(
      "[init]\nmodel = \"export\"\n[model]\nsequence_length = 8\n"
      "[schedule]\ninner_step_count = 2\nround_count = 3\n"
      "[data]\npath = \"text\"\n");
  EXPECT_EQ(run.model_directory, "/home/me/export");
  EXPECT_THAT(run.model_keys, testing::ElementsAre("sequence_length"));
  const RunFile changed = Read("preset = \"tiny\"\n[init]\nmodel = \"/m\"\n");
  EXPECT_EQ(changed.model_directory, "/m");
  EXPECT_THAT(changed.model_keys, testing::IsEmpty());
  EXPECT_EQ(Read(kSmall).model_directory, "");
}

TEST(RunFileTest, AnExternalModelNeedsOnlyTheListOfItsTensors) {
  const RunFile run = Read(kExternal);
  EXPECT_EQ(run.tensors_path, "/home/me/tensors.json");
  EXPECT_THAT(run.model_keys, testing::ElementsAre("architecture"));
  EXPECT_EQ(run.spec.model().architecture(), "external");
  EXPECT_EQ(run.spec.model().sequence_length(), 1 << 20);
  EXPECT_EQ(run.spec.inner().batch_size(), 1);
  EXPECT_EQ(run.spec.inner().learning_rate(), 0);
  EXPECT_EQ(run.spec.data().format(), v1::DATA_FORMAT_EXTERNAL);
  EXPECT_EQ(run.spec.data().data_shard_count(), 4);
  EXPECT_EQ(run.spec.layout().fragment_count(), 0);
  EXPECT_FALSE(run.has_fingerprint);
  RunFileOptions options = Options();
  options.tensors_path = "/other.json";
  EXPECT_EQ(ParseRunFile(kExternal, options)->tensors_path, "/other.json");
}

TEST(RunFileTest, AnExternalModelMayLimitTheTokensOfAStep) {
  const RunFile run = Read(
      "[model]\narchitecture = \"external\"\ntensors = \"/t\"\n"
      "sequence_length = 128\n[inner]\nbatch_size = 32\n"
      "warmup_step_count = 10\n[data]\nformat = \"external\"\n"
      "data_shard_count = 9\n[layout]\nfragment_count = 2\n"
      "[schedule]\ninner_step_count = 2\nround_count = 3\n");
  EXPECT_EQ(run.spec.model().sequence_length(), 128);
  EXPECT_EQ(run.spec.inner().batch_size(), 32);
  EXPECT_EQ(run.spec.inner().warmup_step_count(), 10);
  EXPECT_EQ(run.spec.data().data_shard_count(), 9);
  EXPECT_EQ(run.spec.layout().fragment_count(), 2);
}

TEST(RunFileTest, AnExternalModelMayWeighByAnotherUnitThanTokens) {
  const auto file = [](const std::string& unit, const std::string& inner) {
    return absl::StrCat("weight_unit = \"", unit, "\"\n[inner]\n", inner,
                        kExternal);
  };
  EXPECT_EQ(Read(kExternal).spec.weight_unit(), v1::WEIGHT_UNIT_UNSPECIFIED);
  const RunFile steps = Read(file("steps", ""));
  EXPECT_EQ(steps.spec.weight_unit(), v1::WEIGHT_UNIT_STEPS);
  EXPECT_EQ(steps.spec.model().sequence_length(), 1);
  const RunFile samples = Read(file("samples", "batch_size = 32\n"));
  EXPECT_EQ(samples.spec.weight_unit(), v1::WEIGHT_UNIT_SAMPLES);
  EXPECT_EQ(samples.spec.inner().batch_size(), 32);
  EXPECT_THAT(Fault(file("samples", "")),
              HasSubstr("'inner.batch_size' is missing"));
  EXPECT_THAT(Fault("weight_unit = \"steps\"\n[model]\n"
                    "architecture = \"external\"\ntensors = \"/t\"\n"
                    "sequence_length = 128\n"),
              HasSubstr("'model.sequence_length' is not read"));
  EXPECT_THAT(Fault(file("words", "")),
              HasSubstr("\"tokens\", \"samples\", \"steps\""));
}

TEST(RunFileTest, AnExternalModelDropsWhatItsPresetSaysOfAnother) {
  const RunFile run = Read(
      "preset = \"tiny\"\n[model]\narchitecture = \"external\"\n"
      "tensors = \"t.json\"\n[data]\ndata_shard_count = 5\n");
  EXPECT_EQ(run.spec.model().vocab_size(), 0);
  EXPECT_EQ(run.spec.model().sequence_length(), 1 << 20);
  EXPECT_EQ(run.spec.inner().optimizer(),
            v1::INNER_OPTIMIZER_KIND_UNSPECIFIED);
  EXPECT_EQ(run.spec.inner().batch_size(), 1);
  EXPECT_EQ(run.spec.data().path(), "");
  EXPECT_EQ(run.spec.data().data_shard_count(), 5);
  EXPECT_EQ(run.spec.schedule().round_count(), 3);
  EXPECT_EQ(run.spec.outer().momentum(), 0.9);
}

TEST(RunFileTest, SaysWhatAnExternalModelDoesNotRead) {
  const std::string fault = Fault(
      "preset = \"tiny\"\n[model]\narchitecture = \"external\"\n"
      "vocab_size = 256\n[inner]\nlearning_rate = 0.1\nbatch_size = 2\n"
      "[data]\nformat = \"bytes\"\npath = \"text\"\n"
      "[layout]\nlayers_a_fragment = 3\n");
  EXPECT_THAT(fault, HasSubstr("a.toml:4: 'model.vocab_size' is not read"));
  EXPECT_THAT(fault, HasSubstr("a.toml:6: 'inner.learning_rate' is not read"));
  EXPECT_THAT(fault, HasSubstr("a.toml:9: 'data.format' must be"));
  EXPECT_THAT(fault, HasSubstr("a.toml:10: 'data.path' is not read"));
  EXPECT_THAT(fault, HasSubstr("a.toml:12: 'layout.layers_a_fragment'"));
  EXPECT_THAT(fault, Not(HasSubstr("batch_size")));
}

TEST(RunFileTest, AListOfTensorsIsForExternalModelsAndTheyNeedOne) {
  EXPECT_THAT(Fault("preset = \"tiny\"\n[model]\narchitecture = "
                    "\"external\"\n"),
              HasSubstr("'model.tensors' is missing"));
  EXPECT_THAT(Fault("preset = \"tiny\"\n[model]\ntensors = \"t.json\"\n"),
              HasSubstr("'model.tensors' (--tensors) is only for"));
  EXPECT_THAT(Fault("preset = \"tiny\"\n[data]\nformat = \"external\"\n"),
              HasSubstr("'data.format' \"external\" is only for"));
  EXPECT_THAT(Fault("preset = \"tiny\"\n[model]\ntensors = 3\n"),
              HasSubstr("a.toml:3: 'model.tensors' must be a string"));
  EXPECT_THAT(Fault("preset = \"tiny\"\n[model]\ntensor = \"t\"\n"),
              HasSubstr("did you mean 'model.tensors'?"));
}

TEST(RunFileTest, WhatFollowsFromTheImportedModelIsNotGiven) {
  const std::string fault = Fault(
      "preset = \"tiny\"\n[init]\nimport = true\n"
      "fragment_digests = [\"00\"]\nmodell = \"x\"\n");
  EXPECT_THAT(fault, HasSubstr(":3: 'init.import' follows from init.model, a "
                               "model's directory; leave it out"));
  EXPECT_THAT(fault, HasSubstr(":4: 'init.fragment_digests' follows from"));
  EXPECT_THAT(fault, HasSubstr(":5: unknown key 'init.modell'; did you mean "
                               "'init.model'?"));
}

TEST(RunFileTest, SaysWhatIsMissing) {
  const std::string fault = Fault("server_count = 1\n");
  EXPECT_THAT(fault, HasSubstr("'model.vocab_size' is missing"));
  EXPECT_THAT(fault, HasSubstr("'schedule.round_count' is missing"));
  EXPECT_THAT(fault, HasSubstr("'data.path' is missing"));
}

TEST(RunFileTest, RefusesAnIdThatIsNoId) {
  EXPECT_THAT(Fault("preset = \"tiny\"\nrun_id = \"../x\"\n"),
              HasSubstr("run_id"));
}

TEST(RunFileTest, BoundsItsMessage) {
  std::string text = "preset = \"tiny\"\n";
  for (int i = 0; i < 100; ++i) absl::StrAppend(&text, "k", i, " = 1\n");
  const std::string fault = Fault(text);
  EXPECT_THAT(fault, HasSubstr("... and 80 more"));
  EXPECT_THAT(fault, Not(HasSubstr("k50")));
}

}  // namespace
}  // namespace atl::cli
