// All that a server keeps of one shard of a run, over a FileSystem and a
// RecordStore. Five stores have the parts; this class opens them in order, and
// writes the one batch that concerns them all (Persist). server/store/DESIGN.md
// has the formats and what a crash at each step leaves.
//
// Thread-safe.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "atoll/v1/plan.pb.h"
#include "atoll/v1/run.pb.h"
#include "base/io/file_system.h"
#include "base/layout/layout.h"
#include "server/core/contribution_key.h"
#include "server/core/shard_machine.h"
#include "server/store/contribution_log.h"
#include "server/store/kept_log.h"
#include "server/store/manifest_store.h"
#include "server/store/records/record_store.h"
#include "server/store/store_context.h"
#include "server/store/sum_store.h"
#include "server/store/version_store.h"
#include "server/store/records/server_records.pb.h"

namespace atl::server {

class RunStore {
 public:
  // Opens a shard that has a record, as the Recover of each store says.
  // `state_count`: arrays of the outer optimizer. `images`: the memory for
  // versions; null: every array is read from its file and written to it.
  //
  // If `records` is damaged (RecordStore::damage): as OpenStopped.
  //
  // INVALID_ARGUMENT: this program does not know the run's codecs. DATA_LOSS,
  // UNAVAILABLE: as the stores' Recover.
  static absl::StatusOr<std::unique_ptr<RunStore>> Open(
      FileSystem& fs, RecordStore& records, const std::string& data_dir,
      const records::RunRecord& record, int state_count,
      std::shared_ptr<ImagePool> images = nullptr);

  // Opens only committed versions, for reading, and finds the manifests that
  // name them. Changes nothing on the disk.
  //
  // NOT_FOUND: there is no STATE. Other errors as Open.
  static absl::StatusOr<std::unique_ptr<RunStore>> OpenStopped(
      FileSystem& fs, RecordStore& records, const std::string& data_dir,
      const records::RunRecord& record, int state_count);

  // Takes a closed shard back to the cut of a restore, which began `run_epoch`;
  // does nothing if that is done. Open must follow: it removes the files that no
  // record names any longer. After an error or a crash, the shard is as it was
  // before, except for manifests of later cuts and deltas; call it again.
  // `log`: as Persist.
  //
  // DATA_LOSS: a version of the cut is not here whole, and nothing has changed;
  // or as RecordStore::Write. Other errors as the file system's.
  static absl::Status Rollback(FileSystem& fs, RecordStore& records,
                               const std::string& data_dir,
                               const records::RunRecord& record,
                               int state_count, int64_t run_epoch,
                               const v1::RestoredCut& restored,
                               const v1::LogPosition& log);

  // The fragments whose version of the cut is not here whole. Requires, besides
  // what Rollback does: the cut names each fragment once, in order.
  static absl::StatusOr<std::vector<int32_t>> ListLost(
      FileSystem& fs, RecordStore& records, const std::string& data_dir,
      const records::RunRecord& record, int state_count,
      const v1::RestoredCut& restored);

  // The state from which the machine starts.
  RecoveredShard Recovered() const;

  const v1::Run& run() const { return context_.run; }
  const RunLayout& layout() const { return context_.layout; }
  int32_t shard() const { return context_.shard; }
  int32_t shard_count() const { return context_.shard_count; }
  const ShardRange& range(int32_t fragment) const {
    return context_.ranges[fragment];
  }
  // Where the blocks of a contribution lie in the run's codec.
  const EncodedRange& encoded(int32_t fragment) const {
    return context_.encoded_ranges[fragment];
  }
  // Durability `island`: contributions are merged as they arrive, not kept.
  bool merges_live() const { return context_.merges_live; }

  VersionStore& versions() { return versions_; }
  const VersionStore& versions() const { return versions_; }
  SumStore& sums() { return sums_; }
  ContributionLog& contributions() { return contributions_; }
  ManifestStore& manifests() { return manifests_; }
  KeptLog& kept() { return kept_; }

  // Makes the commit's version, which is published, durable as the newest one,
  // and frees the contributions `keys`. `keep`: those that the commit merged go
  // to the kept log instead. `log`: the newest position of the coordinator's
  // log; may be empty.
  absl::Status Persist(int64_t run_epoch, const v1::Commit& commit,
                       absl::Span<const ContributionKey> keys,
                       bool keep = false, const v1::LogPosition& log = {});
  // Makes durable what is recorded at a lower durability than MACHINE.
  absl::Status Flush();
  // The newest position that Persist made durable; empty if there is none.
  v1::LogPosition log_seen() const { return versions_.log_seen(); }
  // Durability `island`: publishes a version so that it outlives the process,
  // unsynced. RecordPrepared must follow. `sum`: the merged gradient that the
  // version can be made from; null: `file` has all arrays already.
  absl::Status PublishPrepared(const PreparedFact& prepared,
                               std::shared_ptr<VersionFile> file,
                               std::shared_ptr<VersionFile> sum);
  // Undoes the publication of a version and its sum.
  void Unpublish(int32_t fragment, int64_t version);
  // Forgets a version that is not committed, with its delta and its sum.
  void DiscardVersion(int32_t fragment, int64_t version);

  // Makes files ahead of a round at `version`: segments for `count`
  // contributions, and the file of the next version.
  //
  // RESOURCE_EXHAUSTED: the disk is full.
  absl::Status ReserveRound(int32_t fragment, int64_t version, int64_t count);
  // Removes the files that are kept to be written again: no round comes.
  void DropSpares();

 private:
  RunStore(FileSystem& fs, RecordStore& records, const std::string& data_dir,
           const records::RunRecord& record, RunLayout layout, int state_count,
           std::shared_ptr<ImagePool> images);

  // The contributions that `commit` merged and that are here. Adds to `batch`
  // that the kept log has them.
  std::vector<std::shared_ptr<Contribution>> AddKept(const v1::Commit& commit,
                                                     RecordBatch* batch) const;

  const StoreContext context_;
  VersionStore versions_;
  SumStore sums_;
  ContributionLog contributions_;
  ManifestStore manifests_;
  KeptLog kept_;
};

}  // namespace atl::server
