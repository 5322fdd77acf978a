#include "base/rpc/status.h"

#include <string>

#include "base/status/refusal.h"
#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

TEST(StatusTest, KeepsEveryCodeOnItsWay) {
  EXPECT_TRUE(ToGrpc(absl::OkStatus()).ok());
  EXPECT_TRUE(FromGrpc(grpc::Status::OK).ok());
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "why");
    const grpc::Status wire = ToGrpc(status);
    EXPECT_EQ(static_cast<int>(wire.error_code()), code);
    const absl::Status read = FromGrpc(wire);
    EXPECT_EQ(read.code(), status.code());
    EXPECT_EQ(read.message(), "why");
  }
}

TEST(StatusTest, WaitsForGrpcToHaveRoom) {
  const auto is_away = [](const absl::Status& status) {
    return IsAway(FromGrpc(ToGrpc(status)));
  };
  // A server without memory or threads for a call answers with this.
  EXPECT_TRUE(is_away(absl::ResourceExhaustedError("")));
  EXPECT_TRUE(is_away(absl::ResourceExhaustedError("No thread available")));
  // Waiting makes no message smaller.
  EXPECT_FALSE(is_away(absl::ResourceExhaustedError(
      "Received message larger than max (5 vs. 4)")));
  EXPECT_FALSE(is_away(absl::ResourceExhaustedError(
      "received initial metadata size exceeds limit")));
  // A handler says itself whether waiting helps.
  EXPECT_FALSE(is_away(Refuse(absl::StatusCode::kResourceExhausted,
                              "TOO_MANY_TOKENS", "remove one")));
}

TEST(StatusTest, TakesAnUnheardOfCodeForUnknown) {
  // 31 is the greatest value that the enum can hold.
  for (const int code : {17, 31}) {
    const grpc::Status wire(static_cast<grpc::StatusCode>(code), "what");
    EXPECT_EQ(FromGrpc(wire).code(), absl::StatusCode::kUnknown);
  }
}

TEST(StatusTest, CarriesDetails) {
  absl::Status status = InvalidFields({{"spec.inner.batch_size", "is 0"}});
  status = WithReason(status, {"STALE_ISLAND_EPOCH", {{"island_epoch", "3"}}});
  status = WithRetryDelay(status, absl::Milliseconds(1500));
  const absl::Status received = FromGrpc(ToGrpc(status));
  EXPECT_EQ(received.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(received.message(), "spec.inner.batch_size: is 0");
  ASSERT_TRUE(GetReason(received).has_value());
  EXPECT_EQ(GetReason(received)->reason, "STALE_ISLAND_EPOCH");
  ASSERT_EQ(GetReason(received)->metadata.size(), 1);
  EXPECT_EQ(GetReason(received)->metadata[0].second, "3");
  EXPECT_EQ(GetRetryDelay(received), absl::Milliseconds(1500));
  ASSERT_EQ(GetFieldViolations(received).size(), 1);
  EXPECT_EQ(GetFieldViolations(received)[0].field, "spec.inner.batch_size");
}

TEST(StatusTest, HasNoDetailsWhereThereAreNone) {
  const absl::Status status = absl::NotFoundError("no run");
  EXPECT_EQ(ToGrpc(status).error_details(), "");
  EXPECT_FALSE(GetReason(status).has_value());
  EXPECT_FALSE(GetRetryDelay(status).has_value());
  EXPECT_TRUE(GetFieldViolations(status).empty());
}

TEST(StatusTest, GivesAReasonToErrorsThatHaveNone) {
  EXPECT_EQ(GetReason(WithDefaultReason(absl::NotFoundError("no run")))->reason,
            "NOT_FOUND");
  const absl::Status own =
      WithReason(absl::NotFoundError("no run"), {"NO_RUN", {}});
  EXPECT_EQ(WithDefaultReason(own), own);
  EXPECT_TRUE(WithDefaultReason(absl::OkStatus()).ok());
}

TEST(StatusTest, NamesEveryWrongField) {
  const absl::Status status =
      InvalidFields({{"spec.a", "must be positive"}, {"spec.b", "is unknown"}});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "spec.a: must be positive; spec.b: is unknown");
  EXPECT_EQ(GetFieldViolations(status).size(), 2);
}

TEST(StatusTest, FitsIntoATrailerWhateverItHolds) {
  std::vector<FieldViolation> violations;
  for (int i = 0; i < 1000; ++i)
    violations.push_back({"field", "\u00e9\u00e9"});
  absl::Status status = InvalidFields(violations);
  status = WithReason(status, {"TOO_MUCH", {}});
  const grpc::Status wire = ToGrpc(status);
  EXPECT_LE(wire.error_message().size(), kStatusMessageBytesMax);
  EXPECT_LE(wire.error_details().size(),
            kStatusMessageBytesMax + kStatusDetailsBytesMax + 64);
  // The small detail is kept, the large one dropped.
  EXPECT_TRUE(GetReason(FromGrpc(wire)).has_value());
  EXPECT_TRUE(GetFieldViolations(FromGrpc(wire)).empty());
}

// Details that are not UTF-8 could not be read.
TEST(StatusTest, SendsOnlyUtf8) {
  const absl::Status status =
      InvalidFields({{"manifest", "holds \xff\xfe, not \u00e9"}});
  const absl::Status received = FromGrpc(ToGrpc(status));
  EXPECT_EQ(received.message(), "manifest: holds ??, not \u00e9");
  ASSERT_EQ(GetFieldViolations(received).size(), 1);
  EXPECT_EQ(GetFieldViolations(received)[0].description,
            "holds ??, not \u00e9");
  const absl::Status other = FromGrpc(
      ToGrpc(WithReason(absl::DataLossError("\xff"), {"DAMAGED", {}})));
  EXPECT_EQ(other.message(), "?");
  EXPECT_TRUE(HasReason(other, "DAMAGED"));
}

TEST(StatusTest, DropsDetailsThatCannotBeRead) {
  const grpc::Status wire(grpc::StatusCode::ABORTED, "why", "\xff\xff\xff");
  EXPECT_EQ(FromGrpc(wire), absl::AbortedError("why"));
}

}  // namespace
}  // namespace atl::rpc
