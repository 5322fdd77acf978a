// The versions of a shard: their files, the memory that they lie in, their
// deltas, and the STATE record that says which of them are durable.
//
// A version is made in three steps: New gives an empty file, the caller writes
// it, Publish makes it readable. Commit says that it is now the newest one, and
// Seal makes its file durable.
//
// Thread-safe. Bytes are read and written outside the locks.

#pragma once

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
#include "atoll/v1/plan.pb.h"
#include "atoll/v1/run.pb.h"
#include "base/layout/digest.h"
#include "base/sync/mutex.h"
#include "server/core/shard_machine.h"
#include "server/store/delta_ring.h"
#include "server/store/store_context.h"
#include "server/store/version_file.h"
#include "server/store/version_image.h"
#include "server/store/records/server_records.pb.h"

namespace atl::server {

class VersionStore {
 public:
  // `context` must outlive it. `optimizer_state_count`: arrays of the outer
  // optimizer. `images`: the memory for versions; null: every array is read
  // from its file and written to it.
  VersionStore(const StoreContext& context, int optimizer_state_count,
               std::shared_ptr<ImagePool> images);

  // Reads the records, opens the files that they name and removes all others.
  // Must come before any other call.
  //
  // DATA_LOSS: a record is damaged, or the file of a durable version is missing
  // or damaged; the message names it. UNAVAILABLE: the disk does not give such
  // a file; the file stays as it is.
  absl::Status Recover();
  // Instead of Recover, if records are gone: opens the files of committed
  // versions for reading, and changes nothing on the disk.
  //
  // NOT_FOUND: there is no STATE. Else as Recover.
  absl::Status RecoverDamaged();
  // Adds to `recovered` what was found.
  void AddRecovered(RecoveredShard& recovered) const;

  // Arrays of a version after theta: those of the outer optimizer, then the
  // replica if the run has one.
  int state_count() const { return state_count_; }
  // The array that islands pull: the replica, or theta (0) in a run without.
  int replica_array() const { return deltas_ == nullptr ? 0 : state_count_; }
  // Null if the run has no replica.
  DeltaRing* deltas() { return deltas_.get(); }

  // An empty file for a version, with its space reserved: the file that Reserve
  // made, or a new one in the place of an earlier attempt's.
  //
  // RESOURCE_EXHAUSTED: the disk is full.
  absl::StatusOr<std::shared_ptr<VersionFile>> New(int32_t fragment,
                                                   int64_t version);
  // Makes the file of a version ahead of New. Does nothing if New was called.
  //
  // RESOURCE_EXHAUSTED: the disk is full.
  absl::Status Reserve(int32_t fragment, int64_t version);
  // Removes a file that New made and that its caller does not publish. A file
  // that is published, or whose name another attempt has taken, stays. `file`
  // may be null.
  void GiveUp(int32_t fragment, int64_t version,
              const std::shared_ptr<VersionFile>& file);

  // Makes a version that was made with New readable.
  void Publish(int32_t fragment, int64_t version, HeldVersion held);
  // Undoes Publish: the caller may publish the version again, or give it up.
  void Unpublish(int32_t fragment, int64_t version);
  // Notes at which commit a published version became the newest.
  void Commit(int32_t fragment, int64_t version, int64_t commit_seq);
  // The version, if it is held.
  std::optional<HeldVersion> Find(int32_t fragment, int64_t version) const;
  // Forgets a version and deletes its file. Current readers keep theirs.
  void Remove(int32_t fragment, int64_t version);
  // Forgets a version that is not committed, with its delta.
  void Discard(int32_t fragment, int64_t version);
  // Removes the files that are kept to be written again: no round comes.
  void DropSpares();

  // Makes version 0, which is published, durable. `norm_squared`: as
  // Version0Fact has it.
  absl::Status PersistVersion0(int32_t fragment, double norm_squared);
  // Writes the record of a prepared version, before anyone hears of it.
  absl::Status RecordPrepared(const PreparedFact& prepared);
  // Makes the file of the commit's version durable under its final name.
  // Returns its digest; 0 if the shard holds no block of the fragment.
  absl::StatusOr<Digest128> Seal(const v1::Commit& commit);
  // Adds STATE to `batch`: the commit's version, which Seal made durable, is
  // the newest one.
  // `log`: the newest position of the coordinator's log; may be empty.
  void AddState(int64_t run_epoch, const v1::Commit& commit,
                const Digest128& digest, const v1::LogPosition& log,
                RecordBatch* batch);
  // The position in STATE; empty if it has none.
  v1::LogPosition log_seen() const;
  // Instead of Recover, which must follow on another store. Adds to `batch`
  // that the cut's versions are the newest ones, under `run_epoch`, and that
  // none is prepared. Changes nothing itself. False, and nothing to do: STATE
  // has this run_epoch already. Reads every block of the cut, and the replicas
  // too.
  //
  // DATA_LOSS: a version of the cut is not here whole; the message names it.
  absl::StatusOr<bool> AddRestored(int64_t run_epoch,
                                   const v1::RestoredCut& restored,
                                   const v1::LogPosition& log,
                                   RecordBatch* batch);

  // Before AddRestored: the fragments whose version of the cut is not here
  // whole. Reads every block of the cut, and the replicas too. Requires: the
  // cut names each fragment once, in order.
  std::vector<int32_t> ListLost(const v1::RestoredCut& restored);

  // Versions that an earlier process prepared and whose files are not here.
  std::vector<PreparedFact> FindUnmade() const;
  // Publishes such a version, made again with the digests that it had.
  void AdoptUnmade(const PreparedFact& fact, std::shared_ptr<VersionFile> file);

 private:
  using Place = std::pair<int32_t, int64_t>;  // Fragment and version.

  static constexpr int64_t kReadBlocks = 64;  // 1 MiB.

  bool has_replica() const;
  // Arrays of a version that are the outer optimizer's.
  int optimizer_count() const;
  // The bytes that the images of the run take at most.
  int64_t ImageBytesMax() const;
  // Gives memory to the arrays of `file`: what the version before can hand
  // over, then what the pool has left.
  void SetImages(int32_t fragment, int64_t version, VersionFile& file);
  // Frees the memory of durable versions that are not the newest.
  void DropOldImages(int32_t fragment);
  // An empty version file: a spare one, or a new one.
  absl::StatusOr<std::shared_ptr<VersionFile>> MakeFile(int32_t fragment,
                                                        int64_t version);
  // Keeps the file of a removed version as a spare, or deletes it.
  void Retire(int32_t fragment, int64_t version,
              std::shared_ptr<VersionFile> file);

  // Makes the replica of `version`, which is `file`, from its theta and the
  // replica of `before`, for a file that does not contain it.
  VersionFile::ArrayMaker MakerOfReplica(int32_t fragment, int64_t version,
                                         const VersionFile& file,
                                         std::shared_ptr<VersionFile> before);
  // Leaves the replica out of a version's file if the version before has it.
  void LeaveOutReplica(int32_t fragment, int64_t version, VersionFile& file);

  absl::Status RecoverState();
  absl::Status RecoverFiles();
  // Opens the file of a version for reading.
  //
  // DATA_LOSS: it is damaged, or another version than its name says.
  absl::StatusOr<std::shared_ptr<VersionFile>> OpenVersion(
      const std::string& path, int32_t fragment, int64_t version) const;
  // Recovers the file `name` of the versions' folder: publishes, keeps or
  // removes it.
  absl::Status RecoverFile(const std::string& name,
                           const records::StateRecord& state);
  // DATA_LOSS unless every durable version is held with its digest.
  absl::Status CheckDurable(const records::StateRecord& state) const;
  // Durability `island`: publishes a version that an earlier process prepared.
  // False if the file at `path` is incomplete or not the recorded version.
  //
  // UNAVAILABLE: the disk does not give the file.
  absl::StatusOr<bool> AdoptPrepared(const std::string& path, int32_t fragment,
                                     int64_t version);
  // Opens and reads a version of a cut.
  //
  // DATA_LOSS: it is missing or damaged, or of another commit than the cut's.
  absl::StatusOr<VersionIdentity> CheckWhole(const v1::FragmentVersion& wanted);

  absl::Status RecoverDeltas();
  // Finds the version before for files that do not contain their replica.
  absl::Status RecoverReplicas();
  // Makes the delta of a held version again if it is missing and the version
  // before is held; true if it did.
  absl::StatusOr<bool> MakeDeltaAgain(int32_t fragment, int64_t version);

  const StoreContext& context_;
  const int state_count_;
  const std::shared_ptr<ImagePool> images_;  // The run's share; may be null.
  // False: the optimizer's arrays are in files only.
  const bool maps_state_;
  std::unique_ptr<DeltaRing> deltas_;  // Made by Recover.

  // Held while a version's file is made or reserved: one file has one name.
  // Taken before mutex_.
  Mutex making_mutex_;
  // By fragment: the newest version that New was asked for.
  std::map<int32_t, int64_t> newest_made_ ABSL_GUARDED_BY(making_mutex_);
  // By fragment: the newest file that New made, which owns its name. Compared
  // only, never dereferenced.
  std::map<int32_t, const VersionFile*> made_ ABSL_GUARDED_BY(making_mutex_);

  mutable Mutex mutex_;
  records::StateRecord state_ ABSL_GUARDED_BY(mutex_);
  std::map<Place, HeldVersion> versions_ ABSL_GUARDED_BY(mutex_);
  // Files that Reserve made.
  std::map<Place, std::shared_ptr<VersionFile>> reserved_
      ABSL_GUARDED_BY(mutex_);
  // Released versions from which the replica of the next one is made.
  std::map<Place, std::shared_ptr<VersionFile>> replica_bases_
      ABSL_GUARDED_BY(mutex_);
  // By fragment: files of released versions, to be written again.
  std::map<int32_t, std::vector<std::shared_ptr<VersionFile>>> spares_
      ABSL_GUARDED_BY(mutex_);
  // Versions that earlier processes prepared, and the fragments whose prepared
  // version this process has.
  std::vector<PreparedFact> prepared_ ABSL_GUARDED_BY(mutex_);
  std::set<int32_t> prepared_here_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::server
