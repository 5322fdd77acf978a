#include "server/core/faults.h"

#include <string>

#include "absl/status/status.h"
#include "base/status/refusal.h"
#include "gtest/gtest.h"

namespace atl::server {
namespace {

TEST(FaultsTest, TheTextHasTheCodeAndWhatDiffers) {
  EXPECT_EQ(ToText(MakeFault("DATA_LOSS", "", "3.seg is missing")),
            "DATA_LOSS: 3.seg is missing");
  EXPECT_EQ(ToText(MakeFault("PLAN_BEHIND", "commit 7", "commit 5")),
            "PLAN_BEHIND: expected commit 7, found commit 5");
}

TEST(FaultsTest, AStatusIsAFaultWithItsReasonOrItsCode) {
  EXPECT_EQ(ToText(ToFault(absl::DataLossError("3.seg"))), "DATA_LOSS: 3.seg");
  EXPECT_EQ(ToFault(Refuse(absl::StatusCode::kInvalidArgument,
                           "UNKNOWN_MERGE_RULE", "rule 99"))
                .code(),
            "UNKNOWN_MERGE_RULE");
}

TEST(FaultsTest, OnlyTwoKnownRunsCanDiffer) {
  const std::string a(32, 'a'), b(32, 'b'), zeros(32, '0');
  EXPECT_FALSE(IsKnownRun(""));
  EXPECT_FALSE(IsKnownRun(zeros));
  EXPECT_TRUE(IsKnownRun(a));
  for (const std::string& unknown : {std::string(), zeros}) {
    EXPECT_FALSE(FindOtherRun(unknown, a).has_value());
    EXPECT_FALSE(FindOtherRun(a, unknown).has_value());
    EXPECT_TRUE(CheckSameRun(a, unknown).ok());
  }
  EXPECT_FALSE(FindOtherRun(a, a).has_value());
  ASSERT_TRUE(FindOtherRun(a, b).has_value());
  const std::string text = ToText(*FindOtherRun(a, b));
  EXPECT_NE(text.find(a), std::string::npos) << text;
  EXPECT_NE(text.find(b), std::string::npos) << text;
  const absl::Status refused = CheckSameRun(a, b);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_EQ(GetReason(refused)->reason, "OTHER_RUN");
}

}  // namespace
}  // namespace atl::server
