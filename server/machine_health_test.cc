#include "server/machine_health.h"

#include <thread>

#include "base/time/clock.h"
#include "base/time/proto_time.h"
#include "gtest/gtest.h"

namespace atl::server {
namespace {

TEST(MachineHealthTest, ReportsTheDiskOnceItHasAnswered) {
  MachineHealth health(::testing::TempDir());
  const absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  const absl::Time give_up = SystemClock().Now() + absl::Minutes(2);
  v1::ServerHealth got = health.Get(now);
  while (got.disk_total_bytes() == 0 && SystemClock().Now() < give_up) {
    std::this_thread::yield();
    got = health.Get(now);
  }
  EXPECT_GT(got.disk_total_bytes(), 0);
  EXPECT_LE(got.disk_free_bytes(), got.disk_total_bytes());
  EXPECT_EQ(FromProto(got.time()), now);
}

TEST(MachineHealthTest, TheMedianOfTheNewestSyncsCounts) {
  MachineHealth health("/no-such-directory");
  EXPECT_FALSE(health.Get(absl::UnixEpoch()).has_sync_duration());
  for (int i = 0; i < 100; ++i) health.NoteSync(absl::Seconds(1));
  const auto sync = [&health] {
    return FromProto(health.Get(absl::UnixEpoch()).sync_duration());
  };
  EXPECT_EQ(sync(), absl::Seconds(1));
  for (int i = 0; i < 20; ++i) health.NoteSync(absl::Seconds(2));
  EXPECT_EQ(sync(), absl::Seconds(1));
  for (int i = 0; i < 44; ++i) health.NoteSync(absl::Seconds(2));
  EXPECT_EQ(sync(), absl::Seconds(2));
}

}  // namespace
}  // namespace atl::server
