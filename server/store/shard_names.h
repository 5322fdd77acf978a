// Paths of the files of one shard of a run, and names of its records.
//
// A value. Thread-safe.

#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "server/core/contribution_key.h"

namespace atl::server {

// Stands in paths for the run_uid of a run that has none.
inline constexpr char kNoRunUid[] = "00000000000000000000000000000000";

class ShardNames {
 public:
  // `run_uid`: Run.run_uid, may be empty.
  ShardNames(absl::string_view data_dir, absl::string_view run_id,
             absl::string_view run_uid, int32_t shard)
      : run_directory_(absl::StrCat(data_dir, "/runs/", run_id, ".",
                                    run_uid.empty() ? kNoRunUid : run_uid)),
        directory_(absl::StrCat(run_directory_, "/shard-", shard)) {}

  // DATA_DIR/runs/RUN_ID.RUN_UID.
  const std::string& run_directory() const { return run_directory_; }
  // The run's directory and /shard-SHARD; the folders below are in it.
  const std::string& directory() const { return directory_; }

  std::string records() const { return directory_ + "/records"; }
  std::string versions() const { return directory_ + "/versions"; }
  std::string sums() const { return directory_ + "/sums"; }
  std::string deltas() const { return directory_ + "/deltas"; }
  std::string log() const { return directory_ + "/log"; }
  std::string checkpoints() const { return directory_ + "/checkpoints"; }

  std::string VersionPath(int32_t fragment, int64_t version) const {
    return absl::StrCat(versions(), "/f", fragment, "-v", version, ".ver");
  }
  std::string SumPath(int32_t fragment, int64_t version) const {
    return absl::StrCat(sums(), "/f", fragment, "-v", version, ".sum");
  }
  std::string SegmentPath(int64_t number) const {
    return absl::StrFormat("%s/%010d.seg", log(), number);
  }
  std::string ManifestPath(absl::string_view pin_id) const {
    return absl::StrCat(checkpoints(), "/", pin_id, ".json");
  }

  // Name of a record: KIND/EPOCH-FRAGMENT-SLOT-SEQ, zero-padded.
  static std::string KeyedName(absl::string_view kind,
                               const ContributionKey& key) {
    return absl::StrFormat("%s/%020d-%010d-%010d-%020d", kind, key.run_epoch,
                           key.fragment, key.slot, key.seq);
  }

 private:
  std::string run_directory_;
  std::string directory_;
};

}  // namespace atl::server
