#include "server/live_merge/cell_pieces.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"

namespace atl::server {

bool CellPieces::IsOpen(int64_t first) const {
  MutexLock lock(&mutex_);
  return open_.count(first) > 0;
}

size_t CellPieces::open_count() const {
  MutexLock lock(&mutex_);
  return open_.size();
}

bool CellPieces::HoldsBeyond() const {
  MutexLock lock(&mutex_);
  return absl::c_any_of(open_, [](const auto& one) {
    return one.second->room->is_over_budget();
  });
}

absl::StatusOr<std::shared_ptr<CellPieces::Whole>> CellPieces::Add(
    IndexRange cell, IndexRange blocks, rpc::PayloadReader encoded,
    absl::Span<const BlockFact> facts,
    std::optional<ReceiveBudget::Hold> room) {
  MutexLock lock(&mutex_);
  if (open_.count(cell.begin) == 0 && !room.has_value()) {
    return absl::ResourceExhaustedError("no budget for a new cell");
  }
  std::shared_ptr<Whole>& open = open_[cell.begin];
  if (open == nullptr) {
    const auto size = static_cast<size_t>(encoded_.ByteCount(cell));
    open = std::make_shared<Whole>();
    open->blocks = cell;
    open->facts.resize(static_cast<size_t>(cell.size()));
    open->bytes = std::make_unique_for_overwrite<char[]>(size);
    open->chunk.payload = {{open->bytes.get(), size}};
    open->chunk.payload_bytes = size;
    open->missing_count = cell.size();
    open->room.emplace(*std::move(room));
  }
  encoded.Read(
      static_cast<size_t>(encoded_.ByteCount(blocks)),
      open->bytes.get() + encoded_.ByteCount({cell.begin, blocks.begin}));
  absl::c_copy(facts, open->facts.begin() + (blocks.begin - cell.begin));
  open->abandoned = false;
  open->pieces.push_back(blocks);
  open->missing_count -= blocks.size();
  if (open->missing_count > 0) return std::shared_ptr<Whole>();
  return std::move(open_.extract(cell.begin).mapped());
}

void CellPieces::Abandon() {
  MutexLock lock(&mutex_);
  for (const auto& [first, open] : open_) open->abandoned = true;
}

std::vector<IndexRange> CellPieces::GiveUpAbandoned() {
  std::vector<std::shared_ptr<Whole>> given_up;
  {
    MutexLock lock(&mutex_);
    for (auto it = open_.begin(); it != open_.end();) {
      if (!it->second->abandoned) {
        ++it;
        continue;
      }
      given_up.push_back(std::move(it->second));
      it = open_.erase(it);
    }
  }
  std::vector<IndexRange> blocks;
  for (const std::shared_ptr<Whole>& open : given_up) {
    blocks.insert(blocks.end(), open->pieces.begin(), open->pieces.end());
  }
  return blocks;
}

}  // namespace atl::server
