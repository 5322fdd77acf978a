// Merged contributions that pins keep: their segments stay, under records of
// their own, until the last pin that wants them is gone.
//
// Thread-safe. RunStore writes the record of a kept contribution in the batch
// of the STATE that merged it, then tells it here.

#ifndef SERVER_STORE_KEPT_LOG_H_
#define SERVER_STORE_KEPT_LOG_H_

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
#include "base/io/file_system.h"
#include "base/layout/digest.h"
#include "base/sync/mutex.h"
#include "server/core/contribution_key.h"
#include "server/store/contribution.h"
#include "server/store/encoded_range.h"
#include "server/store/record_store.h"
#include "server/store/shard_names.h"

namespace atl::server {

struct KeptContribution {
  std::shared_ptr<Contribution> contribution;
  // This shard's part, at the version that it was merged into.
  Digest128 digest;
  Digest128 replica_digest;  // Of V, in a run with a replica.
};

class KeptLog {
 public:
  // All must outlive it. `encoded_ranges`: by fragment, in the run's codec.
  KeptLog(FileSystem& fs, RecordStore& records, const ShardNames& names,
          const std::vector<EncodedRange>& encoded_ranges)
      : fs_(fs),
        records_(records),
        names_(names),
        encoded_ranges_(encoded_ranges) {}

  // Reads the records; before any other call.
  //
  // DATA_LOSS: one is damaged.
  absl::Status Recover();

  // The contribution's record is durable, and of commit `commit_seq`.
  void Put(int64_t commit_seq, const Contribution& contribution);
  // One, to be read.
  //
  // NOT_FOUND: it is not kept. DATA_LOSS: its file is missing or damaged; the
  // message names it.
  absl::StatusOr<KeptContribution> Find(const ContributionKey& key) const;
  // False from the moment that its file is about to go.
  bool Has(const ContributionKey& key) const;
  // Frees what these commits merged, and forgets that pins were given up.
  // Readers go on.
  absl::Status Drop(absl::Span<const int64_t> commit_seqs,
                    absl::Span<const std::string> pins);
  // The same, and notes durably that the pins were given up.
  absl::Status GiveUp(absl::Span<const int64_t> commit_seqs,
                      absl::Span<const std::string> pins,
                      const std::string& reason);

  // The commits of which contributions are kept.
  std::set<int64_t> Commits() const;
  // Paths of all segments.
  std::set<std::string> Paths() const;
  // As Recover found it: pins that were given up, with the reason, and the
  // greatest number of a segment.
  const std::map<std::string, std::string>& given_up() const {
    return given_up_;
  }
  int64_t last_segment() const { return last_segment_; }

 private:
  struct Kept {
    ContributionKey key;
    int64_t segment;
  };

  bool Fits(int32_t fragment) const;
  // Removes the files of what these commits merged, then adds the deletion of
  // its records to `batch`: a crash between them leaves what can be dropped
  // again.
  void Remove(absl::Span<const int64_t> commit_seqs, RecordBatch* batch);

  FileSystem& fs_;
  RecordStore& records_;
  const ShardNames& names_;
  const std::vector<EncodedRange>& encoded_ranges_;
  std::map<std::string, std::string> given_up_;
  int64_t last_segment_ = 0;

  mutable Mutex mutex_;
  // By commit_seq: what it merged and where that is.
  std::map<int64_t, std::vector<Kept>> kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::server

#endif  // SERVER_STORE_KEPT_LOG_H_
