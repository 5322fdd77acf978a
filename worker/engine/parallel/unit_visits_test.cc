#include "worker/engine/parallel/unit_visits.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace atl::engine {
namespace {

// On the last of two ranks of a tied model: blocks 0 and 1, head, table copy.
RankLayout LastRank() {
  RankLayout layout;
  layout.units.resize(4);
  layout.chunks = {{.stage = 1, .begin = 0, .end = 3}};
  layout.stage_count = 2;
  layout.head = 2;
  layout.table = 3;
  return layout;
}

std::string ToString(const std::vector<UnitVisit>& visits) {
  std::string text;
  for (const UnitVisit& visit : visits) {
    absl::StrAppend(&text, text.empty() ? "" : " ", visit.unit);
    if (visit.table >= 0) absl::StrAppend(&text, "+", visit.table);
  }
  return text;
}

TEST(UnitVisitsTest, AHeadNeedsItsTableWhereItMakesLogits) {
  const RankLayout layout = LastRank();
  const std::vector<PipelineAction> actions = MakePipelineSchedule(
      {.rank_count = 2, .micro_batch_count = 2}, /*rank=*/1);
  EXPECT_EQ(ToString(ListUnitVisits(layout, actions, false)),
            "0 1 2 2+3 1 0 0 1 2 2+3 1 0");
  EXPECT_EQ(ToString(ListUnitVisits(layout, ForwardActions(layout), true)),
            "0 1 2+3");
}

TEST(UnitVisitsTest, FlightsAreWhatTheScheduleKeepsAlive) {
  for (int m : {1, 2, 4, 8}) {
    for (int rank : {0, 1, 2, 3}) {
      RankLayout layout;
      layout.chunks = {{.stage = rank}};
      layout.stage_count = 4;
      const PipelineShape gpipe{.kind = PipelineKind::kGpipe,
                                .rank_count = 4,
                                .micro_batch_count = m};
      const PipelineShape one_f_one_b{.rank_count = 4, .micro_batch_count = m};
      EXPECT_EQ(CountFlights(layout, MakePipelineSchedule(gpipe, rank)),
                std::vector<int>{m});
      EXPECT_EQ(CountFlights(layout, MakePipelineSchedule(one_f_one_b, rank)),
                std::vector<int>{std::min(m, 4 - rank)});
    }
  }
}

}  // namespace
}  // namespace atl::engine
