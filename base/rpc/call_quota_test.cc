#include "base/rpc/call_quota.h"

#include <string>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

using Answer = CallQuota::Answer;
using Outcome = CallQuota::Outcome;

const absl::Time kBegin = absl::FromUnixSeconds(1'000'000);

// How many of `count` calls at `now`, each given up at once, are admitted.
int AdmittedOfFlood(CallQuota& quota, const char* certificate, int count,
                    absl::Time now) {
  int admitted = 0;
  for (int i = 0; i < count; ++i) {
    if (quota.Start(certificate, now) != Answer::kAdmitted) continue;
    quota.End(certificate, Outcome::kGivenUp, now);
    ++admitted;
  }
  return admitted;
}

TEST(CallQuotaTest, CallsThatEndDoNotCount) {
  CallQuota quota;
  for (int i = 0; i < 10 * CallQuota::kOpenMax; ++i) {
    ASSERT_EQ(quota.Start("a", kBegin), Answer::kAdmitted);
    quota.End("a", Outcome::kDone, kBegin);
  }
}

TEST(CallQuotaTest, OpenCallsAreBoundedForEachCertificate) {
  CallQuota quota;
  for (int i = 0; i < CallQuota::kOpenMax; ++i) {
    ASSERT_EQ(quota.Start("a", kBegin), Answer::kAdmitted);
  }
  // However long they are open.
  const absl::Time later = kBegin + absl::Hours(1);
  EXPECT_EQ(quota.Start("a", later), Answer::kRefused);
  EXPECT_EQ(quota.Start("b", later), Answer::kAdmitted);
  quota.End("a", Outcome::kDone, later);
  EXPECT_EQ(quota.Start("a", later), Answer::kAdmitted);
}

TEST(CallQuotaTest, GivenUpCallsAreForgottenSlowly) {
  CallQuota quota;
  EXPECT_EQ(AdmittedOfFlood(quota, "a", 100'000, kBegin),
            CallQuota::kOpenMax);
  EXPECT_EQ(AdmittedOfFlood(quota, "a", 100'000, kBegin + absl::Seconds(1)),
            CallQuota::kForgottenPerSecond);
  EXPECT_EQ(AdmittedOfFlood(quota, "a", 100'000, kBegin + absl::Hours(1)),
            CallQuota::kOpenMax);
}

TEST(CallQuotaTest, ALostConnectionDelaysItsCallerForSeconds) {
  CallQuota quota;
  for (int i = 0; i < CallQuota::kOpenMax; ++i) quota.Start("a", kBegin);
  for (int i = 0; i < CallQuota::kOpenMax; ++i) {
    quota.End("a", Outcome::kGivenUp, kBegin);
  }
  EXPECT_EQ(quota.Start("a", kBegin), Answer::kRefused);
  const absl::Time later = kBegin + absl::Seconds(3);
  EXPECT_EQ(AdmittedOfFlood(quota, "a", 1000, later), CallQuota::kOpenMax);
}

TEST(CallQuotaTest, ACallerThatGivesUpNowAndThenIsNotRefused) {
  CallQuota quota;
  for (int i = 0; i < 10 * CallQuota::kOpenMax; ++i) {
    ASSERT_EQ(
        AdmittedOfFlood(quota, "a", 1, kBegin + i * absl::Milliseconds(20)), 1);
  }
}

TEST(CallQuotaTest, NamesTheAbusive) {
  CallQuota quota;
  AdmittedOfFlood(quota, "a", CallQuota::kOpenMax, kBegin);
  for (int i = 1; i < CallQuota::kRefusedMax; ++i) {
    ASSERT_EQ(quota.Start("a", kBegin), Answer::kRefused) << i;
  }
  EXPECT_EQ(quota.Start("a", kBegin), Answer::kAbusive);
}

TEST(CallQuotaTest, FindsTheBusiestOfTheLastSecond) {
  CallQuota quota;
  for (int i = 0; i < 100; ++i) quota.Start("old", kBegin);
  const absl::Time later = kBegin + absl::Seconds(1);
  for (int i = 0; i < CallQuota::kBusyCount - 1; ++i) quota.Start("a", later);
  EXPECT_EQ(quota.FindBusiest(later), "");
  quota.Start("a", later);
  EXPECT_EQ(quota.FindBusiest(later), "a");
  AdmittedOfFlood(quota, "b", CallQuota::kBusyCount + 1, later);
  EXPECT_EQ(quota.FindBusiest(later), "b");
  EXPECT_EQ(quota.FindBusiest(later + absl::Seconds(1)), "");
}

TEST(CallQuotaTest, ABusyCallerThatEndsItsCallsIsNotAbusive) {
  CallQuota quota;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(quota.Start("busy", kBegin), Answer::kAdmitted);
    quota.End("busy", Outcome::kDone, kBegin);
  }
  EXPECT_EQ(quota.FindAbusive(kBegin), "");
  AdmittedOfFlood(quota, "flood", CallQuota::kBusyCount, kBegin);
  EXPECT_EQ(quota.FindAbusive(kBegin), "flood");
  EXPECT_EQ(quota.FindBusiest(kBegin), "busy");
  EXPECT_EQ(quota.FindAbusive(kBegin + absl::Seconds(1)), "");
}

TEST(CallQuotaTest, ForgetsCertificatesWithoutCalls) {
  CallQuota quota;
  for (int i = 0; i < 100'000; ++i) {
    const std::string certificate = std::to_string(i);
    const absl::Time now = kBegin + i * absl::Seconds(1);
    ASSERT_EQ(quota.Start(certificate, now), Answer::kAdmitted);
    quota.End(certificate, Outcome::kDone, now);
  }
  EXPECT_LE(quota.count(), 4096);
}

}  // namespace
}  // namespace atl::rpc
