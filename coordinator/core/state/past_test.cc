#include "coordinator/core/state/past.h"

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::testing::ElementsAre;

v1::Restore Make(int64_t cut_commit_seq, int64_t commit_seq) {
  v1::Restore restore;
  restore.set_cut_commit_seq(cut_commit_seq);
  restore.set_commit_seq(commit_seq);
  return restore;
}

// The commits of the past up to `end`, as pages of readers find them.
std::vector<int64_t> ListPast(const std::deque<v1::Restore>& restores,
                              int64_t end) {
  std::vector<int64_t> past;
  for (int64_t at = SkipToPast(restores, 1); at < end;
       at = SkipToPast(restores, at)) {
    for (const int64_t gap = FindGap(restores, at, end); at < gap; ++at) {
      past.push_back(at);
    }
  }
  return past;
}

TEST(PastTest, HasEveryCommitWithoutARestore) {
  EXPECT_THAT(ListPast({}, 4), ElementsAre(1, 2, 3));
  EXPECT_EQ(CountPast({}, 2, 4), 2);
  EXPECT_FALSE(IsSuperseded({}, 1));
}

TEST(PastTest, LacksTheCommitsFromTheCutToTheRestore) {
  const std::deque<v1::Restore> restores = {Make(3, 6)};
  EXPECT_THAT(ListPast(restores, 9), ElementsAre(1, 2, 7, 8));
  EXPECT_EQ(CountPast(restores, 1, 9), 4);
  EXPECT_TRUE(IsSuperseded(restores, 3));
  EXPECT_TRUE(IsSuperseded(restores, 5));
  EXPECT_FALSE(IsSuperseded(restores, 6)) << "the restore itself";
}

TEST(PastTest, JoinsRestoresThatTouchOrContainEachOther) {
  // The second one goes back to before the first.
  EXPECT_THAT(ListPast({Make(5, 8), Make(3, 11)}, 13), ElementsAre(1, 2, 12));
  // To the first one's own cut, which is the pin right after it.
  EXPECT_THAT(ListPast({Make(3, 6), Make(7, 9)}, 12),
              ElementsAre(1, 2, 10, 11));
  EXPECT_THAT(ListPast({Make(3, 6), Make(9, 10)}, 12),
              ElementsAre(1, 2, 7, 8, 11));
  // Nothing was lost.
  EXPECT_THAT(ListPast({Make(4, 4)}, 6), ElementsAre(1, 2, 3, 5));
}

TEST(PastTest, DropsFirstTheRestoresThatALaterOneHides) {
  std::deque<v1::Restore> restores;
  AddRestore(Make(2, 3), restores);
  for (size_t i = 1; i < kRestoresMax; ++i) {
    AddRestore(Make(10 + 3 * i, 11 + 3 * i), restores);
  }
  ASSERT_EQ(restores.size(), kRestoresMax);
  AddRestore(Make(11, 1000), restores);
  ASSERT_EQ(restores.size(), kRestoresMax);
  EXPECT_EQ(restores.front().commit_seq(), 3) << "nothing hides it";
  EXPECT_EQ(restores[1].commit_seq(), 17);
}

TEST(PastTest, AForgottenRestoreGivesNothingBack) {
  std::deque<v1::Restore> restores;
  // The third is hidden by the fourth, not by the newest.
  for (const auto& [cut, at] : {std::pair{2, 4}, {6, 8}, {12, 14}, {11, 16}}) {
    AddRestore(Make(cut, at), restores);
  }
  for (int64_t at = 20; restores.size() < kRestoresMax; at += 3) {
    AddRestore(Make(at - 1, at), restores);
  }
  AddRestore(Make(999, 1000), restores);
  EXPECT_EQ(restores.size(), kRestoresMax);
  EXPECT_THAT(ListPast(restores, 12), ElementsAre(1, 5, 9, 10));
  // Nothing is hidden any longer: the two oldest become one.
  AddRestore(Make(1999, 2000), restores);
  EXPECT_EQ(restores.size(), kRestoresMax);
  EXPECT_THAT(ListPast(restores, 12), ElementsAre(1, 9, 10));
}

}  // namespace
}  // namespace atl::coordinator
