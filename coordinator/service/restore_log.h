// `atoll-coordinator restore`: makes a log that takes the place of a lost one,
// from the mirror or from an older copy of the lost log's directory.
//
// Runs go back to their newest whole checkpoint. The numbers that peers compare
// continue above any that the lost log can have given out, so the peers continue
// by themselves (coordinator/RESTORE.md). Two such logs never share numbers: the
// mirror gets a cluster object of the new log, and the copy a file with a count.
// Nothing else of them is changed.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mirror/open_mirror.h"
#include "base/time/clock.h"

namespace atl::coordinator {

struct RestoreSpec {
  std::string data_dir;
  std::string from;  // URL of the mirror, or the directory of the copy.
  // Opens `from`. Empty: `from` is a directory.
  mirror::MirrorOpener open_mirror;
  // Needed if the mirror has several clusters.
  std::string cluster_id;
  // Only with a mirror: a file of `atoll-coordinator secret`; empty: none.
  std::string secret_file;
  bool without_secret = false;
};

struct RestoredRun {
  std::string run_id;
  // The checkpoint that it continues from; empty: it has none.
  std::string pin_id;
  int64_t commit = 0;  // The newest commit that it has.
  absl::Time checkpoint_time;
  // Without a checkpoint: what that means, as a sentence.
  std::string why_not;
};

struct RestoreResult {
  std::string cluster_id;
  std::vector<RestoredRun> runs;  // By run_id.
  std::vector<std::string> warnings;
};

// Makes the log. After a crash at any time the same call continues. Repeating it
// before the first start changes nothing; runs without a checkpoint in the
// mirror are not listed then.
//
// INVALID_ARGUMENT: `spec` contradicts itself; cluster_id or a secret is
// missing; the secret is of another log; the message says what to give.
// NOT_FOUND: `from` has no cluster or no log. ALREADY_EXISTS: the data directory
// has a log. FAILED_PRECONDITION: it holds other files, or the copy is in use.
// DATA_LOSS: the copy is damaged, or no cluster object can be read.
// Others: the disk's and the mirror's.
absl::StatusOr<RestoreResult> RestoreLog(const RestoreSpec& spec,
                                         const Clock& clock);

}  // namespace atl::coordinator
