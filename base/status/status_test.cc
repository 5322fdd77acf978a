#include "absl/status/status.h"

#include <cerrno>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "base/status/annotate.h"
#include "base/status/check.h"
#include "base/status/cut_utf8.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<std::unique_ptr<int>> Half(int value) {
  if (value % 2 != 0) return absl::InvalidArgumentError("odd");
  return std::make_unique<int>(value / 2);
}

absl::Status HalfInto(int value, int* half) {
  ASSIGN_OR_RETURN(const std::unique_ptr<int> result, Half(value));
  *half = *result;
  return absl::OkStatus();
}

absl::Status QuarterInto(int value, int* quarter) {
  int half = 0;
  RETURN_IF_ERROR(HalfInto(value, &half));
  RETURN_IF_ERROR(HalfInto(half, quarter));
  return absl::OkStatus();
}

TEST(StatusMacrosTest, HandOnTheFirstErrorAndElseTheValue) {
  int quarter = 0;
  EXPECT_TRUE(QuarterInto(12, &quarter).ok());
  EXPECT_EQ(quarter, 3);
  EXPECT_EQ(QuarterInto(6, &quarter), absl::InvalidArgumentError("odd"));
  EXPECT_EQ(quarter, 3);
}

TEST(AnnotateTest, KeepsCodeAndPayloadsAndPutsTheContextFirst) {
  absl::Status status = absl::NotFoundError("no such file");
  status.SetPayload("type", absl::Cord("payload"));
  const absl::Status annotated = Annotate(status, "reading a");
  EXPECT_EQ(annotated.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(annotated.message(), "reading a: no such file");
  EXPECT_EQ(annotated.GetPayload("type"), absl::Cord("payload"));
  EXPECT_TRUE(Annotate(absl::OkStatus(), "context").ok());
}

// A program that finds its disk full deletes what it can spare.
TEST(AnnotateTest, OnlyAFullDiskIsAFullDisk) {
  for (const int full : {ENOSPC, EDQUOT}) {
    EXPECT_EQ(ErrnoToStatus(full, "a").code(),
              absl::StatusCode::kResourceExhausted)
        << full;
  }
  for (const int other : {EMFILE, ENFILE, ENOMEM, EFBIG}) {
    EXPECT_EQ(ErrnoToStatus(other, "a").code(), absl::StatusCode::kUnavailable)
        << other;
  }
  for (int other = 1; other < 134; ++other) {
    if (other == ENOSPC || other == EDQUOT) continue;
    EXPECT_NE(ErrnoToStatus(other, "a").code(),
              absl::StatusCode::kResourceExhausted)
        << other;
  }
}

TEST(AnnotateTest, GivesABrokenDiskAndAMissingFileTheirCodes) {
  EXPECT_EQ(ErrnoToStatus(EIO, "a").code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ErrnoToStatus(ENOENT, "open f"),
            absl::NotFoundError("open f: No such file or directory"));
}

TEST(HasReasonTest, IsTrueOfTheStatusOwnReasonAlone) {
  const absl::Status status =
      WithReason(absl::AbortedError("a"), {"OTHER_RUN", {}});
  EXPECT_TRUE(HasReason(status, "OTHER_RUN"));
  EXPECT_FALSE(HasReason(status, "OTHER"));
  EXPECT_FALSE(HasReason(absl::AbortedError("OTHER_RUN"), "OTHER_RUN"));
  EXPECT_FALSE(HasReason(absl::OkStatus(), ""));
}

TEST(RefusalTest, APeerThatIsFullForAMomentIsAway) {
  EXPECT_TRUE(IsAway(absl::UnavailableError("")));
  EXPECT_TRUE(IsAway(absl::DeadlineExceededError("")));
  EXPECT_TRUE(IsAway(RefuseForNow(absl::StatusCode::kResourceExhausted,
                                  "QUEUE_FULL", "", absl::Seconds(1))));
  EXPECT_FALSE(IsAway(
      Refuse(absl::StatusCode::kResourceExhausted, "TOO_MANY_RUNS", "")));
  EXPECT_FALSE(IsAway(RefuseForNow(absl::StatusCode::kFailedPrecondition,
                                   "NOT_REPORTED", "", absl::Seconds(1))));
  EXPECT_FALSE(IsAway(absl::OkStatus()));
}

TEST(CutUtf8Test, CutsBetweenCharacters) {
  EXPECT_EQ(CutUtf8("abc", 3), "abc");
  EXPECT_EQ(CutUtf8("abc", 2), "ab");
  const std::string euros = "\xe2\x82\xac\xe2\x82\xac";
  EXPECT_EQ(CutUtf8(euros, 6), euros);
  EXPECT_EQ(CutUtf8(euros, 5), euros.substr(0, 3));
  EXPECT_EQ(CutUtf8(euros, 2), "");
}

TEST(CheckTest, PassesWithoutATraceAndEvaluatesOnce) {
  int calls = 0;
  const auto next = [&calls] { return ++calls; };
  CHECK(next() == 1) << "never evaluated";
  CHECK_EQ(next(), 2);
  CHECK_LT(2, next()) << "never evaluated";
  CHECK_OK(absl::OkStatus());
  CHECK_OK(Half(2));
  DCHECK(1 == 1);
  if (calls == 3) CHECK_NE(calls, 4);
  EXPECT_EQ(calls, 3);
}

TEST(CheckDeathTest, SaysWhatFailedAndStops) {
  EXPECT_DEATH(CHECK(1 > 2) << "because", "status_test.*1 > 2.*because");
  EXPECT_DEATH(CHECK_EQ(1 + 1, 3), "1 \\+ 1 == 3 \\(2 against 3\\)");
  EXPECT_DEATH(CHECK_OK(Half(1)), "Half\\(1\\) is OK.*odd");
}

}  // namespace
}  // namespace atl
