#include "cli/doctor/check_before_join.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "base/time/proto_time.h"
#include "cli/output/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

using ::testing::ElementsAre;

// A gate that notes what it is asked.
class CheckBeforeJoinTest : public ::testing::Test {
 protected:
  GateCall Call() {
    return CheckBeforeJoin(
        [this](const GatePeer&, const v1::GateRequest& request)
            -> absl::StatusOr<v1::GateResponse> {
          asked_.push_back(request.body_case());
          if (request.has_check() && !check_error_.ok()) return check_error_;
          v1::GateResponse response;
          if (request.has_check()) *response.mutable_token_state() = state_;
          if (request.has_enrol()) response.mutable_enrolled();
          *response.mutable_time() = ToProto(absl::Now() + ahead_);
          return response;
        },
        ::testing::TempDir(), lent_);
  }
  absl::Status Enrol() {
    v1::GateRequest request;
    request.mutable_enrol()->set_run_id("spring");
    return Call()({}, request).status();
  }

  std::vector<v1::GateRequest::BodyCase> asked_;
  v1::TokenState state_;
  Lent lent_;
  absl::Status check_error_;
  absl::Duration ahead_ = absl::ZeroDuration();
};

TEST_F(CheckBeforeJoinTest, ChecksAndThenEnrols) {
  EXPECT_TRUE(Enrol().ok());
  EXPECT_THAT(asked_,
              ElementsAre(v1::GateRequest::kCheck, v1::GateRequest::kEnrol));
}

TEST_F(CheckBeforeJoinTest, AWrongClockCostsNoToken) {
  ahead_ = absl::Hours(1);
  const absl::Status status = Enrol();
  EXPECT_EQ(ToExitCode(status), ExitCode::kPreflightFailed) << status;
  EXPECT_EQ(GetReason(status), "CHECK_FAILED");
  EXPECT_THAT(asked_, ElementsAre(v1::GateRequest::kCheck));
}

TEST_F(CheckBeforeJoinTest, AModelThatDoesNotFitCostsNoToken) {
  v1::RunSpec& spec = *state_.mutable_run()->mutable_spec();
  spec.mutable_model()->set_architecture("external");
  spec.mutable_layout()->set_fragment_count(1);
  spec.mutable_layout()->add_tensors()->add_shape(int64_t{1} << 40);
  EXPECT_EQ(ToExitCode(Enrol()), ExitCode::kPreflightFailed);
  EXPECT_THAT(asked_, ElementsAre(v1::GateRequest::kCheck));
}

// 64 MiB of parameters fit into any machine, but not into what it lends.
TEST_F(CheckBeforeJoinTest, AModelBeyondWhatIsLentCostsNoToken) {
  v1::RunSpec& spec = *state_.mutable_run()->mutable_spec();
  spec.mutable_model()->set_architecture("external");
  spec.mutable_layout()->set_fragment_count(1);
  spec.mutable_layout()->add_tensors()->add_shape(int64_t{1} << 24);
  lent_.memory_bytes = 1'000'000;
  EXPECT_THAT(Enrol().message(), ::testing::HasSubstr("--memory lends 1.0 MB"));
  EXPECT_THAT(asked_, ElementsAre(v1::GateRequest::kCheck));
  lent_ = {.disk_bytes = 1'000'000};
  EXPECT_THAT(Enrol().message(), ::testing::HasSubstr("--disk lends 1.0 MB"));
}

TEST_F(CheckBeforeJoinTest, ATokenThatThisKeyHasUsedIsAskedForAgain) {
  check_error_ = absl::PermissionDeniedError("the token has no use left");
  EXPECT_TRUE(Enrol().ok());
  EXPECT_THAT(asked_,
              ElementsAre(v1::GateRequest::kCheck, v1::GateRequest::kEnrol));
}

TEST_F(CheckBeforeJoinTest, AGateThatIsAwayIsAskedOnce) {
  check_error_ = absl::UnavailableError("away");
  EXPECT_EQ(Enrol(), check_error_);
  EXPECT_THAT(asked_, ElementsAre(v1::GateRequest::kCheck));
}

TEST_F(CheckBeforeJoinTest, ARenewalIsNotChecked) {
  v1::GateRequest request;
  request.mutable_renew();
  EXPECT_TRUE(Call()({}, request).ok());
  EXPECT_THAT(asked_, ElementsAre(v1::GateRequest::kRenew));
}

}  // namespace
}  // namespace atl::cli
