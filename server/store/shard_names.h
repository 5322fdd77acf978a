// Where the files of one shard of a run lie, and what its records are called.
// A value. Thread-safe.

#ifndef SERVER_STORE_SHARD_NAMES_H_
#define SERVER_STORE_SHARD_NAMES_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "server/core/contribution_key.h"

namespace atl::server {

class ShardNames {
 public:
  ShardNames(absl::string_view data_dir, absl::string_view run_id)
      : directory_(absl::StrCat(data_dir, "/runs/", run_id)),
        run_id_(run_id) {}

  // DATA_DIR/runs/RUN; the files below are in its folders.
  const std::string& directory() const { return directory_; }
  const std::string& run_id() const { return run_id_; }

  std::string VersionPath(int32_t fragment, int64_t version) const {
    return absl::StrCat(directory_, "/versions/f", fragment, "-v", version,
                        ".ver");
  }
  std::string SegmentPath(int64_t number) const {
    return absl::StrFormat("%s/log/%010d.seg", directory_, number);
  }
  std::string ManifestPath(absl::string_view pin_id) const {
    return absl::StrCat(directory_, "/checkpoints/", pin_id, ".json");
  }

  // data/RUN/KIND.
  std::string RecordName(absl::string_view kind) const {
    return absl::StrCat("data/", run_id_, "/", kind);
  }
  // data/RUN/KIND/EPOCH-FRAGMENT-SLOT-SEQ, zero-padded.
  std::string KeyedName(absl::string_view kind,
                        const ContributionKey& key) const {
    return absl::StrFormat("%s/%020d-%010d-%010d-%020d", RecordName(kind),
                           key.run_epoch, key.fragment, key.slot, key.seq);
  }

 private:
  std::string directory_;
  std::string run_id_;
};

}  // namespace atl::server

#endif  // SERVER_STORE_SHARD_NAMES_H_
