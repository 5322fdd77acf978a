// The protocol's values as people read them.
//
// Pure. Thread-safe.

#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "atoll/v1/plan.pb.h"
#include "atoll/v1/run.pb.h"
#include "atoll/v1/training_state_service.pb.h"
#include "google/protobuf/timestamp.pb.h"

namespace atl::cli {

// "ACTIVE", "MERGED", "READY": the value's name without the enum's prefix.
std::string EnumName(v1::RunState state);
std::string EnumName(v1::Outcome outcome);
std::string EnumName(v1::IslandState state);

// A table of one row: the run, its state and why it has that.
std::string DescribeRun(const v1::Run& run);

// How tensors travel: "top_k up with error feedback (decay 0.95), bf16 down".
std::string DescribeExchange(const v1::ExchangeSpec& exchange);

// The epoch for a time that is not set.
absl::Time ToTime(const google::protobuf::Timestamp& time);

// True once the run computes nothing more.
bool HasEnded(v1::RunState state);

// Smallest version of all fragments: complete rounds.
int64_t CompleteRounds(const v1::GetRunStateResponse& state);

// How much of the run is done, in [0, 1]: of its rounds or of its tokens,
// whichever is further.
double DoneShare(const v1::GetRunStateResponse& state);

// How long a run is: "30", or "-" where it is not given.
std::string PlannedRounds(const v1::ScheduleSpec& schedule);
std::string PlannedTokens(const v1::ScheduleSpec& schedule);

// A sentence if `spec` ends before its learning rate has warmed up, as where a
// preset's rounds or steps are cut and the rest is not; else empty.
std::string DescribeShortRun(const v1::RunSpec& spec);

// "12 of 30", and "12" of a run whose length in rounds is not given (0).
std::string DescribeRounds(int64_t done_count, int64_t round_count);

// "1,234", and of a run with a budget of tokens "1,234 of 5,000 (24.7 %)".
std::string DescribeTokens(int64_t merged_token_count,
                           const v1::ScheduleSpec& schedule);

// What a pin keeps of contributions: "1.2 MB of 20 MB", and where it ended.
std::string DescribeKept(const v1::Pin& pin);

// For whom the round waits that has waited longest, by the number that it will
// have when it is committed: "for b, c and 4 more since 2026-11-21T04:05:06Z:
// round 12 has 2 of 8". Empty if none waits.
std::string DescribeWait(const v1::GetRunStateResponse& state);

// One line for an event of a run with this schedule:
// "2026-11-21T04:05:06Z  round 12 committed: 3 merged".
std::string DescribeEvent(const v1::RunEvent& event,
                          const v1::ScheduleSpec& schedule);

}  // namespace atl::cli
