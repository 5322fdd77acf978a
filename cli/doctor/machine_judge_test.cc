#include "cli/doctor/machine_judge.h"

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kGb = 1'000'000'000;
const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

MachineFacts Machine() {
  MachineFacts machine;
  machine.cpu_model = "A Processor";
  machine.core_count = 8;
  machine.has_avx2_and_fma = true;
  machine.memory_bytes = 16 * kGb;
  machine.available_memory_bytes = 10 * kGb;
  machine.state = {"/state", absl::OkStatus(), 50 * kGb, 100 * kGb};
  machine.cache = {"/cache", absl::OkStatus(), 50 * kGb, 100 * kGb};
  return machine;
}

RunNeeds Needs(int64_t memory_bytes) {
  RunNeeds needs;
  needs.memory_bytes = memory_bytes;
  needs.disk_bytes = 2 * kGb;
  return needs;
}

TEST(MachineJudgeTest, OneCoreIsFew) {
  MachineFacts machine = Machine();
  EXPECT_EQ(JudgeCores(machine), Passed("cores", "8 cores: A Processor"));
  machine.core_count = 2;
  EXPECT_EQ(JudgeCores(machine).result, CheckResult::kPassed);
  machine.core_count = 1;
  EXPECT_EQ(JudgeCores(machine).result, CheckResult::kWarn);
}

TEST(MachineJudgeTest, OurKernelsNeedAvx2AndFma) {
  MachineFacts machine = Machine();
  EXPECT_THAT(JudgeIsa(machine).message, HasSubstr("no AVX-512"));
  EXPECT_EQ(JudgeIsa(machine).result, CheckResult::kPassed);
  machine.has_avx2_and_fma = false;
  EXPECT_EQ(JudgeIsa(machine).result, CheckResult::kFailed);
}

TEST(MachineJudgeTest, TheRunMustFitIntoTheMemory) {
  const MachineFacts machine = Machine();
  EXPECT_EQ(JudgeMemory(machine, Needs(10 * kGb), RunLimits()).result, CheckResult::kPassed);
  const Check busy = JudgeMemory(machine, Needs(10 * kGb + 1), RunLimits());
  EXPECT_EQ(busy.result, CheckResult::kWarn);
  EXPECT_THAT(busy.message, HasSubstr("10.0 GB are free now"));
  EXPECT_EQ(JudgeMemory(machine, Needs(16 * kGb), RunLimits()).result, CheckResult::kWarn);
  EXPECT_EQ(JudgeMemory(machine, Needs(16 * kGb + 1), RunLimits()).result,
            CheckResult::kFailed);
}

TEST(MachineJudgeTest, AnUnknownAmountOfFreeMemoryWarnsOfNothing) {
  MachineFacts machine = Machine();
  machine.available_memory_bytes = 0;
  EXPECT_EQ(JudgeMemory(machine, Needs(15 * kGb), RunLimits()).result, CheckResult::kPassed);
}

TEST(MachineJudgeTest, WithoutARunOnlyLittleMemoryIsRemarkable) {
  MachineFacts machine = Machine();
  EXPECT_EQ(JudgeMemory(machine, std::nullopt, RunLimits()).result, CheckResult::kPassed);
  machine.memory_bytes = (int64_t{1} << 30) - 1;
  EXPECT_EQ(JudgeMemory(machine, std::nullopt, RunLimits()).result, CheckResult::kWarn);
}

TEST(MachineJudgeTest, LocalCheckpointsMustFitOnTheDisk) {
  MachineFacts machine = Machine();
  machine.state.free_bytes = 2 * kGb;
  EXPECT_EQ(JudgeDiskSpace(machine, Needs(1), RunLimits(), kGb).result,
            CheckResult::kPassed);
  machine.state.free_bytes = 2 * kGb - 1;
  EXPECT_EQ(JudgeDiskSpace(machine, Needs(1), RunLimits(), kGb).result,
            CheckResult::kFailed);
}

TEST(MachineJudgeTest, TheDataCacheShouldFitBesideTheCheckpoints) {
  MachineFacts machine = Machine();
  RunNeeds needs = Needs(1);
  EXPECT_EQ(JudgeDiskSpace(machine, needs, RunLimits(), 1000 * kGb).result,
            CheckResult::kPassed);
  needs.fetches_data = true;
  // One disk of 50 GB free, of which checkpoints take 2 GB.
  EXPECT_EQ(JudgeDiskSpace(machine, needs, RunLimits(), 48 * kGb).result,
            CheckResult::kPassed);
  EXPECT_EQ(JudgeDiskSpace(machine, needs, RunLimits(), 48 * kGb + 1).result,
            CheckResult::kWarn);
  machine.cache.total_bytes = 200 * kGb;  // Another disk.
  EXPECT_EQ(JudgeDiskSpace(machine, needs, RunLimits(), 50 * kGb).result,
            CheckResult::kPassed);
}

TEST(MachineJudgeTest, ADiskThatCannotBeWrittenFails) {
  MachineFacts machine = Machine();
  machine.cache.status = absl::FailedPreconditionError("read-only");
  RunNeeds needs = Needs(1);
  EXPECT_EQ(JudgeDiskSpace(machine, needs, RunLimits(), kGb).result, CheckResult::kPassed);
  needs.fetches_data = true;
  EXPECT_EQ(JudgeDiskSpace(machine, needs, RunLimits(), kGb).result, CheckResult::kFailed);
  machine.state.status = absl::PermissionDeniedError("not yours");
  EXPECT_THAT(JudgeDiskSpace(machine, std::nullopt, RunLimits(), kGb).message,
              HasSubstr("not yours"));
}

TEST(MachineJudgeTest, ASlowSyncWarnsAndABrokenOneFails) {
  EXPECT_EQ(JudgeDiskSync(absl::Milliseconds(50)).result, CheckResult::kPassed);
  EXPECT_EQ(JudgeDiskSync(absl::Microseconds(50001)).result,
            CheckResult::kWarn);
  EXPECT_EQ(JudgeDiskSync(absl::ResourceExhaustedError("full")).result,
            CheckResult::kFailed);
}

ClockFacts Apart(absl::Duration apart, absl::Duration took) {
  return {kNow, kNow + took, kNow + took / 2 + apart};
}

TEST(MachineJudgeTest, ClocksMayBeHalfAMinuteApart) {
  for (const int sign : {-1, 1}) {
    const absl::Duration none = absl::ZeroDuration();
    EXPECT_EQ(JudgeClock(Apart(sign * absl::Seconds(30), none)).result,
              CheckResult::kPassed);
    EXPECT_EQ(JudgeClock(Apart(sign * absl::Seconds(31), none)).result,
              CheckResult::kWarn);
    EXPECT_EQ(JudgeClock(Apart(sign * absl::Minutes(5), none)).result,
              CheckResult::kWarn);
    EXPECT_EQ(JudgeClock(Apart(sign * absl::Seconds(301), none)).result,
              CheckResult::kFailed);
  }
  EXPECT_THAT(
      JudgeClock(Apart(absl::Minutes(10), absl::ZeroDuration())).message,
      HasSubstr("10m00s behind"));
}

TEST(MachineJudgeTest, ASlowAnswerIsNoWrongClock) {
  EXPECT_EQ(JudgeClock(Apart(absl::Seconds(33), absl::Seconds(8))).result,
            CheckResult::kPassed);
  EXPECT_EQ(JudgeClock(Apart(absl::Seconds(35), absl::Seconds(8))).result,
            CheckResult::kWarn);
}

TEST(MachineJudgeTest, AKernelWithoutASandboxIsAWarning) {
  EXPECT_EQ(JudgeSandbox(7), Passed("sandbox", "Landlock ABI 7"));
  EXPECT_EQ(JudgeSandbox(1).result, CheckResult::kPassed);
  EXPECT_EQ(JudgeSandbox(0).result, CheckResult::kWarn);
  EXPECT_THAT(JudgeSandbox(0).message, HasSubstr("no Landlock"));
}

}  // namespace
}  // namespace atl::cli
