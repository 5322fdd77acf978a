#include "coordinator/core/outputs/round_phases.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/time/proto_time.h"

namespace atl::coordinator {
namespace {

void AddPhases(const std::vector<IslandPhases>& islands, v1::Round& round) {
  for (v1::RoundContribution& contribution : *round.mutable_contributions()) {
    const int32_t slot = contribution.info().key().slot();
    // Another island may have taken over the slot since.
    if (slot < 0 || static_cast<size_t>(slot) >= islands.size() ||
        islands[slot].island_id != contribution.island_id()) {
      continue;
    }
    for (v1::PhaseTime& phase :
         islands[slot].phases.Find(contribution.info().key().seq())) {
      *contribution.add_phases() = std::move(phase);
    }
    if (contribution.phases().empty() ||
        contribution.outcome() != v1::OUTCOME_MERGED) {
      continue;
    }
    v1::PhaseTime& merge = *contribution.add_phases();
    merge.set_phase(v1::PHASE_MERGE);
    *merge.mutable_start_time() = round.seal_time();
    *merge.mutable_duration() =
        ToProto(FromProto(round.commit_time()) - FromProto(round.seal_time()));
  }
}

}  // namespace

std::vector<IslandPhases> ListPhases(const RunState& state,
                                     const Observations& observed) {
  std::vector<IslandPhases> islands;
  for (size_t slot = 0; slot < observed.members.size(); ++slot) {
    islands.push_back({state.members()[slot].record.island_id(),
                       observed.members[slot].phases});
  }
  return islands;
}

void AddPhases(const std::vector<IslandPhases>& islands, int64_t bytes_max,
               v1::ListRoundsResponse& page) {
  int64_t bytes = 0;
  for (int i = 0; i < page.rounds_size(); ++i) {
    AddPhases(islands, *page.mutable_rounds(i));
    bytes += static_cast<int64_t>(page.rounds(i).ByteSizeLong());
    if (i == 0 || bytes <= bytes_max) continue;
    page.set_next_page_token(absl::StrCat(page.rounds(i - 1).commit_seq()));
    page.mutable_rounds()->DeleteSubrange(i, page.rounds_size() - i);
  }
}

}  // namespace atl::coordinator
