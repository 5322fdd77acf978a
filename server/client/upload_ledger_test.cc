#include "server/client/upload_ledger.h"

#include <algorithm>
#include <iostream>
#include <map>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace atl::server {
namespace {

using Ranges = std::vector<IndexRange>;

TEST(UploadLedgerTest, StreamsShareWhatIsMissing) {
  UploadLedger ledger({10, 20}, 1000);
  EXPECT_TRUE(ledger.Next(0, 4).empty());  // Nobody has asked the shard.
  EXPECT_FALSE(ledger.Answered(ledger.Asked(), Ranges{{10, 14}, {16, 20}}));
  EXPECT_EQ(ledger.Next(0, 3), (IndexRange{10, 13}));
  EXPECT_EQ(ledger.Next(1, 3), (IndexRange{13, 14}));
  EXPECT_EQ(ledger.Next(0, 3), (IndexRange{16, 19}));
  EXPECT_EQ(ledger.Next(1, 3), (IndexRange{19, 20}));
  EXPECT_TRUE(ledger.Next(1, 3).empty());
}

TEST(UploadLedgerTest, RangesEndAtUnitsWhereverTheyBegin) {
  UploadLedger ledger({10, 33}, 1000, 4);
  ledger.Answered(ledger.Asked(), Ranges{{13, 25}, {27, 33}});
  EXPECT_EQ(ledger.Next(0, 4), (IndexRange{13, 14}));
  EXPECT_EQ(ledger.Next(0, 4), (IndexRange{14, 18}));
  EXPECT_EQ(ledger.Next(0, 7), (IndexRange{18, 22}));
  EXPECT_EQ(ledger.Next(0, 7), (IndexRange{22, 25}));
  EXPECT_EQ(ledger.Next(0, 4), (IndexRange{27, 30}));
  // The end of the part is not the end of a unit.
  EXPECT_EQ(ledger.Next(0, 4), (IndexRange{30, 33}));
}

TEST(UploadLedgerTest, LessThanAUnitIsAPartOfOne) {
  UploadLedger ledger({10, 33}, 1000, 8);
  ledger.Answered(ledger.Asked(), Ranges{{10, 33}});
  EXPECT_EQ(ledger.Next(0, 3), (IndexRange{10, 13}));
  EXPECT_EQ(ledger.Next(1, 1), (IndexRange{13, 14}));
  EXPECT_EQ(ledger.Next(0, 7), (IndexRange{14, 18}));  // To the unit's end.
  EXPECT_EQ(ledger.Next(1, 5), (IndexRange{18, 23}));
  EXPECT_EQ(ledger.Next(0, 8), (IndexRange{23, 26}));
  EXPECT_EQ(ledger.Next(0, 5), (IndexRange{26, 31}));
  EXPECT_EQ(ledger.Next(0, 5), (IndexRange{31, 33}));
}

TEST(UploadLedgerTest, WhatAnOpenStreamHasSentIsOnItsWay) {
  UploadLedger ledger({0, 10}, 1000);
  ledger.Answered(ledger.Asked(), Ranges{{0, 10}});
  ledger.Next(0, 6);
  // The second stream's answer: two blocks have come, four have not.
  EXPECT_TRUE(ledger.Answered(ledger.Asked(), Ranges{{2, 10}}));
  EXPECT_FALSE(ledger.Answered(ledger.Asked(), Ranges{{2, 10}}));
  EXPECT_EQ(ledger.Next(1, 10), (IndexRange{6, 10}));
}

TEST(UploadLedgerTest, WhatABrokenStreamSentWaitsForTheNextAnswer) {
  UploadLedger ledger({0, 10}, 1000);
  ledger.Answered(ledger.Asked(), Ranges{{0, 10}});
  ledger.Next(0, 4);
  ledger.Next(1, 4);
  ledger.Broke(0);
  EXPECT_EQ(ledger.Next(1, 10), (IndexRange{8, 10}));
  EXPECT_TRUE(ledger.Next(1, 10).empty());
  ledger.Answered(ledger.Asked(), Ranges{{3, 10}});
  EXPECT_EQ(ledger.Next(0, 10), (IndexRange{3, 4}));
  EXPECT_TRUE(ledger.Next(0, 10).empty());
}

TEST(UploadLedgerTest, WhatAShardHasLostIsDueAgain) {
  UploadLedger ledger({0, 4}, 1000);
  ledger.Answered(ledger.Asked(), Ranges{{2, 4}});
  EXPECT_FALSE(ledger.Answered(ledger.Asked(), Ranges{{0, 4}}));
  EXPECT_EQ(ledger.Next(0, 10), (IndexRange{0, 4}));
}

TEST(UploadLedgerTest, AnAnswerThatWasPassedByANewerOneChangesNothing) {
  UploadLedger ledger({0, 8}, 1000);
  const int64_t first = ledger.Asked();
  const int64_t second = ledger.Asked();
  ledger.Answered(first, Ranges{{0, 8}});
  ledger.Next(0, 4);
  ledger.Answered(ledger.Asked(), Ranges{{2, 8}});
  // Asked before the first two had come.
  ledger.Answered(second, Ranges{{0, 8}});
  EXPECT_EQ(ledger.Next(1, 10), (IndexRange{4, 8}));
  // Asked before their stream broke.
  const int64_t third = ledger.Asked();
  ledger.Broke(0);
  ledger.Answered(third, Ranges{{2, 4}});
  EXPECT_TRUE(ledger.Next(1, 10).empty());
  ledger.Answered(ledger.Asked(), Ranges{{3, 4}});
  EXPECT_EQ(ledger.Next(1, 10), (IndexRange{3, 4}));
}

TEST(UploadLedgerTest, ProgressIsWhatIsHeldOrSentAndAllWhenItIsStored) {
  UploadLedger ledger({0, 10}, 1000);
  EXPECT_EQ(ledger.done_bytes(), 0);
  ledger.Answered(ledger.Asked(), Ranges{{5, 10}});
  EXPECT_EQ(ledger.done_bytes(), 500);
  ledger.Next(0, 2);
  EXPECT_EQ(ledger.done_bytes(), 700);
  ledger.Broke(0);
  EXPECT_EQ(ledger.done_bytes(), 500);
  EXPECT_FALSE(ledger.is_stored());
  ledger.Stored();
  EXPECT_TRUE(ledger.is_stored());
  EXPECT_EQ(ledger.done_bytes(), 1000);
  EXPECT_TRUE(ledger.Next(0, 10).empty());
}

// Random arrivals, crossing answers and broken streams. Every block arrives,
// and none is sent again that had come before the shard was asked.
TEST(UploadLedgerTest, EveryBlockComesAndNoneTwiceWithoutNeed) {
  const uint32_t seed = std::random_device{}();
  std::cout << "seed " << seed << std::endl;
  std::mt19937 random(seed);
  const auto chance = [&](int n) { return random() % n == 0; };
  for (int trial = 0; trial < 200; ++trial) {
    const int64_t first = random() % 100;
    const int64_t count = 1 + random() % 60;
    const int stream_count = 1 + static_cast<int>(random() % 4);
    UploadLedger ledger({first, first + count}, 4 * count);
    std::vector<bool> held(count);
    std::map<int, Ranges> open;  // Streams, and their blocks in flight.
    struct Question {
      int64_t asked;
      Ranges missing;  // The answer, in flight.
    };
    std::map<int, Question> questions;
    std::vector<int> sent(count), lost(count);
    for (int step = 0; step < 100000; ++step) {
      if (std::find(held.begin(), held.end(), false) == held.end()) break;
      const int stream = static_cast<int>(random() % stream_count);
      if (!open.contains(stream)) {
        Ranges missing;
        for (int64_t i = 0; i < count; ++i) {
          if (held[i]) continue;
          if (missing.empty() || missing.back().end != first + i) {
            missing.push_back({first + i, first + i});
          }
          ++missing.back().end;
        }
        questions[stream] = {ledger.Asked(), missing};
        open[stream] = {};
      } else if (chance(20)) {
        for (const IndexRange& range : open[stream]) {
          for (int64_t b = range.begin; b < range.end; ++b) ++lost[b - first];
        }
        open.erase(stream);
        questions.erase(stream);
        ledger.Broke(stream);
      } else if (questions.contains(stream)) {
        if (!chance(3)) continue;
        ledger.Answered(questions[stream].asked, questions[stream].missing);
        questions.erase(stream);
      } else if (chance(2) && !open[stream].empty()) {
        const IndexRange range = open[stream].front();
        open[stream].erase(open[stream].begin());
        for (int64_t b = range.begin; b < range.end; ++b) {
          held[b - first] = true;
        }
      } else {
        const IndexRange range = ledger.Next(stream, 1 + random() % 8);
        if (range.empty()) continue;
        for (int64_t b = range.begin; b < range.end; ++b) {
          ++sent[b - first];
          ASSERT_FALSE(held[b - first]) << "seed " << seed;
        }
        open[stream].push_back(range);
      }
    }
    for (int64_t i = 0; i < count; ++i) {
      EXPECT_TRUE(held[i]) << "seed " << seed;
      EXPECT_LE(sent[i], 1 + lost[i]) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace atl::server
