#include "server/store/contribution.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/codec/crc32c.h"
#include "server/store/header_page.h"

namespace atl::server {

Contribution::Contribution(const v1::ContributionInfo& info,
                           const EncodedRange& encoded,
                           std::unique_ptr<Segment> segment,
                           int64_t live_set_id)
    : info_(info),
      key_(ContributionKey::FromProto(info.key())),
      encoded_(encoded),
      segment_number_(segment == nullptr ? 0 : segment->number),
      keeps_bytes_(segment != nullptr),
      live_set_id_(live_set_id),
      absent_count_(encoded.range().block_count()),
      missing_count_(absent_count_),
      blocks_(encoded.range().block_count(), BlockState::kMissing),
      facts_(encoded.range().block_count()),
      segment_(std::move(segment)) {}

Contribution::State Contribution::state() const {
  MutexLock lock(&mutex_);
  return state_;
}

std::vector<IndexRange> Contribution::Missing() const {
  MutexLock lock(&mutex_);
  std::vector<IndexRange> missing;
  if (state_ != State::kPartial) return missing;
  const int64_t base = range().blocks().begin;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i] != BlockState::kMissing) continue;
    const int64_t block = base + static_cast<int64_t>(i);
    if (!missing.empty() && missing.back().end == block) {
      ++missing.back().end;
    } else {
      missing.push_back({block, block + 1});
    }
  }
  return missing;
}

bool Contribution::HasAll() const {
  MutexLock lock(&mutex_);
  return state_ != State::kPartial || missing_count_ == 0;
}

std::vector<IndexRange> Contribution::Claim(IndexRange blocks) {
  MutexLock lock(&mutex_);
  std::vector<IndexRange> claimed;
  if (state_ != State::kPartial || released_) return claimed;
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    BlockState& block = blocks_[b - range().blocks().begin];
    if (block != BlockState::kMissing) continue;
    block = BlockState::kClaimed;
    --missing_count_;
    if (!claimed.empty() && claimed.back().end == b) {
      ++claimed.back().end;
    } else {
      claimed.push_back({b, b + 1});
    }
  }
  return claimed;
}

bool Contribution::Enter() const {
  MutexLock lock(&mutex_);
  if (released_) return false;
  ++user_count_;
  return true;
}

void Contribution::Leave() const {
  MutexLock lock(&mutex_);
  if (--user_count_ == 0) idle_.SignalAll();
}

absl::Status Contribution::Write(IndexRange blocks,
                                 absl::Span<const absl::string_view> pieces) {
  if (!keeps_bytes_) return absl::OkStatus();
  if (!Enter()) return absl::AbortedError("the contribution was dropped");
  const absl::Status written = segment_->file->WriteAt(
      kHeaderPageBytes + encoded_.ByteOffset(blocks.begin), pieces);
  Leave();
  return written;
}

bool Contribution::Settle(IndexRange blocks,
                          absl::Span<const BlockFact> facts) {
  MutexLock lock(&mutex_);
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    const int64_t i = b - range().blocks().begin;
    if (facts.empty()) {
      blocks_[i] = BlockState::kMissing;
      ++missing_count_;
    } else {
      blocks_[i] = BlockState::kPresent;
      facts_[i] = facts[b - blocks.begin];
      --absent_count_;
    }
  }
  if (absent_count_ != 0 || finishing_ || state_ != State::kPartial) {
    return false;
  }
  finishing_ = true;
  return true;
}

void Contribution::Unsettle(IndexRange blocks) {
  MutexLock lock(&mutex_);
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    blocks_[b - range().blocks().begin] = BlockState::kMissing;
    ++absent_count_;
    ++missing_count_;
  }
}

void Contribution::Reopen() {
  MutexLock lock(&mutex_);
  finishing_ = false;
}

bool Contribution::TakeFinish() {
  MutexLock lock(&mutex_);
  if (absent_count_ != 0 || finishing_ || released_ ||
      state_ != State::kPartial) {
    return false;
  }
  finishing_ = true;
  return true;
}

bool Contribution::TakeRefusal() {
  MutexLock lock(&mutex_);
  if (finishing_ || released_ || state_ != State::kPartial) return false;
  finishing_ = true;
  return true;
}

uint32_t Contribution::BlockCrc(int64_t block) const {
  MutexLock lock(&mutex_);
  const int64_t i = block - range().blocks().begin;
  return stored_crcs_.empty() ? facts_[i].crc32c : stored_crcs_[i];
}

absl::Status Contribution::ReadEncoded(IndexRange blocks, char* bytes) const {
  if (!Enter()) {
    return absl::AbortedError(
        absl::StrCat(key_.ToString(), " was dropped from the log"));
  }
  const int64_t first = encoded_.ByteOffset(blocks.begin);
  absl::Status status = ReadFully(
      *segment_->file, segment_->path, kHeaderPageBytes + first,
      absl::MakeSpan(bytes, static_cast<size_t>(encoded_.ByteCount(blocks))));
  int64_t begin = 0;
  for (int64_t b = blocks.begin; status.ok() && b < blocks.end; ++b) {
    const int64_t end = encoded_.ByteOffset(b + 1) - first;
    const absl::string_view block(bytes + begin,
                                  static_cast<size_t>(end - begin));
    if (codec::Crc32c(block) != BlockCrc(b)) {
      status = absl::DataLossError(
          absl::StrCat(segment_->path, ": the checksum of block ", b, " of ",
                       key_.ToString(), " does not match"));
    }
    begin = end;
  }
  Leave();
  return status;
}

absl::Status Contribution::Sync() {
  if (!Enter()) return absl::AbortedError("the contribution was dropped");
  const absl::Status synced = segment_->file->Sync();
  Leave();
  return synced;
}

double Contribution::NormSquared() const {
  MutexLock lock(&mutex_);
  if (state_ == State::kStored) return norm_squared_;
  double sum = 0;
  for (const BlockFact& fact : facts_) sum += fact.norm_squared;
  return sum;
}

std::vector<uint32_t> Contribution::BlockCrcs() const {
  MutexLock lock(&mutex_);
  if (!stored_crcs_.empty()) return stored_crcs_;
  std::vector<uint32_t> crcs;
  crcs.reserve(facts_.size());
  for (const BlockFact& fact : facts_) crcs.push_back(fact.crc32c);
  return crcs;
}

void Contribution::MarkStored(double norm_squared,
                              std::vector<uint32_t> block_crcs) {
  MutexLock lock(&mutex_);
  state_ = State::kStored;
  norm_squared_ = norm_squared;
  stored_crcs_ = std::move(block_crcs);
  absent_count_ = 0;
  missing_count_ = 0;
  blocks_ = {};
  facts_ = {};
}

void Contribution::MarkRefused(std::string reason) {
  MutexLock lock(&mutex_);
  state_ = State::kRefused;
  refused_reason_ = std::move(reason);
}

std::string Contribution::refused_reason() const {
  MutexLock lock(&mutex_);
  return refused_reason_;
}

bool Contribution::is_released() const {
  MutexLock lock(&mutex_);
  return released_;
}

std::unique_ptr<Segment> Contribution::ReleaseSegment() {
  MutexLock lock(&mutex_);
  released_ = true;
  while (user_count_ > 0) idle_.Wait(&mutex_);
  return std::move(segment_);
}

}  // namespace atl::server
