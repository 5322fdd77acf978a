#include "coordinator/core/spec/island_requests.h"

#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::testing::HasSubstr;

v1::ReportProgressRequest GoodReport() {
  v1::ReportProgressRequest request;
  for (int seq = 1; seq <= kSyncPhasesMax; ++seq) {
    v1::SyncPhases& sync = *request.add_sync_phases();
    sync.set_seq(seq);
    for (const v1::Phase phase :
         {v1::PHASE_TRAIN, v1::PHASE_ENCODE, v1::PHASE_PUSH, v1::PHASE_WAIT,
          v1::PHASE_APPLY}) {
      v1::PhaseTime& added = *sync.add_phases();
      added.set_phase(phase);
      added.mutable_start_time()->set_seconds(1'700'000'000);
      added.mutable_duration()->set_nanos(1);
    }
  }
  return request;
}

TEST(CheckProgressTest, TakesThePhasesThatIslandsReport) {
  const absl::Status status = CheckProgress(GoodReport());
  EXPECT_TRUE(status.ok()) << status;
}

TEST(CheckProgressTest, RefusesPhasesThatCannotBe) {
  struct Case {
    std::string message;
    std::function<void(v1::SyncPhases&)> spoil;
  };
  const std::vector<Case> cases = {
      {"seq", [](v1::SyncPhases& sync) { sync.set_seq(0); }},
      {"phase 0",
       [](v1::SyncPhases& sync) {
         sync.mutable_phases(1)->set_phase(v1::PHASE_UNSPECIFIED);
       }},
      // The coordinator measures it.
      {"phase 5",
       [](v1::SyncPhases& sync) {
         sync.mutable_phases(1)->set_phase(v1::PHASE_MERGE);
       }},
      {"phase 99",
       [](v1::SyncPhases& sync) {
         sync.mutable_phases(1)->set_phase(static_cast<v1::Phase>(99));
       }},
      {"PHASE_TRAIN is there twice",
       [](v1::SyncPhases& sync) {
         sync.mutable_phases(1)->set_phase(v1::PHASE_TRAIN);
       }},
      {"the start of PHASE_ENCODE",
       [](v1::SyncPhases& sync) {
         sync.mutable_phases(1)->mutable_start_time()->set_seconds(-1);
       }},
      {"the start of PHASE_ENCODE",
       [](v1::SyncPhases& sync) {
         sync.mutable_phases(1)->mutable_start_time()->set_seconds(INT64_MAX);
       }},
      {"the start of PHASE_ENCODE",
       [](v1::SyncPhases& sync) {
         sync.mutable_phases(1)->mutable_start_time()->set_nanos(-1);
       }},
      {"the duration of PHASE_ENCODE",
       [](v1::SyncPhases& sync) {
         sync.mutable_phases(1)->mutable_duration()->set_seconds(-1);
       }},
      {"the duration of PHASE_ENCODE",
       [](v1::SyncPhases& sync) {
         sync.mutable_phases(1)->mutable_duration()->set_nanos(-1);
       }},
      {"the duration of PHASE_ENCODE",
       [](v1::SyncPhases& sync) {
         sync.mutable_phases(1)->mutable_duration()->set_seconds(INT64_MAX);
       }},
  };
  for (const Case& one : cases) {
    v1::ReportProgressRequest request = GoodReport();
    one.spoil(*request.mutable_sync_phases(2));
    const absl::Status status = CheckProgress(request);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(one.message));
    EXPECT_THAT(std::string(status.message()), HasSubstr("sync_phases[2]"));
  }
}

TEST(CheckProgressTest, RefusesMoreSynchronizationsThanAReportMayHave) {
  v1::ReportProgressRequest request = GoodReport();
  request.add_sync_phases()->set_seq(99);
  EXPECT_THAT(std::string(CheckProgress(request).message()),
              HasSubstr("has 17 synchronizations"));
}

TEST(IslandRequestsTest, ADigestIsOf64HexDigitsOrEmpty) {
  const std::string good(64, 'a');
  v1::IslandCapabilities capabilities;
  capabilities.add_devices();
  v1::ReportProgressRequest report;
  for (const std::string& digest :
       {std::string(), good, std::string(63, 'a'), good + "a",
        std::string(64, 'A'), std::string(64, 'g')}) {
    const bool is_good = digest.empty() || digest == good;
    capabilities.set_frozen_digest(digest);
    EXPECT_EQ(CheckCapabilities(capabilities).ok(), is_good) << digest;
    report.set_index_digest(digest);
    EXPECT_EQ(CheckProgress(report).ok(), is_good) << digest;
  }
  EXPECT_THAT(std::string(CheckCapabilities(capabilities).message()),
              HasSubstr("frozen_digest"));
}

}  // namespace
}  // namespace atl::coordinator
