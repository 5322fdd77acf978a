// Runs that continue from a checkpoint in the mirror because their own records
// are lost. Pure. Thread-safe.

#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "atoll/storage/v1/coordinator_records.pb.h"
#include "atoll/storage/v1/mirror_manifest.pb.h"

namespace atl::coordinator {

// MirrorManifest.format.
inline constexpr int32_t kManifestFormat = 1;

// Lost records may have gone further than a copy of them says. Numbers that
// never repeat continue so far above the copy's that no lost record had them.
inline constexpr int64_t kEpochJump = 1000;
inline constexpr int64_t kSeqJump = 1'000'000'000;

// The next multiple of kSeqJump: the first commit_seq, or number of a batch,
// after a loss. `count`: the multiple after so many, for the count-th log from
// one copy.
inline int64_t JumpSeq(int64_t seq, int64_t count = 1) {
  return (seq / kSeqJump + count) * kSeqJump;
}

// Numbers that the run had reached, if more is known than the manifest says: it
// may have been restored since.
struct ReachedNumbers {
  int64_t run_epoch = 0;
  int64_t commit_seq = 0;
};

// The first record of the run of `manifest`, which is restored to the manifest's
// cut. Its parts are not looked at.
//
// INVALID_ARGUMENT: the manifest lacks what a run needs, or contradicts itself;
// the message says what.
absl::StatusOr<storage::v1::RunCreated> ContinueRun(
    const storage::v1::MirrorManifest& manifest, absl::Time now,
    const ReachedNumbers& reached = {});

// The state that a record with `mirrored`, written at `time`, begins with.
storage::v1::RunSnapshot MakeRunSnapshot(
    const storage::v1::RunCreated& created, absl::Time time);

}  // namespace atl::coordinator
