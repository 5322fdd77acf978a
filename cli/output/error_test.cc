#include "cli/output/error.h"

#include <cerrno>
#include <string>
#include <utility>

#include "base/status/annotate.h"
#include "base/status/refusal.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

TEST(ExitCodeTest, EveryStatusCodeHasTheDocumentedOne) {
  const std::pair<absl::StatusCode, int> kTable[] = {
      {absl::StatusCode::kOk, 0},
      {absl::StatusCode::kCancelled, 1},
      {absl::StatusCode::kUnknown, 1},
      {absl::StatusCode::kInvalidArgument, 4},
      {absl::StatusCode::kDeadlineExceeded, 3},
      {absl::StatusCode::kNotFound, 8},
      {absl::StatusCode::kAlreadyExists, 9},
      {absl::StatusCode::kPermissionDenied, 7},
      {absl::StatusCode::kResourceExhausted, 1},
      {absl::StatusCode::kFailedPrecondition, 9},
      {absl::StatusCode::kAborted, 9},
      {absl::StatusCode::kOutOfRange, 4},
      {absl::StatusCode::kUnimplemented, 1},
      {absl::StatusCode::kInternal, 1},
      {absl::StatusCode::kUnavailable, 6},
      {absl::StatusCode::kDataLoss, 5},
      {absl::StatusCode::kUnauthenticated, 7},
  };
  for (const auto& [code, expected] : kTable) {
    EXPECT_EQ(static_cast<int>(ToExitCode(absl::Status(code, "m"))), expected)
        << absl::StatusCodeToString(code);
  }
}

TEST(ExitCodeTest, AFailedHandshakeIsAMatterOfCredentials) {
  for (const char* message :
       {"coordinator a:1: failed to connect to all addresses; last error: "
        "UNKNOWN: ipv4:1.2.3.4:1: Ssl handshake failed: SSL_ERROR_SSL",
        "coordinator a:1: the certificate of a:1 is atoll:island:x, not a "
        "coordinator's"}) {
    const absl::Status status = absl::UnavailableError(message);
    EXPECT_EQ(ToExitCode(status), ExitCode::kForbidden) << message;
    EXPECT_NE(GetHint(status).find("--tls-ca"), std::string::npos) << message;
  }
}

TEST(ExitCodeTest, APeerThatIsFullForAMomentIsAsGoodAsAway) {
  const absl::Status status =
      RefuseForNow(absl::StatusCode::kResourceExhausted, "QUEUE_FULL", "full",
                   absl::Seconds(2));
  EXPECT_EQ(ToExitCode(status), ExitCode::kConnection);
  EXPECT_EQ(GetHint(status), "Try again in 2s.");
}

TEST(ErrorTest, ATransferThatWasGivenUpAsksForTheServer) {
  const absl::Status status =
      absl::DeadlineExceededError("nothing has moved for 1m; last: ...");
  EXPECT_EQ(ToExitCode(status), ExitCode::kTimeout);
  EXPECT_NE(GetHint(status).find("atoll run show"), std::string::npos);
}

TEST(ErrorTest, TheOtherSidesReasonHasAHintOfItsOwn) {
  const absl::Status status = atl::WithReason(
      absl::NotFoundError("there is no run \"x\""), {"NO_SUCH_RUN", {}});
  EXPECT_NE(GetHint(status).find("atoll run list"), std::string::npos);
  EXPECT_EQ(GetHint(WithHint(status, "look")), "look");
  for (const char* reason : {"STALE_ISLAND_EPOCH", "ISLAND_REMOVED"}) {
    const absl::Status other =
        atl::WithReason(absl::AbortedError("no"), {reason, {}});
    EXPECT_NE(GetHint(other).find("(--island-id, or island_id= in Python)"),
              std::string::npos)
        << reason;
  }
}

TEST(ErrorTest, AnErrorOfAFileHasNoHintAboutCertificates) {
  EXPECT_EQ(GetHint(ErrnoToStatus(EROFS, "/mnt/file")), "");
  EXPECT_NE(GetHint(absl::PermissionDeniedError("not this role")), "");
  for (const char* reason : {"WRONG_PIN", "NOT_YOUR_RUN"}) {
    EXPECT_NE(GetHint(Refuse(absl::StatusCode::kPermissionDenied, reason, "no"))
                  .find("join string"),
              std::string::npos);
  }
}

TEST(ExitCodeTest, AUsageErrorIsTwo) {
  EXPECT_EQ(ToExitCode(UsageError("no")), ExitCode::kUsage);
}

TEST(ErrorTest, ContextKeepsCodeReasonAndHint) {
  const absl::Status status = WithContext(
      WithHint(WithReason(absl::NotFoundError("gone"), "GONE"), "look"),
      "run 'a'");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "run 'a': gone");
  EXPECT_EQ(GetReason(status), "GONE");
  EXPECT_EQ(GetHint(status), "look");
}

TEST(ErrorTest, TheCodeIsTheReasonOfLastResort) {
  EXPECT_EQ(GetReason(absl::NotFoundError("gone")), "NOT_FOUND");
}

}  // namespace
}  // namespace atl::cli
