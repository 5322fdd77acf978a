#include "server/live_merge/live_merger.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/obs/log.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "server/merge/add_blocks.h"

namespace atl::server {

absl::StatusOr<std::shared_ptr<LiveMerger>> LiveMerger::Create(
    RunStore& store, const OuterOptimizer& optimizer, const MergeRule& rule,
    const LiveSet& set) {
  if (rule.takes_rows()) {
    return absl::FailedPreconditionError(absl::StrCat(
        rule.name(),
        " needs all contributions at once, which durability `island` does not "
        "have: use another merge rule or durability"));
  }
  std::optional<HeldVersion> from =
      store.versions().Find(set.fragment, set.version);
  if (!from) {
    return absl::FailedPreconditionError(absl::StrCat(
        "fragment ", set.fragment, " has no version ", set.version, " here"));
  }
  ASSIGN_OR_RETURN(std::shared_ptr<VersionFile> to,
                   store.versions().New(set.fragment, set.version + 1));
  // A prepared version must outlive the process: by its sum, or, if the outer
  // step reads and writes files anyway, by its own file.
  std::shared_ptr<VersionFile> sum;
  absl::Cleanup give_up = [&, to] {
    store.versions().GiveUp(set.fragment, set.version + 1, to);
    store.sums().GiveUp(set.fragment, set.version + 1, sum);
  };
  if (to->InMemory()) {
    ASSIGN_OR_RETURN(sum, store.sums().New(set.fragment, set.version + 1));
  } else {
    to->WriteThrough();
  }
  ASSIGN_OR_RETURN(std::unique_ptr<ReplicaMaker> replica,
                   ReplicaMaker::Create(store, set.fragment, set.version + 1,
                                        from->file, to));
  std::move(give_up).Cancel();
  return absl::WrapUnique(new LiveMerger(store, optimizer, rule, set,
                                         *std::move(from), std::move(to),
                                         std::move(sum), std::move(replica)));
}

LiveMerger::LiveMerger(RunStore& store, const OuterOptimizer& optimizer,
                       const MergeRule& rule, const LiveSet& set,
                       HeldVersion from, std::shared_ptr<VersionFile> to,
                       std::shared_ptr<VersionFile> sum,
                       std::unique_ptr<ReplicaMaker> replica)
    : store_(store),
      optimizer_(optimizer),
      rule_(rule),
      set_(set),
      range_(store.range(set.fragment)),
      encoded_(store.encoded(set.fragment)),
      from_(std::move(from)),
      to_(std::move(to)),
      sum_(std::move(sum)),
      replica_(std::move(replica)),
      cells_((range_.block_count() + kCellBlocks - 1) / kCellBlocks),
      sources_(set.keys.size()),
      results_(TileCount(range_)) {
  for (size_t i = 0; i < set_.keys.size(); ++i) pieces_.emplace_back(encoded_);
}

LiveMerger::~LiveMerger() {
  store_.versions().GiveUp(set_.fragment, set_.version + 1, to_);
  store_.sums().GiveUp(set_.fragment, set_.version + 1, sum_);
}

IndexRange LiveMerger::CellBlocks(int64_t cell) const {
  const int64_t begin = range_.blocks().begin + cell * kCellBlocks;
  return {begin, std::min(begin + kCellBlocks, range_.blocks().end)};
}

IndexRange LiveMerger::ToCells(IndexRange blocks) const {
  const int64_t first = range_.blocks().begin;
  return {(blocks.begin - first) / kCellBlocks,
          (blocks.end - first + kCellBlocks - 1) / kCellBlocks};
}

bool LiveMerger::HasWholeCell(IndexRange blocks) const {
  const IndexRange cells = ToCells(blocks);
  for (const int64_t cell : {cells.begin, cells.begin + 1}) {
    const IndexRange all = CellBlocks(cell);
    if (!all.empty() && blocks.begin <= all.begin && all.end <= blocks.end) {
      return true;
    }
  }
  return false;
}

void LiveMerger::Offer(int index, int64_t cell, rpc::PayloadReader encoded,
                       std::function<void()> taken, bool at_once) {
  {
    MutexLock lock(&mutex_);
    ++sources_[index].offered_count;
    cells_[cell].waiting.emplace(index, Waiting{encoded, std::move(taken)});
  }
  Advance(cell, /*fold=*/at_once);
  FoldIfStuck();
}

int LiveMerger::next() const {
  const auto cell_count = static_cast<int64_t>(cells_.size());
  const int last = static_cast<int>(set_.keys.size()) - 1;
  MutexLock lock(&mutex_);
  int next = 0;
  while (next < last && sources_[next].offered_count == cell_count) ++next;
  return next;
}

void LiveMerger::Join(int index) {
  MutexLock lock(&mutex_);
  ++sources_[index].stream_count;
}

void LiveMerger::Leave(int index, bool crowded) {
  {
    MutexLock lock(&mutex_);
    --sources_[index].stream_count;
    if (crowded) --sources_[index].crowded_count;
  }
  FoldIfStuck();
}

void LiveMerger::Crowd(int index, int by) {
  {
    MutexLock lock(&mutex_);
    sources_[index].crowded_count += by;
  }
  if (by > 0) FoldIfStuck();
}

bool LiveMerger::Stuck() const {
  for (const Source& source : sources_) {
    const bool waits =
        source.crowded_count >= source.stream_count ||
        source.offered_count == static_cast<int64_t>(cells_.size());
    if (!waits) return false;
  }
  return true;
}

void LiveMerger::FoldIfStuck() {
  do {
    MutexLock lock(&mutex_);
    if (!Stuck()) return;
  } while (FoldWaiting());
}

bool LiveMerger::FoldWaiting() {
  std::vector<int64_t> waiting;
  {
    MutexLock lock(&mutex_);
    for (size_t cell = 0; cell < cells_.size(); ++cell) {
      if (!cells_[cell].waiting.empty()) waiting.push_back(cell);
    }
  }
  bool folded = false;
  for (const int64_t cell : waiting) folded |= Advance(cell, /*fold=*/true);
  return folded;
}

bool LiveMerger::Advance(int64_t cell, bool fold) {
  bool advanced = false;
  while (true) {
    int first = 0;
    std::vector<Waiting> next;
    std::vector<float> sum;
    {
      MutexLock lock(&mutex_);
      Cell& state = cells_[cell];
      if (state.busy) return advanced;  // The busy thread looks again.
      first = state.next;
      auto end = state.waiting.find(first);
      int count = 0;
      for (; end != state.waiting.end() && end->first == first + count; ++end) {
        ++count;
      }
      const bool whole = first + count == static_cast<int>(set_.keys.size());
      if (count == 0 || (!whole && !fold)) return advanced;
      for (int i = first; i < first + count; ++i) {
        next.push_back(std::move(state.waiting.extract(i).mapped()));
      }
      state.busy = true;
      sum = std::move(state.sum);
    }
    const int count = static_cast<int>(next.size());
    if (first + count == static_cast<int>(set_.keys.size())) {
      Finish(cell, first, next, sum);
      sum = {};
    } else {
      Fold(cell, first, next, sum);
    }
    {
      MutexLock lock(&mutex_);
      cells_[cell].sum = std::move(sum);
      cells_[cell].next += count;
      cells_[cell].busy = false;
    }
    for (const Waiting& one : next) one.taken();
    advanced = true;
  }
}

absl::Status LiveMerger::Add(IndexRange blocks, int first,
                             std::vector<Waiting>& encoded,
                             TileBuffers& buffers, float* sum) {
  // A block is read in its receive buffer; if it lies in several pieces, it is
  // copied to a small buffer first.
  char* const room = reinterpret_cast<char*>(buffers.contributions.data());
  const int64_t begin = range_.ElementOffset(blocks.begin);
  for (size_t i = 0; i < encoded.size(); ++i) {
    const int index = first + static_cast<int>(i);
    for (int64_t b = blocks.begin; b < blocks.end; ++b) {
      const absl::string_view bytes = encoded[i].encoded.Next(
          static_cast<size_t>(encoded_.ByteCount({b, b + 1})), room);
      RETURN_IF_ERROR(AddBlocks(rule_, encoded_, {b, b + 1}, index,
                                set_.weights[index], bytes.data(),
                                sum + (range_.ElementOffset(b) - begin)));
    }
  }
  return absl::OkStatus();
}

void LiveMerger::Fold(int64_t cell, int first, std::vector<Waiting>& encoded,
                      std::vector<float>& sum) {
  std::unique_ptr<TileBuffers> buffers = TakeBuffers();
  const IndexRange blocks = CellBlocks(cell);
  sum.resize(static_cast<size_t>(range_.ElementCount(blocks)));
  Note(blocks.begin, Add(blocks, first, encoded, *buffers, sum.data()));
  GiveBuffers(std::move(buffers));
}

void LiveMerger::Note(int64_t block, const absl::Status& status) {
  if (status.ok()) return;
  results_[(block - range_.blocks().begin) / kTileBlocks].status = status;
}

void LiveMerger::Finish(int64_t cell, int first, std::vector<Waiting>& encoded,
                        const std::vector<float>& sum) {
  std::unique_ptr<TileBuffers> buffers = TakeBuffers();
  const IndexRange blocks = CellBlocks(cell);
  const int64_t begin = range_.ElementOffset(blocks.begin);
  for (int64_t b = blocks.begin; b < blocks.end; b += kTileBlocks) {
    const IndexRange tile = {b, std::min(b + kTileBlocks, blocks.end)};
    const int64_t count = range_.ElementCount(tile);
    float* const gradient = buffers->gradient.data();
    if (first > 0) {
      std::memcpy(gradient, sum.data() + (range_.ElementOffset(b) - begin),
                  count * sizeof(float));
    }
    absl::Status added = Add(tile, first, encoded, *buffers, gradient);
    if (added.ok() && sum_ != nullptr) added = sum_->Write(0, tile, gradient);
    TileResult& result = results_[(b - range_.blocks().begin) / kTileBlocks];
    const absl::Status before = result.status;
    result = StepTile(
        {range_, optimizer_, *from_.file, *to_, set_.version, replica_.get()},
        tile, *buffers);
    Note(b, before);
    Note(b, added);
  }
  GiveBuffers(std::move(buffers));
}

std::unique_ptr<TileBuffers> LiveMerger::TakeBuffers() {
  {
    MutexLock lock(&mutex_);
    if (!free_buffers_.empty()) {
      std::unique_ptr<TileBuffers> buffers = std::move(free_buffers_.back());
      free_buffers_.pop_back();
      return buffers;
    }
  }
  return std::make_unique<TileBuffers>();
}

void LiveMerger::GiveBuffers(std::unique_ptr<TileBuffers> buffers) {
  MutexLock lock(&mutex_);
  free_buffers_.push_back(std::move(buffers));
}

absl::StatusOr<PreparedFact> LiveMerger::Publish(int64_t attempt) {
  {
    MutexLock lock(&mutex_);
    for (const Cell& cell : cells_) {
      if (cell.next != static_cast<int>(set_.keys.size())) {
        return absl::InternalError("a live merge lacks a cell");
      }
    }
  }
  PreparedFact fact;
  fact.fragment = set_.fragment;
  fact.version = set_.version;
  fact.attempt = attempt;
  absl::Status added = AddUp(results_, fact);
  if (absl::IsResourceExhausted(added)) {
    // The bytes that the full disk refused are in no file: push again.
    return absl::UnavailableError(added.message());
  }
  RETURN_IF_ERROR(added);
  if (replica_ != nullptr) replica_->Publish();
  RETURN_IF_ERROR(store_.PublishPrepared(fact, to_, sum_));
  return fact;
}

absl::StatusOr<std::string> LiveMerger::MakeOneAgain(
    RunStore& store, const OuterOptimizer& optimizer,
    const PreparedFact& prepared, const VersionFile& sum) {
  const int32_t fragment = prepared.fragment;
  const int64_t version = prepared.version;
  const ShardRange& range = store.range(fragment);
  const std::optional<HeldVersion> from =
      store.versions().Find(fragment, version);
  if (!from) return absl::DataLossError("the version before it is not here");
  ASSIGN_OR_RETURN(std::shared_ptr<VersionFile> to,
                   store.versions().New(fragment, version + 1));
  const absl::Cleanup give_up = [&store, fragment, version, made = to] {
    store.versions().GiveUp(fragment, version + 1, made);
  };
  ASSIGN_OR_RETURN(
      const std::unique_ptr<ReplicaMaker> replica,
      ReplicaMaker::Create(store, fragment, version + 1, from->file, to));
  std::vector<TileResult> results(TileCount(range));
  TileBuffers buffers;
  for (size_t i = 0; i < results.size(); ++i) {
    const IndexRange blocks = TileBlocks(range, static_cast<int64_t>(i));
    const absl::Status read = sum.Read(0, blocks, buffers.gradient.data());
    if (sum.disk_has_failed()) {
      return absl::UnavailableError(read.message());
    }
    if (!read.ok()) return std::string(read.message());
    results[i] =
        StepTile({range, optimizer, *from->file, *to, version, replica.get()},
                 blocks, buffers);
  }
  PreparedFact fact;
  RETURN_IF_ERROR(AddUp(results, fact));
  if (fact.digest != prepared.digest ||
      fact.replica_digest != prepared.replica_digest) {
    return std::string("it comes out with another digest");
  }
  if (replica != nullptr) replica->Publish();
  store.versions().AdoptUnmade(prepared, std::move(to));
  return std::string();
}

absl::Status LiveMerger::MakeAgain(RunStore& store,
                                   const OuterOptimizer& optimizer) {
  for (const PreparedFact& prepared : store.versions().FindUnmade()) {
    const int32_t fragment = prepared.fragment;
    const int64_t version = prepared.version + 1;
    const std::shared_ptr<VersionFile> sum =
        store.sums().Find(fragment, version);
    if (sum == nullptr) continue;
    const std::string what = absl::StrCat(
        "run ", store.run().run_id(), ": version ", version, " of fragment ",
        fragment, " was prepared and cannot be made again");
    const absl::StatusOr<std::string> why_not =
        MakeOneAgain(store, optimizer, prepared, *sum);
    if (!why_not.ok()) return Annotate(why_not.status(), what);
    if (why_not->empty()) continue;
    LOG(WARNING) << what << ", and is given up: " << *why_not;
    store.DiscardVersion(fragment, version);
  }
  return absl::OkStatus();
}

}  // namespace atl::server
