// One contribution as it arrives in the log: which blocks are there, and their
// bytes in a segment file.
//
// Thread-safe: several streams may write one contribution. A block is written
// by whoever claims it first; a copy that comes later is not looked at.
// Blocks are named by their number in the fragment.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "atoll/v1/plan.pb.h"
#include "base/io/file_system.h"
#include "base/layout/layout.h"
#include "base/sync/mutex.h"
#include "server/core/contribution_key.h"
#include "server/store/encoded_range.h"
#include "server/store/encoded_source.h"

namespace atl::server {

// A file of the log: a header page, then the encoded blocks of one contribution
// at their final offsets. DESIGN.md, "Segment".
struct Segment {
  int64_t number = 0;
  int64_t payload_bytes = 0;  // What it has room for.
  std::string path;
  std::unique_ptr<RandomAccessFile> file;
};

// What is known of a block besides its bytes.
struct BlockFact {
  uint32_t crc32c = 0;
  double norm_squared = 0;
};

class Contribution : public EncodedSource {
 public:
  enum class State { kPartial, kStored, kRefused };

  // A contribution of which nothing has come. Without a segment its blocks are
  // only counted: whoever writes them keeps nothing (level ISLAND).
  // `encoded` is that of the info's codec, and must outlive it.
  Contribution(const v1::ContributionInfo& info, const EncodedRange& encoded,
               std::unique_ptr<Segment> segment, int64_t live_set_id = 0);

  const v1::ContributionInfo& info() const { return info_; }
  const ContributionKey& key() const { return key_; }
  const ShardRange& range() const { return encoded_.range(); }
  const EncodedRange& encoded() const override { return encoded_; }
  std::string ToString() const override { return key_.ToString(); }
  int64_t segment_number() const { return segment_number_; }
  // False at durability `island`: blocks are merged as they arrive, and only
  // counted here.
  bool keeps_bytes() const { return keeps_bytes_; }
  // The live set that it is merged in; 0 for none.
  int64_t live_set_id() const { return live_set_id_; }

  State state() const;
  // Ranges that are not there and that nobody writes now, in order.
  std::vector<IndexRange> Missing() const;
  // True if there are none.
  bool HasAll() const;

  // Takes those of `blocks` that are not there for the caller, who must say
  // how each ended with Settle. Empty if all are there, or come from another
  // stream, or the contribution is not PARTIAL.
  std::vector<IndexRange> Claim(IndexRange blocks);
  // Writes the encoding of claimed blocks, which `pieces` are one after the
  // other, into the segment.
  //
  // RESOURCE_EXHAUSTED: the disk is full.
  absl::Status Write(IndexRange blocks,
                     absl::Span<const absl::string_view> pieces);
  // Ends a claim: `facts` has one entry a block, or is empty if they could not
  // be written. Returns true if all blocks are there now: whoever gets this
  // has to finish the contribution, and nobody else gets it.
  bool Settle(IndexRange blocks, absl::Span<const BlockFact> facts);
  // Takes back that `blocks` are there: their bytes turned out not to be.
  void Unsettle(IndexRange blocks);
  // Lets somebody else finish it, after an error.
  void Reopen();
  // If all blocks are there and nobody finishes it: true, and the caller must.
  bool TakeFinish();
  // Keeps everyone from finishing it, to refuse it; false if it is too late.
  bool TakeRefusal();

  // Requires: it has a segment.
  absl::Status ReadEncoded(IndexRange blocks, char* bytes) const override;
  // Makes the segment's bytes durable.
  absl::Status Sync();

  // Sum of squares over the range, added in the order of blocks.
  double NormSquared() const;
  std::vector<uint32_t> BlockCrcs() const;

  // PARTIAL -> STORED, and where a start finds it STORED.
  void MarkStored(double norm_squared, std::vector<uint32_t> block_crcs);
  // PARTIAL -> REFUSED.
  void MarkRefused(std::string reason);
  std::string refused_reason() const;
  // Gives the segment up for another contribution; waits for readers, writers
  // and holders of a SegmentUse. The contribution is of no use then.
  std::unique_ptr<Segment> ReleaseSegment();

  // True once that was asked for: nothing that is written gets there.
  bool is_released() const;

  // Keeps the segment from being given up while records about it are written.
  class SegmentUse {
   public:
    explicit SegmentUse(const Contribution& contribution)
        : contribution_(contribution), ok_(contribution.Enter()) {}
    ~SegmentUse() {
      if (ok_) contribution_.Leave();
    }
    SegmentUse(const SegmentUse&) = delete;
    SegmentUse& operator=(const SegmentUse&) = delete;
    // False if it was given up before.
    bool ok() const { return ok_; }

   private:
    const Contribution& contribution_;
    const bool ok_;
  };

 private:
  enum class BlockState : uint8_t { kMissing, kClaimed, kPresent };

  const v1::ContributionInfo info_;
  const ContributionKey key_;
  const EncodedRange& encoded_;
  const int64_t segment_number_;
  const bool keeps_bytes_;
  const int64_t live_set_id_;

  mutable Mutex mutex_;
  mutable CondVar idle_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kPartial;
  bool released_ ABSL_GUARDED_BY(mutex_) = false;
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;
  // Calls that use segment_ outside the lock.
  mutable int user_count_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t absent_count_ ABSL_GUARDED_BY(mutex_);  // Missing or claimed.
  int64_t missing_count_ ABSL_GUARDED_BY(mutex_);
  std::vector<BlockState> blocks_ ABSL_GUARDED_BY(mutex_);
  std::vector<BlockFact> facts_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint32_t> stored_crcs_ ABSL_GUARDED_BY(mutex_);
  double norm_squared_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string refused_reason_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Segment> segment_;  // Used while user_count_ > 0.

  // Takes a use of the segment; false if it was given up.
  bool Enter() const;
  void Leave() const;
  uint32_t BlockCrc(int64_t block) const;
};

}  // namespace atl::server
