#include "cli/doctor/gate_judge.h"

#include "base/features/features.h"
#include "base/status/refusal.h"
#include "base/time/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

v1::TokenState Token() {
  v1::TokenState token;
  token.set_uses_left(1);
  *token.mutable_expire_time() = ToProto(kNow + absl::Hours(2));
  token.mutable_run()->set_state(v1::RUN_STATE_ACTIVE);
  return token;
}

TEST(GateJudgeTest, AHostNeedsAnAddress) {
  using Addresses = std::vector<std::string>;
  EXPECT_EQ(JudgeDns("gate", Addresses{"192.0.2.1", "::1"}),
            Passed("dns", "gate is 192.0.2.1 and 1 more"));
  EXPECT_EQ(JudgeDns("::1", Addresses{"::1"}),
            Passed("dns",
                   "::1 is an IP address, not a name: no name server is "
                   "asked"));
  const Check unknown = JudgeDns("gate", absl::NotFoundError("no host gate"));
  EXPECT_EQ(unknown.result, CheckResult::kFailed);
  EXPECT_THAT(unknown.action, HasSubstr("join string"));
  const Check offline = JudgeDns("gate", absl::UnavailableError("silence"));
  EXPECT_THAT(offline.action, HasSubstr("network"));
  EXPECT_EQ(JudgeDns("gate", Addresses{}).result, CheckResult::kFailed);
}

TEST(GateJudgeTest, AConnectionIsMadeOrNot) {
  EXPECT_EQ(JudgeConnection("tcp", "g:1", absl::Milliseconds(12)),
            Passed("tcp", "g:1 answers in 12 ms"));
  EXPECT_EQ(
      JudgeConnection("tcp", "g:1", absl::UnavailableError("refused")),
      Failed("tcp", "g:1: refused",
             JudgeConnection("tcp", "", absl::UnavailableError("")).action));
}

TEST(GateJudgeTest, AWrongPinSaysWhatToThinkOfIt) {
  EXPECT_EQ(JudgeTls(absl::OkStatus(), "abcdefghijkl").message,
            "TLS 1.3; the root has the pin abcdefgh...");
  const Check wrong =
      JudgeTls(Refuse(absl::StatusCode::kUnauthenticated, "WRONG_PIN",
                      "shows the root with pin xyz"),
               "abcdefghijkl");
  EXPECT_EQ(wrong.result, CheckResult::kFailed);
  EXPECT_THAT(wrong.message, HasSubstr("xyz"));
  EXPECT_THAT(wrong.action, HasSubstr("Do not join"));
  EXPECT_THAT(JudgeTls(absl::UnauthenticatedError("another host"), "").action,
              Not(HasSubstr("clock")));
  EXPECT_THAT(JudgeTls(absl::UnavailableError("closed"), "").action,
              HasSubstr("firewall"));
}

TEST(GateJudgeTest, ACertificateThatIsNotValidNowMayBeThisMachinesClock) {
  EXPECT_THAT(JudgeTls(Refuse(absl::StatusCode::kUnauthenticated,
                              "NOT_VALID_NOW", "valid from 2027"),
                       "")
                  .action,
              HasSubstr("clock is wrong, set it, for example with "
                        "`timedatectl set-ntp true`"));
}

TEST(GateJudgeTest, ATokenNeedsAUseAndTime) {
  v1::TokenState token = Token();
  EXPECT_EQ(JudgeToken(token, kNow),
            Passed("token", "1 use left, for 2h00m; this check consumes none"));
  EXPECT_EQ(JudgeToken(token, kNow + absl::Hours(2)).result,
            CheckResult::kFailed);
  token.set_uses_left(0);
  EXPECT_EQ(JudgeToken(token, kNow).result, CheckResult::kFailed);
  EXPECT_EQ(JudgeToken(Refuse(absl::StatusCode::kPermissionDenied,
                              "TOKEN_REVOKED", "the token was revoked"),
                       kNow)
                .result,
            CheckResult::kFailed);
}

TEST(GateJudgeTest, ABusyGateAndAnEndedRunAreNoFaultsOfTheToken) {
  EXPECT_EQ(JudgeToken(Refuse(absl::StatusCode::kResourceExhausted, "BUSY",
                              "too many"),
                       kNow)
                .result,
            CheckResult::kWarn);
  v1::TokenState token = Token();
  token.mutable_run()->set_state(v1::RUN_STATE_COMPLETED);
  EXPECT_EQ(JudgeToken(token, kNow).result, CheckResult::kWarn);
  const Check away = JudgeToken(absl::UnavailableError("away"), kNow);
  EXPECT_EQ(away.result, CheckResult::kFailed);
  EXPECT_THAT(away.action, HasSubstr("coordinator"));
}

TEST(GateJudgeTest, ACertificateIsRenewedForAMonth) {
  EXPECT_EQ(JudgeCertificate(kNow + absl::Seconds(1), kNow).result,
            CheckResult::kPassed);
  EXPECT_EQ(JudgeCertificate(kNow, kNow).result, CheckResult::kWarn);
  EXPECT_EQ(JudgeCertificate(kNow - absl::Hours(24 * 30 - 1), kNow).result,
            CheckResult::kWarn);
  EXPECT_EQ(JudgeCertificate(kNow - absl::Hours(24 * 30), kNow).result,
            CheckResult::kFailed);
  EXPECT_EQ(JudgeCertificate(absl::InfinitePast(), kNow).result,
            CheckResult::kFailed);
}

TEST(GateJudgeTest, FeaturesDecideAndVersionsWarn) {
  EXPECT_EQ(JudgeVersion("1.2", "1.2", 0).result, CheckResult::kPassed);
  EXPECT_EQ(JudgeVersion("1.2", "", 0).result, CheckResult::kPassed);
  EXPECT_EQ(JudgeVersion("1.2", "1.3", 0).result, CheckResult::kWarn);
  const Check old = JudgeVersion("1.2", "1.3", kMergeMda);
  EXPECT_EQ(old.result, CheckResult::kFailed);
  EXPECT_THAT(old.message, HasSubstr("mda"));
  EXPECT_EQ(old.action, "Install atoll 1.3.");
}

TEST(GateJudgeTest, DataByUrlIsReadOrPrivate) {
  v1::DataSpec data;
  data.set_url("https://data.example.org/manifest.json");
  EXPECT_EQ(JudgeData(data, {}).result, CheckResult::kPassed);
  EXPECT_THAT(JudgeData(data, {absl::PermissionDeniedError("403")}).message,
              HasSubstr("is private"));
  EXPECT_EQ(JudgeData(data, {absl::UnauthenticatedError("401")}).result,
            CheckResult::kPassed);
  const Check away = JudgeData(data, {absl::UnavailableError("no route")});
  EXPECT_EQ(away.result, CheckResult::kFailed);
  EXPECT_THAT(away.action, HasSubstr("--proxy"));
  EXPECT_EQ(
      JudgeData(data, {absl::FailedPreconditionError("another one")}).action,
      "Tell the operator.");
  EXPECT_THAT(JudgeData(data, {absl::FailedPreconditionError(
                                  "a refusal; --allow-data-host a.lan")})
                  .action,
              HasSubstr("before you allow"));
}

TEST(GateJudgeTest, DataAtAPathNeedsARightAndAFile) {
  v1::DataSpec data;
  data.set_path("/srv/text");
  const worker::DataPlace place = {"/srv/text", "given with --data"};
  const worker::LocalData found = {.token_count = 7};
  const Check here = JudgeData(data, {absl::OkStatus(), found, place});
  EXPECT_EQ(here,
            Passed("data", "an island opens \"/srv/text\": given with --data"));
  const Check missing = JudgeData(
      data, {absl::OkStatus(), absl::NotFoundError("no data"), place});
  EXPECT_EQ(missing.result, CheckResult::kFailed);
  EXPECT_EQ(missing.message, "no data");
  EXPECT_THAT(missing.action, HasSubstr("--data PATH"));
  const Check refused = JudgeData(
      data,
      {absl::OkStatus(), found, worker::FindDataPlace(data, {}).status()});
  EXPECT_EQ(refused.result, CheckResult::kFailed);
  EXPECT_THAT(refused.message, HasSubstr("/srv/text"));
  EXPECT_THAT(refused.action, HasSubstr("--data PATH"));
  EXPECT_THAT(refused.action, HasSubstr("atoll data allow DIR"));
  data.set_format(v1::DATA_FORMAT_EXTERNAL);
  EXPECT_EQ(JudgeData(data, {}).result, CheckResult::kPassed);
}

TEST(GateJudgeTest, DataAtAPathIsComparedOrItIsSaid) {
  v1::DataSpec data;
  data.set_fingerprint("ab");
  const worker::DataPlace place = {"/srv/text", "given with --data"};
  EXPECT_THAT(JudgeData(data, {absl::OkStatus(),
                               worker::LocalData{.is_compared = true}, place})
                  .message,
              HasSubstr("it is the run's data"));
  EXPECT_THAT(
      JudgeData(data, {absl::OkStatus(), worker::LocalData(), place}).message,
      HasSubstr("`atoll join` compares it"));
}

TEST(GateJudgeTest, OneServiceThatIsSilentFails) {
  EXPECT_EQ(JudgeServices("coordinator", {{"c:1", absl::OkStatus()}}),
            Passed("coordinator", "c:1 answers"));
  const Check wasted = JudgeServices(
      "servers",
      {{"a:1", absl::OkStatus(), true}, {"b:1", absl::OkStatus(), false}});
  EXPECT_EQ(wasted.result, CheckResult::kFailed);
  EXPECT_EQ(wasted.message, "b:1 admits no island that a gate enrolled");
  EXPECT_EQ(JudgeServices("servers", {{"a:1", absl::OkStatus()},
                                      {"b:1", absl::OkStatus()}}),
            Passed("servers", "all 2 answer"));
  const Check failed = JudgeServices(
      "servers",
      {{"a:1", absl::OkStatus()}, {"b:1", absl::UnavailableError("refused")}});
  EXPECT_EQ(failed.result, CheckResult::kFailed);
  EXPECT_EQ(failed.message, "b:1: refused");
}

TEST(GateJudgeTest, ALinkBelowOneMegabitIsSlow) {
  EXPECT_EQ(JudgeLink("link_up", rpc::LinkLoad{250'000, absl::Seconds(2)}),
            Passed("link_up", "1 Mb/s to the gate"));
  EXPECT_EQ(
      JudgeLink("link_down", rpc::LinkLoad{249'999, absl::Seconds(2)}).result,
      CheckResult::kWarn);
  EXPECT_EQ(ComputeRate({1'000'000, absl::Seconds(2)}), 500'000);
}

TEST(GateJudgeTest, ALinkThatWasNotMeasuredIsNoFailure) {
  EXPECT_EQ(
      JudgeLink("link_up", rpc::LinkLoad{16'380, absl::Seconds(0)}).result,
      CheckResult::kWarn);
  EXPECT_EQ(JudgeLink("link_up", Refuse(absl::StatusCode::kResourceExhausted,
                                        "BUSY", "others"))
                .message,
            "the gate is busy");
  EXPECT_EQ(JudgeLink("link_up", absl::UnavailableError("cut")),
            Warn("link_up", "not measured: cut", "Try again."));
}

TEST(GateJudgeTest, AGateThatRefusesToMeasureIsNotAskedAgain) {
  for (const absl::Status& refused : {absl::UnauthenticatedError("not so"),
                                      absl::PermissionDeniedError("not so")}) {
    EXPECT_EQ(JudgeLink("link_up", refused),
              Warn("link_up", "not measured: not so", "Ask the operator."));
  }
  EXPECT_THAT(
      JudgeLink("link_up", absl::InvalidArgumentError("nothing")).action,
      HasSubstr("older gate"));
}

}  // namespace
}  // namespace atl::cli
