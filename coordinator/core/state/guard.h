// The band of a run: whether a commit or an evaluation looks like damage.
//
//   n, l    norm of the merged outer gradient, and guard loss, of a commit
//   high    the largest of the newest 64 values of the fragment inside the band
//   median  their lower median
//
// A commit is outside if n > high max(10, high / median), or if
// l > high + max(3 (high - median), |median| / 2), or if one is not finite. The
// first 16 commits only make the band: their finite values are inside. An
// evaluation is compared like l, with the newest ones of the same island, because
// islands may hold other data. It needs 3 of them, and so does a failure.
//
// Only growth is damage. `high` lets in what an ordinary run has: warm-up, fewer
// islands in a merge, islands with other data or step counts. 10 is above what
// n grows by if 64 islands with independent gradients become 1, which is 8.
//
// Pure. Thread-safe.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "atoll/storage/v1/coordinator_records.pb.h"

namespace atl::coordinator {

// Values that a band is made of, and from how many on it counts.
inline constexpr int kBandValuesMax = 64;
inline constexpr int kBandValuesMin = 16;
inline constexpr size_t kBandEvaluationsMin = 3;
// Commits of a fragment, after the one that left the band, that make no
// checkpoint. So many in a row inside end the suspicion.
inline constexpr int64_t kHeldCommitsMax = 8;

// How a commit leaves the fragment's band, in a sentence without an end; empty:
// it does not.
std::string FindDamage(const storage::v1::FragmentGuard& guard, double norm,
                       std::optional<double> loss);

// The same for an evaluation. `losses`: the earlier ones of the same island.
// `loss` is NaN if the evaluation failed.
std::string FindEvaluationDamage(const std::vector<double>& losses,
                                 double loss);

// Notes a commit. `outside`: why it is outside the band, with its name; empty:
// it is inside.
void NoteCommit(double norm, std::optional<double> loss,
                const std::string& outside, storage::v1::FragmentGuard& guard);

// Notes an evaluation of the fragment, in the same way.
void NoteEvaluation(const std::string& outside,
                    storage::v1::FragmentGuard& guard);

}  // namespace atl::coordinator
