#include "coordinator/core/rounds/kept_checkpoints.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A whole day, UTC.
const absl::Time kStart = absl::FromUnixSeconds(20'000 * 86'400);

// Makes a checkpoint every `period` for `duration`, and drops what expires.
class Series {
 public:
  explicit Series(int keep_count) : keep_count_(keep_count) {}

  void Make(absl::Time now, bool suspect = false) {
    ++made_;
    known_.push_back({absl::StrCat("round-", made_), made_, now, suspect});
    for (const std::string& id : ListExpired(known_, keep_count_, now)) {
      std::erase_if(known_, [&](const KnownCheckpoint& one) {
        return one.pin_id == id;
      });
    }
    EXPECT_LE(known_.size(), kCheckpointsMax);
  }
  void MakeEvery(absl::Duration period, absl::Duration duration,
                 bool suspect = false) {
    for (absl::Duration at; at < duration; at += period) {
      Make(now_ + at, suspect);
    }
    now_ += duration;
  }
  // Hours before the newest one.
  std::vector<int64_t> Ages() const {
    std::vector<int64_t> ages;
    for (const KnownCheckpoint& one : known_) {
      ages.push_back(absl::ToInt64Hours(known_.back().time - one.time));
    }
    return ages;
  }
  std::vector<std::string> Ids() const {
    std::vector<std::string> ids;
    for (const KnownCheckpoint& one : known_) ids.push_back(one.pin_id);
    return ids;
  }

 private:
  const int keep_count_;
  absl::Time now_ = kStart;
  int64_t made_ = 0;
  std::vector<KnownCheckpoint> known_;
};

TEST(KeptCheckpointsTest, KeepsTheNewestAndTheFirstOfTheHour) {
  Series run(0);
  run.MakeEvery(absl::Minutes(1), absl::Minutes(5));
  EXPECT_THAT(run.Ids(), SizeIs(5));
  run.MakeEvery(absl::Minutes(1), absl::Minutes(50));
  EXPECT_THAT(run.Ids(), ElementsAre("round-1", "round-51", "round-52",
                                     "round-53", "round-54", "round-55"));
}

TEST(KeptCheckpointsTest, KeepsOneAnHourForADayAndOneADayForAWeek) {
  Series run(2);
  run.MakeEvery(absl::Minutes(10), absl::Hours(24 * 20));
  const std::vector<int64_t> ages = run.Ages();
  // 24 hours, and the first of six earlier days; the newest is in the last hour.
  EXPECT_THAT(ages, SizeIs(24 + 6 + 2));
  for (int64_t hour = 0; hour < 24; ++hour) {
    EXPECT_THAT(ages, ::testing::Contains(hour)) << hour;
  }
  for (int64_t day = 2; day <= 7; ++day) {
    EXPECT_THAT(ages, ::testing::Contains(24 * day - 1)) << day;
  }
}

TEST(KeptCheckpointsTest, DaysComeBeforeHoursIfThereAreTooMany) {
  Series run(20);
  run.MakeEvery(absl::Minutes(10), absl::Hours(24 * 20));
  const std::vector<int64_t> ages = run.Ages();
  EXPECT_THAT(ages, SizeIs(kCheckpointsMax));
  for (int64_t day = 2; day <= 7; ++day) {
    EXPECT_THAT(ages, ::testing::Contains(24 * day - 1)) << day;
  }
  Series many(32);
  many.MakeEvery(absl::Minutes(10), absl::Hours(24 * 20));
  EXPECT_THAT(many.Ids(), SizeIs(kCheckpointsMax));
  EXPECT_THAT(many.Ages(), ::testing::Each(::testing::Lt(6)));
}

TEST(KeptCheckpointsTest, RareCheckpointsStayUntilTheyAreNotTheNewest) {
  Series run(3);
  run.MakeEvery(absl::Hours(24 * 30), absl::Hours(24 * 300));
  EXPECT_THAT(run.Ids(), ElementsAre("round-8", "round-9", "round-10"));
}

TEST(KeptCheckpointsTest, TheNewestThatIsNotSuspectStays) {
  Series run(5);
  run.MakeEvery(absl::Hours(1), absl::Hours(3));
  run.MakeEvery(absl::Minutes(10), absl::Hours(24 * 30), /*suspect=*/true);
  EXPECT_EQ(run.Ids().front(), "round-3");
}

TEST(KeptCheckpointsTest, AClockThatGoesBackReleasesNothingNew) {
  std::vector<KnownCheckpoint> known;
  for (int i = 1; i <= 5; ++i) {
    known.push_back({absl::StrCat("round-", i), i, kStart + absl::Hours(i)});
  }
  EXPECT_THAT(ListExpired(known, 1, kStart - absl::Hours(1)), IsEmpty());
  EXPECT_THAT(ListExpired({}, 1, kStart), IsEmpty());
}

}  // namespace
}  // namespace atl::coordinator
