#include "coordinator/core/spec/validate_spec.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/testing/run_simulation.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Change = std::function<void(v1::RunSpec&)>;

v1::RunSpec ExternalSpec(v1::RunSpec spec = SimpleSpec()) {
  spec.mutable_model()->Clear();
  spec.mutable_model()->set_architecture("external");
  spec.mutable_model()->set_sequence_length(1 << 20);
  spec.mutable_inner()->Clear();
  spec.mutable_inner()->set_batch_size(1);
  spec.mutable_inner()->set_warmup_step_count(100);
  spec.mutable_data()->Clear();
  spec.mutable_data()->set_format(v1::DATA_FORMAT_EXTERNAL);
  spec.mutable_data()->set_data_shard_count(1);
  spec.mutable_evaluation()->set_every_round_count(1);
  return spec;
}

// The fields that ValidateSpec names.
std::vector<std::string> Refused(const v1::RunSpec& spec) {
  std::vector<std::string> fields;
  for (const FieldViolation& violation : ValidateSpec(spec)) {
    EXPECT_GT(violation.description.size(), 8u);
    fields.push_back(violation.field);
  }
  return fields;
}

TEST(ValidateExternalTest, TakesAModelThatOnlyItsTrainerKnows) {
  EXPECT_THAT(Refused(ExternalSpec()), IsEmpty());
  EXPECT_THAT(Refused(ExternalSpec(ElasticSpec(3))), IsEmpty());
  EXPECT_THAT(Refused(ExternalSpec(AsyncSpec())), IsEmpty());
  v1::RunSpec imported = ExternalSpec();
  imported.mutable_init()->set_import(true);
  imported.mutable_init()->add_fragment_digests(std::string(32, 'a'));
  EXPECT_THAT(Refused(imported), IsEmpty());
}

TEST(ValidateExternalTest, OnlyATrainerOfItsOwnCountsAnotherUnitThanTokens) {
  for (const v1::WeightUnit unit :
       {v1::WEIGHT_UNIT_TOKENS, v1::WEIGHT_UNIT_SAMPLES,
        v1::WEIGHT_UNIT_STEPS}) {
    v1::RunSpec spec = ExternalSpec();
    spec.set_weight_unit(unit);
    EXPECT_THAT(Refused(spec), IsEmpty());
    spec = SimpleSpec();
    spec.set_weight_unit(unit);
    if (unit == v1::WEIGHT_UNIT_TOKENS) {
      EXPECT_THAT(Refused(spec), IsEmpty());
    } else {
      EXPECT_THAT(Refused(spec), ElementsAre("spec.weight_unit"));
    }
  }
}

TEST(ValidateExternalTest, TakesOtherModelsAsBefore) {
  std::vector<FieldViolation> violations;
  CheckExternal(SimpleSpec(), violations);
  EXPECT_TRUE(violations.empty());
}

TEST(ValidateExternalTest, NamesTheFieldOfEveryFault) {
  const std::vector<std::pair<std::string, Change>> faults = {
      {"spec.model.vocab_size",
       [](auto& s) { s.mutable_model()->set_vocab_size(256); }},
      {"spec.model.tie_embeddings",
       [](auto& s) { s.mutable_model()->set_tie_embeddings(true); }},
      {"spec.model.rope_theta",
       [](auto& s) { s.mutable_model()->set_rope_theta(1e4); }},
      {"spec.model.sequence_length",
       [](auto& s) { s.mutable_model()->set_sequence_length(0); }},
      {"spec.model.sequence_length",
       [](auto& s) { s.mutable_model()->set_sequence_length((1 << 24) + 1); }},
      {"spec.inner.optimizer",
       [](auto& s) {
         s.mutable_inner()->set_optimizer(v1::INNER_OPTIMIZER_KIND_SGD);
       }},
      {"spec.inner.learning_rate",
       [](auto& s) { s.mutable_inner()->set_learning_rate(0.1); }},
      {"spec.inner.reset_each_round",
       [](auto& s) { s.mutable_inner()->set_reset_each_round(true); }},
      {"spec.inner.batch_size",
       [](auto& s) { s.mutable_inner()->set_batch_size(0); }},
      {"spec.inner.warmup_step_count",
       [](auto& s) { s.mutable_inner()->set_warmup_step_count(-1); }},
      {"spec.outer.weighting",
       [](auto& s) {
         s.mutable_outer()->set_weighting(v1::WEIGHTING_SAMPLES);
       }},
      {"spec.data.path", [](auto& s) { s.mutable_data()->set_path("text"); }},
      {"spec.data.fingerprint",
       [](auto& s) {
         s.mutable_data()->set_fingerprint(std::string(64, 'a'));
       }},
      {"spec.data.validation_fraction",
       [](auto& s) { s.mutable_data()->set_validation_fraction(0.1); }},
      {"spec.data.data_shard_count",
       [](auto& s) { s.mutable_data()->set_data_shard_count(0); }},
      {"spec.evaluation.every_round_count",
       [](auto& s) { s.mutable_evaluation()->set_every_round_count(-1); }},
      {"spec.evaluation.batch_count",
       [](auto& s) { s.mutable_evaluation()->set_batch_count(-1); }},
  };
  for (const auto& [field, change] : faults) {
    v1::RunSpec spec = ExternalSpec();
    change(spec);
    EXPECT_THAT(Refused(spec), Contains(field));
  }
}

TEST(ValidateExternalTest, ExternalModelsAndExternalDataComeTogether) {
  v1::RunSpec spec = ExternalSpec();
  spec.mutable_data()->set_format(v1::DATA_FORMAT_BYTES);
  EXPECT_THAT(Refused(spec), Contains("spec.data.format"));
  spec = SimpleSpec();
  spec.mutable_data()->set_format(v1::DATA_FORMAT_EXTERNAL);
  ASSERT_THAT(Refused(spec), ElementsAre("spec.data.format"));
  EXPECT_THAT(ValidateSpec(spec)[0].description,
              HasSubstr("choose BYTES, LLMC or UINT16"));
}

TEST(ValidateExternalTest, ABudgetIsAtLeastTheTokensOfOneStep) {
  v1::RunSpec spec = ExternalSpec();
  spec.mutable_model()->set_sequence_length(10);
  spec.mutable_inner()->set_batch_size(2);
  spec.mutable_schedule()->set_token_count(19);
  EXPECT_THAT(Refused(spec), ElementsAre("spec.schedule.token_count"));
  spec.mutable_schedule()->set_token_count(20);
  EXPECT_THAT(Refused(spec), IsEmpty());
}

}  // namespace
}  // namespace atl::coordinator
