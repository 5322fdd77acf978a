#include "coordinator/core/outputs/round_phases.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/time/proto_time.h"

namespace atl::coordinator {
namespace {

void AddPhases(const RunState& state, const Observations& observed,
               v1::Round& round) {
  for (v1::RoundContribution& contribution : *round.mutable_contributions()) {
    const int32_t slot = contribution.info().key().slot();
    // Another island may have taken over the slot since.
    if (slot < 0 || static_cast<size_t>(slot) >= observed.members.size() ||
        state.members()[slot].record.island_id() != contribution.island_id()) {
      continue;
    }
    for (v1::PhaseTime& phase :
         observed.members[slot].phases.Find(contribution.info().key().seq())) {
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

void AddPhases(const RunState& state, const Observations& observed,
               int64_t bytes_max, v1::ListRoundsResponse& page) {
  int64_t bytes = 0;
  for (int i = 0; i < page.rounds_size(); ++i) {
    AddPhases(state, observed, *page.mutable_rounds(i));
    bytes += static_cast<int64_t>(page.rounds(i).ByteSizeLong());
    if (i == 0 || bytes <= bytes_max) continue;
    page.set_next_page_token(absl::StrCat(page.rounds(i - 1).commit_seq()));
    page.mutable_rounds()->DeleteSubrange(i, page.rounds_size() - i);
  }
}

}  // namespace atl::coordinator
