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

class ShardNames {
 public:
  ShardNames(absl::string_view data_dir, absl::string_view run_id,
             int32_t shard)
      : run_directory_(absl::StrCat(data_dir, "/runs/", run_id)),
        directory_(absl::StrCat(run_directory_, "/shard-", shard)),
        record_prefix_(absl::StrCat("data/", run_id, "/", shard, "/")) {}

  // DATA_DIR/runs/RUN.
  const std::string& run_directory() const { return run_directory_; }
  // DATA_DIR/runs/RUN/shard-SHARD; the folders below are in it.
  const std::string& directory() const { return directory_; }

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

  // data/RUN/SHARD/KIND.
  std::string RecordName(absl::string_view kind) const {
    return absl::StrCat(record_prefix_, kind);
  }
  // data/RUN/SHARD/KIND/EPOCH-FRAGMENT-SLOT-SEQ, zero-padded.
  std::string KeyedName(absl::string_view kind,
                        const ContributionKey& key) const {
    return absl::StrFormat("%s/%020d-%010d-%010d-%020d", RecordName(kind),
                           key.run_epoch, key.fragment, key.slot, key.seq);
  }

 private:
  std::string run_directory_;
  std::string directory_;
  std::string record_prefix_;
};

}  // namespace atl::server
