// One contribution while it arrives in the log: which blocks are present, and
// their bytes in a segment file.
//
// Thread-safe: several streams may write one contribution. The first stream to
// claim a block writes it; later copies are ignored. Block numbers count from
// the fragment's first block.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
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
// at their final offsets (server/store/DESIGN.md, Segment).
struct Segment {
  int64_t number = 0;
  int64_t payload_bytes = 0;  // Space after the header page.
  std::string path;
  std::unique_ptr<RandomAccessFile> file;
};

struct BlockFact {
  uint32_t crc32c = 0;      // Its encoding's.
  double norm_squared = 0;  // Its decoded values'.
};

class Contribution : public EncodedSource {
 public:
  enum class State { kPartial, kStored, kRefused };

  // A contribution without any block. `segment` is null at durability `island`:
  // blocks are counted, their bytes are not kept. `encoded` has the info's
  // codec and must outlive the contribution.
  Contribution(const v1::ContributionInfo& info, const EncodedRange& encoded,
               std::unique_ptr<Segment> segment, int64_t live_set_id = 0);

  const v1::ContributionInfo& info() const { return info_; }
  const ContributionKey& key() const { return key_; }
  const ShardRange& range() const { return encoded_.range(); }
  const EncodedRange& encoded() const override { return encoded_; }
  std::string ToString() const override { return key_.ToString(); }
  int64_t segment_number() const { return segment_number_; }
  bool keeps_bytes() const { return keeps_bytes_; }
  // The LiveSet that merges it; 0 for none.
  int64_t live_set_id() const { return live_set_id_; }

  State state() const;
  // Ranges that are absent and that no stream has claimed, in order.
  std::vector<IndexRange> Missing() const;
  bool HasAll() const;

  // Claims the missing ones of `blocks` for the caller, which must call Settle
  // for each. Empty if all are present or claimed by other streams, or if the
  // contribution is not PARTIAL.
  std::vector<IndexRange> Claim(IndexRange blocks);
  // Writes the encoding of claimed blocks, the concatenation of `pieces`, into
  // the segment. Does nothing without a segment.
  //
  // RESOURCE_EXHAUSTED: the disk is full. ABORTED: the segment was released.
  absl::Status Write(IndexRange blocks,
                     absl::Span<const absl::string_view> pieces);
  // Ends a claim: `facts` has one entry a block, or is empty if the blocks
  // could not be written. Returns true, to one caller only, if all blocks are
  // present now: that caller must finish the contribution.
  bool Settle(IndexRange blocks, absl::Span<const BlockFact> facts);
  // Marks present blocks as missing: their bytes were not found.
  void Unsettle(IndexRange blocks);
  // After an error: another caller may finish it.
  void Reopen();
  // True if all blocks are present and the caller must finish it.
  bool TakeFinish();
  // Prevents a finish, to refuse it. False if a caller finishes it already.
  bool TakeRefusal();

  // Requires: it has a segment. ABORTED: the segment was released.
  absl::Status ReadEncoded(IndexRange blocks, char* bytes) const override;
  absl::Status Sync();

  // Sum of squares over the range, added in the order of blocks.
  double NormSquared() const;
  std::vector<uint32_t> BlockCrcs() const;

  // PARTIAL -> STORED; also for a contribution that a start finds STORED.
  void MarkStored(double norm_squared, std::vector<uint32_t> block_crcs);
  void MarkRefused(std::string reason);
  std::string refused_reason() const;
  // Takes the segment away, for another contribution, after readers, writers
  // and SegmentUses are done. From then on reads and writes are ABORTED.
  std::unique_ptr<Segment> ReleaseSegment();
  // True from the beginning of ReleaseSegment.
  bool is_released() const;

  // Keeps the segment from being released while records about it are written;
  // not ok() if it was released before.
  class SegmentUse {
   public:
    explicit SegmentUse(const Contribution& contribution)
        : contribution_(contribution), ok_(contribution.Enter()) {}
    ~SegmentUse() {
      if (ok_) contribution_.Leave();
    }
    SegmentUse(const SegmentUse&) = delete;
    SegmentUse& operator=(const SegmentUse&) = delete;
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

  // Begins a use of the segment; false if it was released.
  bool Enter() const;
  void Leave() const;
  uint32_t BlockCrc(int64_t block) const;
};

}  // namespace atl::server
