#include "coordinator/core/spec/validate_spec.h"

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/testing/run_simulation.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using Change = std::function<void(v1::RunSpec&)>;

// The fields of all violations, joined.
std::string Refused(const v1::RunSpec& spec) {
  std::vector<FieldViolation> violations;
  CheckExchange(spec, violations);
  std::string fields;
  for (const FieldViolation& violation : violations) {
    EXPECT_GT(violation.description.size(), 20u);
    fields += violation.field + " ";
  }
  return fields;
}

TEST(ValidateExchangeTest, TakesEveryCodecWithWhatItNeeds) {
  EXPECT_EQ(Refused({}), "");
  for (int codec = v1::CODEC_F32; codec <= v1::CODEC_TOP_K; ++codec) {
    for (const bool feedback : {false, true}) {
      v1::RunSpec spec = SimpleSpec();
      spec.mutable_exchange()->set_up(static_cast<v1::Codec>(codec));
      // Every codec down goes with every codec up.
      spec.mutable_exchange()->set_down(
          static_cast<v1::Codec>(v1::CODEC_TOP_K + 1 - codec));
      spec.mutable_exchange()->set_error_feedback(feedback);
      const bool sparse = codec >= v1::CODEC_TWO_BIT;
      const bool good = feedback ? codec != v1::CODEC_F32 : !sparse;
      EXPECT_EQ(Refused(spec), good ? "" : "spec.exchange.error_feedback ")
          << codec << " " << feedback;
      EXPECT_EQ(ValidateSpec(spec).empty(), good);
    }
  }
}

TEST(ValidateExchangeTest, NamesTheFieldOfEveryFault) {
  const std::vector<std::pair<std::string, Change>> faults = {
      {"spec.exchange.up ",
       [](auto& s) {
         s.mutable_exchange()->set_up(static_cast<v1::Codec>(8));
       }},
      {"spec.exchange.up ",
       [](auto& s) {
         s.mutable_exchange()->set_up(static_cast<v1::Codec>(-1));
       }},
      {"spec.exchange.down ",
       [](auto& s) {
         s.mutable_exchange()->set_down(static_cast<v1::Codec>(8));
       }},
      {"spec.exchange.error_feedback ",
       [](auto& s) { s.mutable_schedule()->set_sample_fraction(0.5); }},
      {"spec.exchange.error_feedback_decay ",
       [](auto& s) { s.mutable_exchange()->set_error_feedback_decay(1.5); }},
      {"spec.exchange.error_feedback_decay ",
       [](auto& s) { s.mutable_exchange()->set_error_feedback_decay(-0.1); }},
      {"spec.exchange.error_feedback_decay ",
       [](auto& s) {
         s.mutable_exchange()->set_error_feedback_decay(
             std::numeric_limits<double>::quiet_NaN());
       }},
      {"spec.exchange.error_feedback_decay ",
       [](auto& s) {
         s.mutable_exchange()->set_error_feedback(false);
         s.mutable_exchange()->set_error_feedback_decay(0.5);
       }},
      {"spec.outer.merge.rule ",
       [](auto& s) {
         s.mutable_exchange()->set_up(v1::CODEC_TOP_K);
         s.mutable_outer()->mutable_merge()->set_rule(
             v1::MERGE_RULE_KIND_MEDIAN);
       }},
      {"spec.outer.merge.rule ",
       [](auto& s) {
         s.mutable_exchange()->set_up(v1::CODEC_TOP_K);
         s.mutable_outer()->mutable_merge()->set_rule(
             v1::MERGE_RULE_KIND_TRIMMED_MEAN);
       }},
  };
  for (const auto& [fields, change] : faults) {
    v1::RunSpec spec = SimpleSpec();
    spec.mutable_exchange()->set_up(v1::CODEC_INT8);
    spec.mutable_exchange()->set_error_feedback(true);
    ASSERT_EQ(Refused(spec), "");
    change(spec);
    EXPECT_EQ(Refused(spec), fields);
  }
}

TEST(ValidateExchangeTest, ABufferIsExchangedExactlyAndInTime) {
  v1::RunSpec spec = SimpleSpec();
  spec.mutable_layout()->mutable_tensors(0)->set_tensor_class(
      v1::TENSOR_CLASS_BUFFER);
  EXPECT_EQ(Refused(spec), "");
  EXPECT_TRUE(ValidateSpec(spec).empty());
  spec.mutable_exchange()->set_up(v1::CODEC_BF16);
  EXPECT_EQ(Refused(spec), "spec.exchange.up ");
  spec.mutable_exchange()->set_down(v1::CODEC_BF16);
  EXPECT_EQ(Refused(spec), "spec.exchange.up spec.exchange.down ");
  spec.clear_exchange();
  spec.mutable_schedule()->set_max_staleness(1);
  EXPECT_EQ(Refused(spec), "spec.schedule.max_staleness ");
}

}  // namespace
}  // namespace atl::coordinator
