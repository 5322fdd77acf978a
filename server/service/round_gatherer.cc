#include "server/service/round_gatherer.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "server/service/add_blocks.h"
#include "server/service/kernel_table.h"

namespace atl::server {

absl::StatusOr<std::shared_ptr<RoundGatherer>> RoundGatherer::Create(
    RunStore& store, const OuterOptimizer& optimizer, const MergeRule& rule,
    const GatherSet& set) {
  if (rule.takes_rows()) {
    return absl::FailedPreconditionError(absl::StrCat(
        rule.name(),
        " needs all contributions at once: level ISLAND has none"));
  }
  std::optional<HeldVersion> from =
      store.FindVersion(set.fragment, set.version);
  if (!from) {
    return absl::FailedPreconditionError(absl::StrCat(
        "fragment ", set.fragment, " has no version ", set.version, " here"));
  }
  ASSIGN_OR_RETURN(std::shared_ptr<VersionFile> to,
                   store.NewVersion(set.fragment, set.version + 1));
  VersionImage keep;
  if (to->Map(0, store.range(set.fragment).blocks(), &keep) == nullptr) {
    return absl::ResourceExhaustedError(
        "no memory to merge contributions in as they come; raise --memory_mib, "
        "or take another durability than ISLAND");
  }
  ASSIGN_OR_RETURN(std::unique_ptr<ViewMaker> view,
                   ViewMaker::Create(store, set.fragment, set.version + 1,
                                     from->file, to));
  return absl::WrapUnique(new RoundGatherer(store, optimizer, rule, set,
                                            *std::move(from), std::move(to),
                                            std::move(view)));
}

RoundGatherer::RoundGatherer(RunStore& store, const OuterOptimizer& optimizer,
                             const MergeRule& rule, const GatherSet& set,
                             HeldVersion from, std::shared_ptr<VersionFile> to,
                             std::unique_ptr<ViewMaker> view)
    : store_(store),
      optimizer_(optimizer),
      rule_(rule),
      set_(set),
      range_(store.range(set.fragment)),
      encoded_(store.encoded(set.fragment)),
      from_(std::move(from)),
      to_(std::move(to)),
      view_(std::move(view)),
      cells_((range_.block_count() + kCellBlocks - 1) / kCellBlocks),
      results_(TileCount(range_)) {}

IndexRange RoundGatherer::CellBlocks(int64_t cell) const {
  const int64_t begin = range_.blocks().begin + cell * kCellBlocks;
  return {begin, std::min(begin + kCellBlocks, range_.blocks().end)};
}

IndexRange RoundGatherer::CellsOf(IndexRange blocks) const {
  const int64_t first = range_.blocks().begin;
  const bool whole = (blocks.begin - first) % kCellBlocks == 0 &&
                     (blocks.end == range_.blocks().end ||
                      (blocks.end - first) % kCellBlocks == 0);
  if (!whole) return {};
  return {(blocks.begin - first) / kCellBlocks,
          (blocks.end - first + kCellBlocks - 1) / kCellBlocks};
}

bool RoundGatherer::Offer(int index, int64_t cell, const char* encoded,
                          std::function<void()> taken) {
  {
    MutexLock lock(&mutex_);
    Cell& state = cells_[cell];
    if (state.next != index || state.busy) {
      state.waiting[index] = {encoded, std::move(taken)};
      return false;
    }
    state.busy = true;
  }
  Take(index, cell, encoded);
  // Then those that have waited for their turn.
  while (true) {
    Waiting next;
    {
      MutexLock lock(&mutex_);
      Cell& state = cells_[cell];
      ++index;
      state.next = index;
      const auto it = state.waiting.find(index);
      if (it == state.waiting.end()) {
        state.busy = false;
        return true;
      }
      next = std::move(it->second);
      state.waiting.erase(it);
    }
    Take(index, cell, next.encoded);
    next.taken();
  }
}

void RoundGatherer::Take(int index, int64_t cell, const char* encoded) {
  if (index + 1 == static_cast<int>(set_.keys.size())) {
    TakeLast(cell, encoded);
    return;
  }
  const IndexRange blocks = CellBlocks(cell);
  VersionImage keep;
  // The sum is kept where theta will be.
  float* const sum = to_->Map(0, blocks, &keep);
  Note(blocks.begin, AddBlocks(FastMergeKernels(), rule_, encoded_, blocks,
                               index, set_.weights[index], encoded, sum));
}

void RoundGatherer::Note(int64_t block, const absl::Status& status) {
  if (status.ok()) return;
  results_[(block - range_.blocks().begin) / kTileBlocks].status = status;
}

void RoundGatherer::TakeLast(int64_t cell, const char* encoded) {
  std::unique_ptr<TileBuffers> buffers;
  {
    MutexLock lock(&mutex_);
    if (!free_buffers_.empty()) {
      buffers = std::move(free_buffers_.back());
      free_buffers_.pop_back();
    }
  }
  if (buffers == nullptr) buffers = std::make_unique<TileBuffers>();
  const int last = static_cast<int>(set_.keys.size()) - 1;
  const IndexRange blocks = CellBlocks(cell);
  for (int64_t b = blocks.begin; b < blocks.end; b += kTileBlocks) {
    const IndexRange tile = {b, std::min(b + kTileBlocks, blocks.end)};
    const int64_t count = range_.ElementCount(tile);
    VersionImage keep;
    float* const gradient = buffers->gradient.data();
    if (last > 0) {
      std::memcpy(gradient, to_->Map(0, tile, &keep), count * sizeof(float));
    }
    const absl::Status added = AddBlocks(
        FastMergeKernels(), rule_, encoded_, tile, last, set_.weights[last],
        encoded + encoded_.ByteCount({blocks.begin, b}), gradient);
    TileResult& result = results_[(b - range_.blocks().begin) / kTileBlocks];
    const absl::Status before = result.status;
    result = StepTile(
        {range_, optimizer_, *from_.file, *to_, set_.version, view_.get()},
        tile, *buffers);
    Note(b, before);
    Note(b, added);
  }
  // While it is in the cache: what is prepared here is in the file.
  Note(blocks.begin, to_->WriteBack(blocks));
  MutexLock lock(&mutex_);
  free_buffers_.push_back(std::move(buffers));
}

absl::StatusOr<PreparedFact> RoundGatherer::Publish(int64_t attempt) {
  {
    MutexLock lock(&mutex_);
    for (const Cell& cell : cells_) {
      if (cell.next != static_cast<int>(set_.keys.size())) {
        return absl::InternalError("a round that is gathered lacks a cell");
      }
    }
  }
  PreparedFact fact;
  fact.fragment = set_.fragment;
  fact.version = set_.version;
  fact.attempt = attempt;
  RETURN_IF_ERROR(AddUp(results_, fact));
  if (view_ != nullptr) view_->Publish();
  RETURN_IF_ERROR(store_.PublishPrepared(fact, to_));
  return fact;
}

}  // namespace atl::server
