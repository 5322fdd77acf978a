// Checkpoints of a mirror that a command line names.
//
// Thread-compatible.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "atoll/storage/v1/mirror_manifest.pb.h"
#include "base/flags/flags.h"
#include "base/mirror/mirror_names.h"
#include "base/mirror/mirrored_checkpoint.h"
#include "base/object_store/object_store.h"
#include "cli/context.h"
#include "cli/output/output.h"

namespace atl::cli {

struct MirrorChoice {
  std::string url;
  std::string run;         // Its run_id or run_uid; empty: all.
  std::string checkpoint;  // EPOCH/COMMIT; empty: all.
};

// Adds the argument URL, and the flags --run and --checkpoint.
void AddMirrorUrl(flags::Command& command, MirrorChoice& choice);
void AddMirrorRun(flags::Command& command, MirrorChoice& choice);
void AddMirrorCheckpoint(flags::Command& command, MirrorChoice& choice,
                         const std::string& help);

// Opens the mirror with this user's credentials. Its waits end with `stop`.
// INVALID_ARGUMENT: no URL of a store.
absl::StatusOr<std::unique_ptr<ObjectStore>> OpenMirror(const Context& context,
                                                        const std::string& url,
                                                        std::stop_token stop);

// "EPOCH/COMMIT", the value of --checkpoint.
std::string FormatPlace(const mirror::CheckpointPlace& place);

// The tokens, or other units of weight, that the checkpoint was trained on, and
// "1,234 tokens".
int64_t TokenCount(const storage::v1::MirrorManifest& manifest);
std::string DescribeTokens(const storage::v1::MirrorManifest& manifest);

// The place, and the checkpoint or why it cannot be used.
struct FoundCheckpoint {
  mirror::CheckpointPlace place;
  std::unique_ptr<mirror::MirroredCheckpoint> checkpoint;  // Null: see problem.
  absl::Status problem;
};

// Reads the manifest at `place`. nullopt: its run has removed it meanwhile.
// Errors: those that say nothing about the checkpoint, such as UNAVAILABLE.
absl::StatusOr<std::optional<FoundCheckpoint>> ReadFound(
    ObjectStore& store, const mirror::CheckpointPlace& place);

// True for an error that is a fault of the checkpoint.
bool IsDamage(const absl::Status& status);

// True if the run has removed the checkpoint.
absl::StatusOr<bool> WasRemoved(ObjectStore& store,
                                const mirror::CheckpointPlace& place);

// The places that `choice` names, in order: all, or those of a run, or one.
//
// NOT_FOUND (NO_CHECKPOINT): none; the message says which there are.
// INVALID_ARGUMENT (a usage error): --checkpoint is malformed; or it, or the
// name of a run, stands for several runs.
absl::StatusOr<std::vector<mirror::CheckpointPlace>> FindPlaces(
    ObjectStore& store, const MirrorChoice& choice);

// The one that `choice` names; the newest of its run if it names none. Errors
// as FindPlaces and MirroredCheckpoint::Open. A usage error: the mirror has
// several runs, and `choice` names none.
absl::StatusOr<std::unique_ptr<mirror::MirroredCheckpoint>> OpenOne(
    ObjectStore& store, const MirrorChoice& choice);

// RESOURCE_EXHAUSTED (NOT_ENOUGH_MEMORY, exit code 10): this machine has not
// `bytes` of memory left for `what`.
absl::Status CheckMemoryFor(int64_t bytes, absl::string_view what);

// run_id, run_uid, run_epoch, commit_seq, checkpoint, pin_id, create_time,
// suspect, size_bytes, problem. Unknown fields of an unusable checkpoint are
// empty or 0.
Json DescribeFound(const FoundCheckpoint& found);

}  // namespace atl::cli
