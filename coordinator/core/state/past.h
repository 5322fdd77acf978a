// Which decisions of a run's order are its past.
//
// A restore takes the commits from its cut up to itself out of the past. They
// stay in the log and in the history, and readers skip them.
//
// Pure. Thread-safe.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "atoll/v1/run.pb.h"

namespace atl::coordinator {

// The newest restores of a run that are kept. One whose commits a later restore
// has superseded too is dropped first; else the two oldest become one, and the
// commits between them leave the past too.
inline constexpr size_t kRestoresMax = 64;

// True if one of `restores` went back to before commit `commit_seq`.
bool IsSuperseded(const std::deque<v1::Restore>& restores, int64_t commit_seq);

// The first number from `commit_seq` on that is neither superseded nor a
// restore. It may be one that has not been used yet.
int64_t SkipToPast(const std::deque<v1::Restore>& restores, int64_t commit_seq);

// The first number above `commit_seq`, at most `end`, that is not a commit of
// the past.
int64_t FindGap(const std::deque<v1::Restore>& restores, int64_t commit_seq,
                int64_t end);

// The commits of the past in [begin, end).
int64_t CountPast(const std::deque<v1::Restore>& restores, int64_t begin,
                  int64_t end);

// Adds the newest restore.
void AddRestore(const v1::Restore& restore, std::deque<v1::Restore>& restores);

}  // namespace atl::coordinator
