// The contributions of a shard on their way to a commit: their records, and the
// segment files that their bytes are in.
//
// A contribution is bound to its first header, its blocks arrive (PARTIAL), it
// is finished (STORED) or refused (REFUSED), and it is dropped once a commit
// has decided it. At durability `island` only imports have a segment: all else
// is counted here and merged as it arrives.
//
// Thread-safe. Bytes are read and written outside the lock.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "atoll/v1/plan.pb.h"
#include "base/layout/layout.h"
#include "base/sync/mutex.h"
#include "server/core/contribution_key.h"
#include "server/core/shard_machine.h"
#include "server/store/contribution.h"
#include "server/store/records/record_store.h"
#include "server/store/store_context.h"
#include "server/store/records/server_records.pb.h"

namespace atl::server {

class ContributionLog {
 public:
  // `context` must outlive it.
  explicit ContributionLog(const StoreContext& context) : context_(context) {}

  // Opens the segments, checks what PARTIAL contributions have, and removes
  // segments that no record names. `kept_paths`: segments of the kept log,
  // which stay closed; `last_segment`: their greatest number. Must come before
  // any other call.
  //
  // A STORED contribution whose segment is missing or short is lost. Its record
  // stays until the key is bound again or decided: an operator may bring the
  // file back. A merge checks the bytes of segments, a start does not.
  //
  // DATA_LOSS: a record is damaged; the message names it.
  absl::Status Recover(const std::set<std::string>& kept_paths,
                       int64_t last_segment);
  // Adds to `recovered` what Recover found.
  void AddRecovered(RecoveredShard& recovered) const;

  // Makes free segments until the fragment has `count` contributions to
  // `version`, bound or to come. From then on it keeps at most `count` free
  // segments, and deletes others that become free.
  //
  // RESOURCE_EXHAUSTED: the disk is full.
  absl::Status Reserve(int32_t fragment, int64_t version, int64_t count);
  // Removes the free segments: no round comes.
  void DropSpares();

  // Binds a key to its first header and gives it a segment, or finds the
  // contribution that it is bound to.
  //
  // RESOURCE_EXHAUSTED: the disk is full.
  absl::StatusOr<std::shared_ptr<Contribution>> Bind(
      const v1::ContributionInfo& info);
  // Durability `island`: restarts these contributions for the live set
  // `live_set_id` and returns them in this order, without unbound ones.
  std::vector<std::shared_ptr<Contribution>> Renew(
      absl::Span<const ContributionKey> keys, int64_t live_set_id);
  // Null if the key is not bound.
  std::shared_ptr<Contribution> Find(const ContributionKey& key) const;
  // Writes the encoding of claimed blocks, the concatenation of `pieces`, and
  // their record. Settles the claim in either case. True: the contribution is
  // complete, and the caller must call Finish.
  absl::StatusOr<bool> WriteBlocks(Contribution& contribution,
                                   IndexRange blocks,
                                   absl::Span<const absl::string_view> pieces,
                                   absl::Span<const BlockFact> facts);
  // PARTIAL -> STORED at the run's durability. Returns the squared norm. After
  // an error the caller may try again; but if the bytes could not be synced,
  // the contribution is forgotten and must be pushed again.
  absl::StatusOr<double> Finish(Contribution& contribution);
  // Makes the bytes of all contributions durable, also of PARTIAL ones, because
  // a sync of the records covers their records too.
  absl::Status SyncSegments();
  // Refuses the key for good. Requires: TakeRefusal or TakeFinish said true.
  absl::Status Refuse(const v1::ContributionInfo& info,
                      const std::string& reason);
  // Frees contributions in any state.
  absl::Status Drop(absl::Span<const ContributionKey> keys);
  // The contributions of `seal` whose bytes do not match their checksums. Reads
  // all of them: for use after a merge has met damage.
  std::vector<ContributionKey> FindDamaged(const v1::Seal& seal) const;
  // Forgets contributions whose bytes are lost, durably, and deletes their
  // segments. The keys can be bound again.
  absl::Status Lose(absl::Span<const ContributionKey> keys);

  // --- For RunStore::Persist ------------------------------------------------

  // A segment that is free once the records that name it are gone.
  struct FreedSegment {
    ContributionKey key;  // The contribution that had it.
    std::unique_ptr<Segment> segment;
    // The commit that decided it, if Persist freed it: a start without the
    // STATE of that commit merges it again.
    int64_t commit_seq = 0;
  };
  // Segments and keys that a batch frees once it is written.
  struct Freed {
    std::vector<FreedSegment> segments;
    std::vector<ContributionKey> keys;  // In deleting_ until then.
  };
  // Takes the contributions out of the map, waits for their users, and adds the
  // deletion of their records to `batch`. Adds those whose deletion failed
  // earlier too, unless a commit after `commit_seq`, whose STATE is in `batch`,
  // has decided them.
  Freed TakeOut(absl::Span<const ContributionKey> keys, RecordBatch* batch,
                int64_t commit_seq = 0);
  // Writes a batch that TakeOut has filled, then frees the segments. If the
  // write fails, the next TakeOut deletes the records again.
  absl::Status WriteAndRecycle(const RecordBatch& batch, Sync sync,
                               Freed freed);
  // Adds the deletion of all records of a contribution that the kept log keeps.
  void DeleteRecords(const ContributionKey& key, RecordBatch* batch) const;
  // That deletion is durable: forgets the contribution; its segment stays.
  void HandOver(const std::shared_ptr<Contribution>& contribution);

 private:
  // False: only imports have segments.
  bool keeps_contributions() const { return !context_.merges_live; }
  absl::Status RecoverSegments(const std::set<std::string>& kept_paths);
  absl::Status RecoverStored();
  absl::Status RecoverPartial(const records::BoundRecord& bound,
                              std::unique_ptr<Segment> segment);
  absl::Status RecoverRefused();
  // Writes the STORED record of a contribution whose bytes are durable.
  absl::StatusOr<double> RecordStored(Contribution& contribution);
  // Free segment `number`; null if there is none or its size is not the
  // contribution's.
  std::unique_ptr<Segment> TakeFreeSegment(const ContributionKey& key,
                                           int64_t number);
  absl::StatusOr<std::unique_ptr<Segment>> NewSegment(int32_t fragment,
                                                      int64_t payload_bytes);
  // Returns the number of a segment that could not be made, so that attempts
  // against a full disk do not use numbers up.
  void GiveNumberBack(int64_t number);
  absl::StatusOr<std::unique_ptr<Segment>> TakeSegment(
      const ContributionKey& key);
  // True if its size is that of the fragment's contributions.
  bool IsReusable(int32_t fragment, const Segment& segment) const;
  // Keeps a segment for the next contribution, or deletes it: it does not fit,
  // or there are enough.
  void Recycle(int32_t fragment, std::unique_ptr<Segment> segment);
  // Deletes free segments that no contribution can use.
  void DropUselessSegments();
  // The segments of `key` whose deletion failed: `batch`, which binds the key
  // again, frees them.
  Freed TakeUndeleted(const ContributionKey& key, RecordBatch* batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const StoreContext& context_;

  mutable Mutex mutex_;
  std::map<ContributionKey, std::shared_ptr<Contribution>> contributions_
      ABSL_GUARDED_BY(mutex_);
  std::map<ContributionKey, RefusedFact> refused_ ABSL_GUARDED_BY(mutex_);
  // Contributions with a STORED record and without bytes, and the reason.
  std::map<ContributionKey, std::string> lost_ ABSL_GUARDED_BY(mutex_);
  std::map<int32_t, std::vector<std::unique_ptr<Segment>>> free_segments_
      ABSL_GUARDED_BY(mutex_);
  // By fragment: Reserve's newest `count`; before that, the free segments that
  // a start found.
  std::map<int32_t, int64_t> reserved_ ABSL_GUARDED_BY(mutex_);
  // Freed, but records may still name them.
  std::vector<FreedSegment> undeleted_ ABSL_GUARDED_BY(mutex_);
  // A batch that deletes their records is being written. Bind waits for it, or
  // the batch would delete the new records.
  std::multiset<ContributionKey> deleting_ ABSL_GUARDED_BY(mutex_);
  CondVar deleted_;
  int64_t next_segment_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace atl::server
