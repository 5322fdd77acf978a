#include "cli/doctor/lent_machine.h"

#include "absl/status/status.h"
#include "cli/output/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kGb = 1'000'000'000;

MachineFacts Machine() {
  MachineFacts machine;
  machine.memory_bytes = 16 * kGb;
  machine.available_memory_bytes = 8 * kGb;
  machine.state.free_bytes = 50 * kGb;
  return machine;
}

RunNeeds Needs(int64_t memory_bytes, int64_t disk_bytes) {
  RunNeeds needs;
  needs.memory_bytes = memory_bytes;
  needs.disk_bytes = disk_bytes;
  return needs;
}

TEST(LentMachineTest, AnEnrolledIslandLendsHalfOfTheFreeMemory) {
  const RunLimits limits = LimitsOf(Machine(), {}, /*is_enrolled=*/true);
  EXPECT_TRUE(CheckMemory(Needs(4 * kGb, 0), limits).ok());
  const absl::Status refused = CheckMemory(Needs(4 * kGb + 1, 0), limits);
  EXPECT_EQ(ToExitCode(refused), ExitCode::kPreflightFailed);
  EXPECT_EQ(GetReason(refused), "TOO_LITTLE_MEMORY");
  EXPECT_THAT(refused.message(), HasSubstr("needs about 4.0 GB"));
  EXPECT_THAT(refused.message(), HasSubstr("half of its free memory, 4.0 GB"));
  EXPECT_THAT(GetHint(refused), HasSubstr("--memory 4001MB"));
}

TEST(LentMachineTest, FreeMemoryIsOfThisProcess) {
  MachineFacts machine = Machine();
  machine.available_memory_bytes = 0;  // Unknown.
  EXPECT_EQ(LimitsOf(machine, {}, true).memory_bytes, 8 * kGb);
  machine.available_memory_bytes = 100 * kGb;  // In a container of 16 GB.
  EXPECT_EQ(LimitsOf(machine, {}, true).memory_bytes, 8 * kGb);
}

TEST(LentMachineTest, AnEnrolledIslandLendsTenGigabytesOrATenthOfTheDisk) {
  MachineFacts machine = Machine();
  const RunLimits limits = LimitsOf(machine, {}, true);
  EXPECT_TRUE(CheckDisk(Needs(0, 10 * kGb), limits).ok());
  const absl::Status refused = CheckDisk(Needs(0, 10 * kGb + 1), limits);
  EXPECT_EQ(ToExitCode(refused), ExitCode::kPreflightFailed);
  EXPECT_EQ(GetReason(refused), "TOO_LITTLE_DISK");
  EXPECT_THAT(refused.message(), HasSubstr("need about 10.0 GB of disk"));
  EXPECT_THAT(refused.message(), HasSubstr("lends 10.0 GB"));
  EXPECT_THAT(GetHint(refused), HasSubstr("--disk 10001MB"));
  machine.state.free_bytes = 300 * kGb;
  EXPECT_EQ(LimitsOf(machine, {}, true).disk_bytes, 30 * kGb);
}

TEST(LentMachineTest, WhatAPersonGivesIsTheLimit) {
  for (const bool is_enrolled : {false, true}) {
    const RunLimits limits = LimitsOf(
        Machine(), {.memory_bytes = 12 * kGb, .disk_bytes = 40 * kGb},
        is_enrolled);
    EXPECT_TRUE(CheckMemory(Needs(12 * kGb, 0), limits).ok());
    EXPECT_TRUE(CheckDisk(Needs(0, 40 * kGb), limits).ok());
    EXPECT_THAT(CheckMemory(Needs(12 * kGb + 1, 0), limits).message(),
                HasSubstr("--memory lends 12.0 GB"));
    EXPECT_THAT(CheckDisk(Needs(0, 40 * kGb + 1), limits).message(),
                HasSubstr("--disk lends 40.0 GB"));
  }
}

TEST(LentMachineTest, AnIslandWithAnOperatorsCertificateIsNotRestricted) {
  const RunLimits limits = LimitsOf(Machine(), {}, /*is_enrolled=*/false);
  EXPECT_TRUE(CheckMemory(Needs(1000 * kGb, 0), limits).ok());
  EXPECT_TRUE(CheckDisk(Needs(0, 1000 * kGb), limits).ok());
}

v1::RunSpec Spec() {
  v1::RunSpec spec;
  v1::ModelSpec& model = *spec.mutable_model();
  model.set_architecture("llama");
  model.set_vocab_size(256);
  model.set_hidden_size(64);
  model.set_intermediate_size(176);
  model.set_layer_count(2);
  model.set_head_count(4);
  model.set_kv_head_count(4);
  model.set_sequence_length(64);
  model.set_rope_theta(10000);
  model.set_rms_norm_eps(1e-5);
  spec.mutable_inner()->set_batch_size(4);
  spec.mutable_inner()->set_optimizer(v1::INNER_OPTIMIZER_KIND_ADAMW);
  spec.mutable_layout()->set_fragment_count(1);
  spec.mutable_layout()->add_tensors()->add_shape(1'000'000);
  return spec;
}

TEST(RunNeedsTest, ALargerModelNeedsMore) {
  v1::RunSpec spec = Spec();
  const auto small = ComputeRunNeeds(spec);
  ASSERT_TRUE(small.ok()) << small.status();
  EXPECT_FALSE(small->is_external);
  EXPECT_FALSE(small->fetches_data);
  spec.mutable_model()->set_hidden_size(128);
  const auto large = ComputeRunNeeds(spec);
  ASSERT_TRUE(large.ok());
  EXPECT_GT(large->memory_bytes, small->memory_bytes);
  EXPECT_GT(large->disk_bytes, small->disk_bytes);
}

TEST(RunNeedsTest, OfAnExternalModelOnlyTheExchangeIsOurs) {
  v1::RunSpec spec = Spec();
  spec.mutable_model()->Clear();
  spec.mutable_model()->set_architecture("external");
  const auto needs = ComputeRunNeeds(spec);
  ASSERT_TRUE(needs.ok()) << needs.status();
  EXPECT_TRUE(needs->is_external);
  EXPECT_GT(needs->memory_bytes, 8'000'000);
}

TEST(RunNeedsTest, AModelOfAnotherKindIsUnknown) {
  v1::RunSpec spec = Spec();
  spec.mutable_model()->set_architecture("mystery");
  EXPECT_EQ(ComputeRunNeeds(spec).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(RunNeedsTest, DataByUrlIsFetched) {
  v1::RunSpec spec = Spec();
  spec.mutable_data()->set_url("https://data.example.org/manifest.json");
  EXPECT_TRUE(ComputeRunNeeds(spec)->fetches_data);
}

}  // namespace
}  // namespace atl::cli
