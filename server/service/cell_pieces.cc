#include "server/service/cell_pieces.h"

#include <utility>

#include "absl/algorithm/container.h"

namespace atl::server {

bool CellPieces::IsOpen(int64_t first) const {
  MutexLock lock(&mutex_);
  return open_.count(first) > 0;
}

size_t CellPieces::open_count() const {
  MutexLock lock(&mutex_);
  return open_.size();
}

std::shared_ptr<CellPieces::Whole> CellPieces::Add(
    IndexRange cell, IndexRange blocks, rpc::PayloadReader encoded,
    absl::Span<const BlockFact> facts, std::optional<HeldBytes::Hold> room) {
  MutexLock lock(&mutex_);
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
    if (room.has_value()) open->room.emplace(*std::move(room));
  }
  encoded.Read(static_cast<size_t>(encoded_.ByteCount(blocks)),
               open->bytes.get() +
                   encoded_.ByteCount({cell.begin, blocks.begin}));
  absl::c_copy(facts, open->facts.begin() + (blocks.begin - cell.begin));
  open->pieces.push_back(blocks);
  open->missing_count -= blocks.size();
  if (open->missing_count > 0) return nullptr;
  return std::move(open_.extract(cell.begin).mapped());
}

std::vector<IndexRange> CellPieces::GiveUp() {
  std::map<int64_t, std::shared_ptr<Whole>> given_up;
  {
    MutexLock lock(&mutex_);
    given_up.swap(open_);
  }
  std::vector<IndexRange> blocks;
  for (const auto& [first, open] : given_up) {
    blocks.insert(blocks.end(), open->pieces.begin(), open->pieces.end());
  }
  return blocks;
}

}  // namespace atl::server
