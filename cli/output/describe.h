// The protocol's values as text for people.
//
// Pure. Thread-safe.

#pragma once

#include <cstdint>
#include <string>

#include "atoll/v1/plan.pb.h"
#include "atoll/v1/run.pb.h"
#include "atoll/v1/training_state_service.pb.h"
#include "google/protobuf/timestamp.pb.h"

namespace atl::cli {

// "ACTIVE", "MERGED", "READY": the value's name without the enum's prefix.
std::string EnumName(v1::RunState state);
std::string EnumName(v1::Outcome outcome);
std::string EnumName(v1::IslandState state);
std::string EnumName(v1::IslandPhase phase);

// A READY island's phase, if it tells one; else its state.
std::string DescribeWork(const v1::Island& island);

// The run's state, and the code of its fault: "PAUSED (SHARD_BEHIND)".
std::string DescribeRunState(const v1::Run& run);

// A table of one row: the run, its state and the reason of the state.
std::string DescribeRun(const v1::Run& run);

// The run's model: "llama, 860,160 parameters" or, if only its trainer knows it,
// "external, 1,234 parameters in 5 tensors". The architecture alone, if `spec`
// comes without its tensors.
std::string DescribeModel(const v1::RunSpec& spec);

// The codecs: "top_k up with error feedback (decay 0.95), bf16 down".
std::string DescribeExchange(const v1::ExchangeSpec& exchange);

// True for COMPLETED and CANCELLED.
bool HasEnded(v1::RunState state);

// Complete rounds: the smallest version of all fragments.
int64_t CompleteRounds(const v1::GetRunStateResponse& state);

// The share of the run that is done, in [0, 1]: the larger of its share of
// rounds and of tokens.
double DoneShare(const v1::GetRunStateResponse& state);

// The length of a run: "30", or "-" if not given.
std::string PlannedRounds(const v1::ScheduleSpec& schedule);
std::string PlannedTokens(const v1::ScheduleSpec& schedule);

// A warning if `spec` ends before its learning rate has warmed up, for example
// when a file shortens a preset but keeps its warm-up; else empty. An external
// model warms up only after a fresh start.
std::string DescribeShortRun(const v1::RunSpec& spec);

// "12 of 30", or "12" if round_count is 0 (not given).
std::string DescribeRounds(int64_t done_count, int64_t round_count);

// Names an evaluation's island: ", by attic"; empty if it is not known.
std::string DescribeEvaluator(const v1::Evaluation& evaluation);

// "version 3 evaluated: validation loss 2.5000, by attic", or why it failed.
std::string DescribeEvaluation(const v1::Evaluation& evaluation);

// "1,234", or "1,234 of 5,000 (24.7 %)" for a run with a token budget.
std::string DescribeTokens(int64_t merged_token_count,
                           const v1::ScheduleSpec& schedule);

// "to round-2, the state after commit 8, at 2026-11-28T04:05:06Z: commits 9 to
// 14 are lost".
std::string DescribeRestore(const v1::Restore& restore);

// The contributions that a pin keeps: "1.2 MB of 20 MB", and where it stopped.
std::string DescribeKept(const v1::Pin& pin);

// "2 refused, sits out until commit 41: WHY".
std::string DescribeSittingOut(const v1::SittingOut& sitting,
                               int64_t commit_seq);

// Why an island left: "stop requested (at step 120, training loss 2.31)".
std::string DescribeLeave(const v1::IslandLeave& leave);

// The islands that the longest-waiting round waits for: "for b, c and 4 more
// since 2026-11-21T04:05:06Z: round 12 has 2 of 8". The number is the round's
// number at its commit. Empty: no round waits.
std::string DescribeWait(const v1::GetRunStateResponse& state);

// One line for an event of a run with `schedule`:
// "2026-11-21T04:05:06Z  round 12 committed: 3 merged".
std::string DescribeEvent(const v1::RunEvent& event,
                          const v1::ScheduleSpec& schedule);

}  // namespace atl::cli
