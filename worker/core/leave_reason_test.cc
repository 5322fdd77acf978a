#include "worker/core/leave_reason.h"

#include "absl/status/status.h"
#include "base/status/not_finite.h"
#include "gtest/gtest.h"

namespace atl::worker {
namespace {

using Code = absl::StatusCode;

TEST(LeaveReasonTest, EachClassOfFailureHasAText) {
  EXPECT_EQ(GetLeaveReason(ActionKind::kTrain,
                           absl::Status(Code::kDataLoss, "/home/x: 17 bytes")),
            "its data is not the run's");
  EXPECT_EQ(GetLeaveReason(ActionKind::kTrain,
                           absl::Status(Code::kNotFound, "/home/x: 17 bytes")),
            "its data cannot be read");
  EXPECT_EQ(GetLeaveReason(
                ActionKind::kRestoreSave,
                absl::Status(Code::kPermissionDenied, "/home/x: 17 bytes")),
            "its data cannot be read");
  EXPECT_EQ(GetLeaveReason(ActionKind::kTrain,
                           absl::Status(Code::kInternal, "/home/x: 17 bytes")),
            "its training failed");
  EXPECT_EQ(
      GetLeaveReason(ActionKind::kSave, absl::Status(Code::kResourceExhausted,
                                                     "/home/x: 17 bytes")),
      "its contribution cannot be saved");
  EXPECT_EQ(GetLeaveReason(ActionKind::kContribute,
                           absl::Status(Code::kInternal, "/home/x: 17 bytes")),
            "its contribution cannot be saved");
  EXPECT_EQ(GetLeaveReason(ActionKind::kEvaluate,
                           NotFinite(NotFiniteOf::kOther,
                                     absl::InternalError("loss nan"))),
            "its training was not finite, time and again, from finite "
            "versions");
}

}  // namespace
}  // namespace atl::worker
