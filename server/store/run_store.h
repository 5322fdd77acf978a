// Everything that a server keeps of one run's shard: records, version files and
// the contribution log, over a FileSystem and a RecordStore. DESIGN.md has the
// formats and what a crash at each step leaves.
//
// Thread-safe. Bytes are read and written outside the lock.

#ifndef SERVER_STORE_RUN_STORE_H_
#define SERVER_STORE_RUN_STORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "atoll/v1/plan.pb.h"
#include "atoll/v1/run.pb.h"
#include "base/io/file_system.h"
#include "base/layout/digest.h"
#include "base/layout/layout.h"
#include "base/sync/mutex.h"
#include "server/core/contribution_key.h"
#include "server/core/shard_machine.h"
#include "server/store/contribution.h"
#include "server/store/delta_ring.h"
#include "server/store/encoded_range.h"
#include "server/store/kept_log.h"
#include "server/store/manifest_store.h"
#include "server/store/record_store.h"
#include "server/store/shard_names.h"
#include "server/store/shard_range.h"
#include "server/store/version_file.h"
#include "server/store/version_image.h"
#include "server_records.pb.h"

namespace atl::server {

class RunStore {
 public:
  // Opens a run that has a record: checks its files, verifies what PARTIAL
  // contributions have, removes what nothing names.
  //
  // A STORED contribution whose segment is missing or short is lost. Its record
  // stays, for an operator who brings the file back, until it is bound again or
  // decided. The bytes of segments are checked when they are merged.
  //
  // DATA_LOSS: a version's file that a record names is missing or damaged; the
  // message names it. UNAVAILABLE: the disk does not give such a file; it is as
  // it was. INVALID_ARGUMENT: the run's codecs are not known.
  //
  // `state_count`: arrays of the outer optimizer. `images` is the memory for
  // versions; null: all of them are read from and written to their files.
  static absl::StatusOr<std::unique_ptr<RunStore>> Open(
      FileSystem& fs, RecordStore& records, const std::string& data_dir,
      const records::RunRecord& record, int state_count,
      std::shared_ptr<ImagePool> images = nullptr);

  // What the machine starts from.
  RecoveredShard Recovered() const;

  const v1::Run& run() const { return run_; }
  const RunLayout& layout() const { return layout_; }
  int32_t shard() const { return shard_; }
  const ShardRange& range(int32_t fragment) const { return ranges_[fragment]; }
  // Where a contribution's blocks lie when encoded by the run's codec.
  const EncodedRange& encoded(int32_t fragment) const {
    return encoded_ranges_[fragment];
  }
  // Arrays of a version after theta: the outer optimizer's, then V if there is
  // a view.
  int state_count() const { return state_count_; }
  // The array of a version that is V; 0, theta, if the run has no view.
  int replica_array() const { return deltas_ == nullptr ? 0 : state_count_; }
  // Null if the run has no view.
  DeltaRing* deltas() { return deltas_.get(); }
  // Level ISLAND: contributions are merged as they come, and none is kept.
  bool merges_live() const { return merges_live_; }

  // --- Versions -------------------------------------------------------------

  // A file for a version that is being made, with its space. What an earlier
  // attempt left is removed; a file that Reserve made is taken.
  //
  // RESOURCE_EXHAUSTED: the disk is full.
  absl::StatusOr<std::shared_ptr<VersionFile>> NewVersion(int32_t fragment,
                                                          int64_t version);
  // What NewVersion and NewSum made is of no use to who asked for it: the files
  // are removed, but for those that are published, and those whose name is
  // another attempt's by now. Either may be null.
  void GiveUp(int32_t fragment, int64_t version,
              const std::shared_ptr<VersionFile>& file,
              const std::shared_ptr<VersionFile>& sum);
  // Makes a version readable that was made by NewVersion.
  void PublishVersion(int32_t fragment, int64_t version, HeldVersion held);
  // Notes at which commit a published version became the newest.
  void CommitVersion(int32_t fragment, int64_t version, int64_t commit_seq);
  // The version, if it is held.
  std::optional<HeldVersion> FindVersion(int32_t fragment,
                                         int64_t version) const;
  // Forgets a version: its file is deleted. Readers that hold it go on.
  void RemoveVersion(int32_t fragment, int64_t version);
  // Forgets what a merge made that is not committed.
  void DiscardVersion(int32_t fragment, int64_t version);
  // Takes back that such a version was published, with its sum: who made it
  // may publish it again, or give it up.
  void Unpublish(int32_t fragment, int64_t version);

  // Version 0 is published: makes it durable.
  absl::Status PersistVersion0(int32_t fragment);
  // PREPARED, before anyone hears of it.
  absl::Status RecordPrepared(const PreparedFact& prepared);
  // Publishes a version of level ISLAND so that it outlives the process, all
  // unsynced. RecordPrepared has to follow. Its arrays are in its file already
  // (`sum` is null), or `sum` has the merged gradient that it is made from.
  absl::Status PublishPrepared(const PreparedFact& prepared,
                               std::shared_ptr<VersionFile> file,
                               std::shared_ptr<VersionFile> sum);

  // --- Sums: what a version of level ISLAND is made from -------------------

  // A file for the merged gradient of a version that is being made: a version
  // file of one array, which Write writes at once.
  //
  // RESOURCE_EXHAUSTED: the disk is full.
  absl::StatusOr<std::shared_ptr<VersionFile>> NewSum(int32_t fragment,
                                                      int64_t version);
  // A version that an earlier process prepared and that is to be made again
  // from its sum, before Recovered() is asked.
  struct Unmade {
    PreparedFact prepared;
    std::shared_ptr<VersionFile> sum;
  };
  std::vector<Unmade> UnmadeVersions() const;
  // `file` is such a version, made again, with the digests that it had.
  void AdoptUnmade(const Unmade& unmade, std::shared_ptr<VersionFile> file);
  // STATE: makes a published version durable as the newest, and frees `keys`;
  // but with `keep` those that the commit merged are kept. Of a fragment without
  // a file here only the number is kept.
  absl::Status Persist(int64_t run_epoch, const v1::Commit& commit,
                       absl::Span<const ContributionKey> keys,
                       bool keep = false);

  // --- Parts of their own ----------------------------------------------------

  ManifestStore& manifests() { return manifests_; }
  KeptLog& kept() { return kept_; }

  // --- Contributions --------------------------------------------------------

  // Segments that wait for contributions of `fragment`: makes them up to
  // `count`, and reserves the next version's file.
  //
  // RESOURCE_EXHAUSTED: the disk is full.
  absl::Status ReserveRound(int32_t fragment, int64_t version, int64_t count);

  // Removes what waits to be written again, segments and versions' files: no
  // round comes. What is freed later is spare again.
  void DropSpares();

  // Binds a key to its first header and gives it a segment, or finds what it
  // is bound to.
  //
  // RESOURCE_EXHAUSTED: the disk is full.
  absl::StatusOr<std::shared_ptr<Contribution>> Bind(
      const v1::ContributionInfo& info);
  // Level ISLAND: starts these contributions over, for set `live_set_id`, and
  // returns them, in this order. Those that are not bound are left out.
  std::vector<std::shared_ptr<Contribution>> Renew(
      absl::Span<const ContributionKey> keys, int64_t live_set_id);
  // Null if the key is not bound.
  std::shared_ptr<Contribution> Find(const ContributionKey& key) const;
  // Writes the encoding of claimed blocks, which `pieces` are one after the
  // other, and their record. Returns true if the contribution is complete and
  // the caller has to Finish it. The claim is settled either way.
  absl::StatusOr<bool> WriteBlocks(Contribution& contribution,
                                   IndexRange blocks,
                                   absl::Span<const absl::string_view> pieces,
                                   absl::Span<const BlockFact> facts);
  // PARTIAL -> STORED at the run's durability. Returns the norm squared. After
  // an error it can be tried again; but if its bytes could not be synced they
  // are in doubt for good: then it is forgotten, and can be bound again.
  absl::StatusOr<double> Finish(Contribution& contribution);
  // Refuses the key for good. Requires: TakeRefusal or TakeFinish said true.
  absl::Status Refuse(const v1::ContributionInfo& info,
                      const std::string& reason);
  // Frees contributions, whatever their state.
  absl::Status Drop(absl::Span<const ContributionKey> keys);
  // Those of `seal` whose bytes here do not match their checksums. Reads all of
  // them: for when a merge has met damage.
  std::vector<ContributionKey> FindDamaged(const v1::Seal& seal) const;
  // Forgets contributions whose bytes are lost, durably, and removes their
  // segments: the disk is not trusted there. They can be bound again then.
  absl::Status Lose(absl::Span<const ContributionKey> keys);

 private:
  RunStore(FileSystem& fs, RecordStore& records, absl::string_view data_dir,
           const records::RunRecord& record, RunLayout layout, int state_count,
           std::shared_ptr<ImagePool> images);

  // Arrays of a version that are the outer optimizer's.
  int optimizer_count() const;
  // Memory for the arrays of `file`, a version that is made from the one
  // before: what of that can be given away, then what there is room for.
  void SetImages(int32_t fragment, int64_t version, VersionFile& file);
  // What the images of a run take at most.
  int64_t ImageBytesMax() const;
  // Lets go of the memory of durable versions that are not the newest.
  void DropOldImages(int32_t fragment);
  // An empty version file: a spare one, or a new one.
  absl::StatusOr<std::shared_ptr<VersionFile>> MakeVersionFile(int32_t fragment,
                                                               int64_t version);

  // Makes V of `version`, which is `file`, from theta and V of `before`: for a
  // file that does without.
  VersionFile::ArrayMaker MakerOfReplica(int32_t fragment, int64_t version,
                                         const VersionFile& file,
                                         std::shared_ptr<VersionFile> before);
  // Lets a version's file do without V if the one before has it.
  void LeaveOutReplica(int32_t fragment, int64_t version, VersionFile& file);
  // A version's file that nobody finds any more: spare, or removed.
  void RetireVersion(int32_t fragment, int64_t version,
                     std::shared_ptr<VersionFile> file);

  absl::Status RecoverState();
  absl::Status RecoverVersions();
  absl::Status RecoverSums();
  // The sum of what was prepared, if it is there and the version is not; else
  // null.
  //
  // UNAVAILABLE: the disk does not give it.
  absl::StatusOr<std::shared_ptr<VersionFile>> OpenSum(
      const PreparedFact& fact);
  // Finds what V of versions is made from whose files do without.
  absl::Status RecoverReplicas();
  absl::Status RecoverDeltas();
  // Makes D of a version that is held, as the one before is, if it is missing;
  // true if it did.
  absl::StatusOr<bool> MakeDeltaAgain(int32_t fragment, int64_t version);
  // Level ISLAND: takes up a version that was prepared by an earlier process;
  // false if the file at `path` is not whole, or not the one that was recorded.
  //
  // UNAVAILABLE: the disk does not give it.
  absl::StatusOr<bool> AdoptPrepared(const std::string& path, int32_t fragment,
                                     int64_t version);
  std::string SumPath(int32_t fragment, int64_t version) const;
  // The version is made and durable, or given up: its sum's file can be written
  // again.
  void RecycleSum(int32_t fragment, int64_t version);
  absl::Status RecoverSegments();
  absl::Status RecoverContributions();
  absl::Status RecoverStored();
  // Writes the STORED record of a contribution whose bytes are durable.
  absl::StatusOr<double> RecordStored(Contribution& contribution);
  // Segment `number` out of the free ones; null if there is none, or not of the
  // size that the contribution has.
  std::unique_ptr<Segment> TakeFreeSegment(const ContributionKey& key,
                                           int64_t number);
  // True if the shard has a part of the key's fragment.
  bool Fits(const v1::ContributionKey& key) const;
  // Adds the deletion of all records about a key.
  void DeleteRecords(const ContributionKey& key, RecordBatch* batch) const;
  absl::Status RecoverPartial(const records::BoundRecord& bound,
                              std::unique_ptr<Segment> segment);
  // Adds STATE to `batch`.
  void AddState(RecordBatch* batch) ABSL_LOCKS_EXCLUDED(mutex_);

  // Where the blocks of a contribution of `key` lie: imports are f32.
  const EncodedRange& FindEncoded(const ContributionKey& key) const;
  absl::StatusOr<std::unique_ptr<Segment>> NewSegment(int32_t fragment,
                                                      int64_t payload_bytes);
  // Of a segment that could not be made: whoever tries for hours says the same.
  void GiveNumberBack(int64_t number);
  absl::StatusOr<std::unique_ptr<Segment>> TakeSegment(
      const ContributionKey& key);
  // True if it has the size that contributions have.
  bool IsUsedAgain(int32_t fragment, const Segment& segment) const;
  // Keeps a segment for the next contribution, or removes it.
  void Recycle(int32_t fragment, std::unique_ptr<Segment> segment);
  // Removes free segments that no contribution will have.
  void DropUselessSegments();
  // A segment that is free once the records that name it are gone.
  struct FreedSegment {
    ContributionKey key;  // Whose it was.
    std::unique_ptr<Segment> segment;
    // The COMMIT that decided it, if it was Persist that gave it up: a start
    // without STATE of that COMMIT merges it again.
    int64_t commit_seq = 0;
  };
  // What a batch frees once it is written.
  struct Freed {
    std::vector<FreedSegment> segments;
    std::vector<ContributionKey> keys;  // Are in deleting_ until then.
  };
  // Takes the keys' contributions out of the map, waits for who uses them, and
  // adds their records' deletion to `batch`: no record about them is written
  // after it. With them go those of which an earlier deletion failed, but for
  // what a COMMIT beyond `commit_seq`, which `batch` has STATE of, has decided.
  Freed TakeOut(absl::Span<const ContributionKey> keys, RecordBatch* batch,
                int64_t commit_seq = 0);
  // Writes `batch`, which TakeOut has filled: then the segments are free. If it
  // cannot be written, the next TakeOut deletes their records too.
  absl::Status WriteAndRecycle(const RecordBatch& batch, Sync sync,
                               Freed freed);
  // Those of `key` whose deletion failed: with `batch`, in which it is bound
  // anew, they are free.
  Freed TakeUndeleted(const ContributionKey& key, RecordBatch* batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What `commit` merged and is here. Adds to `batch` that it is kept.
  std::vector<std::shared_ptr<Contribution>> AddKept(const v1::Commit& commit,
                                                     RecordBatch* batch) const;
  // That is durable: their files are closed and stay.
  void PutKept(int64_t commit_seq,
               absl::Span<const std::shared_ptr<Contribution>> kept);
  void RecycleAll(std::vector<FreedSegment> segments);

  FileSystem& fs_;
  RecordStore& records_;
  const ShardNames names_;
  const v1::Run run_;
  const RunLayout layout_;
  const int32_t shard_;
  const int32_t shard_count_;
  const int state_count_;
  const Sync durability_;
  const bool merges_live_;
  const std::vector<ShardRange> ranges_;
  const std::vector<EncodedRange> encoded_ranges_;  // By the run's codec up.
  const std::vector<EncodedRange> import_ranges_;   // f32.
  const std::shared_ptr<ImagePool> images_;  // The run's share; may be null.
  // If not, the optimizer's arrays are in files alone.
  const bool maps_state_;
  std::unique_ptr<DeltaRing> deltas_;  // Of a run with a replica; made by Open.
  ManifestStore manifests_;
  KeptLog kept_;

  // Held while a version's file is made or reserved, so that no two are made
  // under one name. Before mutex_.
  Mutex making_mutex_;
  // The newest version of each fragment that NewVersion was asked for.
  std::map<int32_t, int64_t> newest_made_ ABSL_GUARDED_BY(making_mutex_);
  // The newest of each fragment that NewVersion and NewSum made: whose name is
  // that of an older one for the same version. Not to be followed.
  std::map<int32_t, const VersionFile*> made_ ABSL_GUARDED_BY(making_mutex_);
  std::map<int32_t, const VersionFile*> made_sums_
      ABSL_GUARDED_BY(making_mutex_);

  mutable Mutex mutex_;
  records::StateRecord state_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<int32_t, int64_t>, HeldVersion> versions_
      ABSL_GUARDED_BY(mutex_);
  // The next version's file of a fragment, made ahead.
  std::map<std::pair<int32_t, int64_t>, std::shared_ptr<VersionFile>>
      reserved_versions_ ABSL_GUARDED_BY(mutex_);
  // Released versions that V of the next one is made from, which is held.
  std::map<std::pair<int32_t, int64_t>, std::shared_ptr<VersionFile>>
      replica_bases_ ABSL_GUARDED_BY(mutex_);
  // Released versions' files of a fragment, to be written again.
  std::map<int32_t, std::vector<std::shared_ptr<VersionFile>>> spare_versions_
      ABSL_GUARDED_BY(mutex_);
  // Of versions that are prepared or committed, and not persisted.
  std::map<std::pair<int32_t, int64_t>, std::shared_ptr<VersionFile>> sums_
      ABSL_GUARDED_BY(mutex_);
  std::map<int32_t, std::vector<std::shared_ptr<VersionFile>>> spare_sums_
      ABSL_GUARDED_BY(mutex_);
  std::map<ContributionKey, std::shared_ptr<Contribution>> contributions_
      ABSL_GUARDED_BY(mutex_);
  std::map<ContributionKey, RefusedFact> refused_ ABSL_GUARDED_BY(mutex_);
  // Have a STORED record and no bytes; why.
  std::map<ContributionKey, std::string> lost_ ABSL_GUARDED_BY(mutex_);
  std::map<int32_t, std::vector<std::unique_ptr<Segment>>> free_segments_
      ABSL_GUARDED_BY(mutex_);
  // Given up, and records may still name them.
  std::vector<FreedSegment> undeleted_ ABSL_GUARDED_BY(mutex_);
  // A batch is being written that deletes their records: what is bound anew
  // waits for it, or it would delete the new records.
  std::multiset<ContributionKey> deleting_ ABSL_GUARDED_BY(mutex_);
  CondVar deleted_;
  int64_t next_segment_ ABSL_GUARDED_BY(mutex_) = 1;
  std::vector<PreparedFact> prepared_ ABSL_GUARDED_BY(mutex_);
  std::set<int32_t> prepared_here_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::server

#endif  // SERVER_STORE_RUN_STORE_H_
