// Merged contributions that pins keep: their segments stay, under `kept`
// records, until the last pin that keeps them is gone.
//
// Thread-safe. RunStore writes the `kept` record in the batch of the STATE that
// merged the contribution, then calls Put.

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
#include "absl/types/span.h"
#include "base/layout/digest.h"
#include "base/sync/mutex.h"
#include "server/core/contribution_key.h"
#include "server/store/contribution.h"
#include "server/store/records/record_store.h"
#include "server/store/store_context.h"

namespace atl::server {

struct KeptContribution {
  std::shared_ptr<Contribution> contribution;
  // This shard's part of the digest of the version that merged it.
  Digest128 digest;
  Digest128 replica_digest;  // The same of the replica, if the run has one.
};

class KeptLog {
 public:
  // `context` must outlive it.
  explicit KeptLog(const StoreContext& context) : context_(context) {}

  // Reads the records. Must come before any other call.
  //
  // DATA_LOSS: a record is damaged; the message names it.
  absl::Status Recover();

  // Adds a contribution whose record is durable. `commit_seq`: the commit that
  // merged it.
  void Put(int64_t commit_seq, const Contribution& contribution);
  // Opens a contribution for reading.
  //
  // NOT_FOUND: it is not kept. DATA_LOSS: its record is damaged, or its file
  // cannot be opened; the message names it.
  absl::StatusOr<KeptContribution> Find(const ContributionKey& key) const;
  // False once its file is about to be removed.
  bool Has(const ContributionKey& key) const;
  // Removes the contributions that these commits merged, and the `given_up`
  // records of `pins`. Open readers are not affected.
  absl::Status Drop(absl::Span<const int64_t> commit_seqs,
                    absl::Span<const std::string> pins);
  // Removes the contributions, and records durably that `pins` were given up.
  absl::Status GiveUp(absl::Span<const int64_t> commit_seqs,
                      absl::Span<const std::string> pins,
                      const std::string& reason);

  // Adds to `batch` that what later commits than `commit_seq` merged is no
  // longer kept. Reads the records only; a start frees the segments.
  absl::Status AddDropAfter(int64_t commit_seq, RecordBatch* batch) const;

  std::set<int64_t> Commits() const;
  std::set<std::string> Paths() const;
  // Results of Recover: the reason for each pin that was given up, by
  // PIN_ID@COMMIT_SEQ, and the greatest number of a segment.
  const std::map<std::string, std::string>& given_up() const {
    return given_up_;
  }
  int64_t last_segment() const { return last_segment_; }

 private:
  struct Kept {
    ContributionKey key;
    int64_t segment;
  };

  // Removes the files of the contributions that these commits merged, then adds
  // the deletion of their records to `batch`. After a crash between the two, a
  // later Drop deletes the records.
  void Remove(absl::Span<const int64_t> commit_seqs, RecordBatch* batch);

  const StoreContext& context_;
  std::map<std::string, std::string> given_up_;
  int64_t last_segment_ = 0;

  mutable Mutex mutex_;
  // By the commit_seq that merged them.
  std::map<int64_t, std::vector<Kept>> kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::server
