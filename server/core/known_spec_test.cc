#include "server/core/known_spec.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/status/refusal.h"
#include "gtest/gtest.h"

namespace atl::server {
namespace {

TEST(KnownSpecTest, WhatIsNotSetIsKnown) {
  EXPECT_TRUE(CheckKnownSpec({}, "1.2").ok());
}

TEST(KnownSpecTest, AnUnknownNumberIsRefusedByItsName) {
  const std::vector<std::pair<std::string, std::function<void(v1::RunSpec&)>>>
      changes = {
          {"UNKNOWN_MERGE_RULE",
           [](v1::RunSpec& spec) {
             spec.mutable_outer()->mutable_merge()->set_rule(
                 static_cast<v1::MergeRuleKind>(99));
           }},
          {"UNKNOWN_OUTER_OPTIMIZER",
           [](v1::RunSpec& spec) {
             spec.mutable_outer()->set_optimizer(
                 static_cast<v1::OuterOptimizerKind>(99));
           }},
          {"UNKNOWN_CODEC",
           [](v1::RunSpec& spec) {
             spec.mutable_exchange()->set_up(static_cast<v1::Codec>(99));
           }},
          {"UNKNOWN_CODEC",
           [](v1::RunSpec& spec) {
             spec.mutable_exchange()->set_down(static_cast<v1::Codec>(99));
           }},
          {"UNKNOWN_DURABILITY",
           [](v1::RunSpec& spec) {
             spec.set_durability(static_cast<v1::Durability>(99));
           }},
      };
  for (const auto& [reason, change] : changes) {
    v1::RunSpec spec;
    change(spec);
    const absl::Status refused = CheckKnownSpec(spec, "1.2");
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
    ASSERT_TRUE(GetReason(refused).has_value()) << refused;
    EXPECT_EQ(GetReason(refused)->reason, reason);
    EXPECT_NE(refused.message().find("99"), std::string::npos) << refused;
    EXPECT_NE(refused.message().find("1.2"), std::string::npos) << refused;
  }
}

TEST(KnownSpecTest, SoIsAFieldThatOnlyANewerProgramHas) {
  v1::RunSpec spec;
  spec.GetReflection()->MutableUnknownFields(&spec)->AddVarint(9999, 1);
  const absl::Status refused = CheckKnownSpec(spec, "1.2");
  ASSERT_TRUE(GetReason(refused).has_value()) << refused;
  EXPECT_EQ(GetReason(refused)->reason, "UNKNOWN_FEATURES");
}

}  // namespace
}  // namespace atl::server
