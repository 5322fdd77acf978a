#include <cerrno>

#include "absl/strings/cord.h"
#include "base/status/annotate.h"
#include "base/status/check.h"
#include "base/status/status_macros.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

absl::StatusOr<int> Half(int n) {
  if (n % 2 != 0) return absl::InvalidArgumentError("odd");
  return n / 2;
}

absl::StatusOr<int> Quarter(int n) {
  ASSIGN_OR_RETURN(const int half, Half(n));
  ASSIGN_OR_RETURN(const int quarter, Half(half));
  RETURN_IF_ERROR(absl::OkStatus());
  return quarter;
}

TEST(StatusMacrosTest, HandOnTheValueOrTheFirstError) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(6).status().message(), "odd");
  EXPECT_EQ(Quarter(7).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(AnnotateTest, KeepsCodeAndPayloads) {
  absl::Status status = absl::NotFoundError("x");
  status.SetPayload("url", absl::Cord("p"));
  const absl::Status annotated = Annotate(status, "while reading");
  EXPECT_EQ(annotated.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(annotated.message(), "while reading: x");
  EXPECT_EQ(annotated.GetPayload("url"), absl::Cord("p"));
  EXPECT_TRUE(Annotate(absl::OkStatus(), "c").ok());
}

TEST(ErrnoToStatusTest, MapsAFullAndABrokenDisk) {
  EXPECT_EQ(ErrnoToStatus(ENOSPC, "write").code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrnoToStatus(EIO, "write").code(), absl::StatusCode::kDataLoss);
}

TEST(CheckDeathTest, NamesTheConditionAndWhatWasStreamed) {
  EXPECT_DEATH(CHECK(1 == 2) << "sums", "1 == 2 sums");
  EXPECT_DEATH(CHECK_EQ(1, 2), "1 against 2");
  EXPECT_DEATH(CHECK_OK(absl::NotFoundError("gone")), "gone");
  CHECK_OK(absl::OkStatus());
  if (true) CHECK_EQ(1, 1);
}

}  // namespace
}  // namespace atl
