#include "server/service/round_merger.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/codec/block_grid.h"
#include "base/layout/init_generator.h"
#include "base/status/status_macros.h"
#include "server/kernels/merge_kernels.h"
#include "server/service/kernel_table.h"
#include "server/service/sealed_set.h"

namespace atl::server {
namespace {

constexpr int64_t kTileElements = kTileBlocks * codec::kBlockElements;

int64_t TileCount(const ShardRange& range) {
  return (range.block_count() + kTileBlocks - 1) / kTileBlocks;
}

IndexRange TileBlocks(const ShardRange& range, int64_t tile) {
  const int64_t begin = range.blocks().begin + tile * kTileBlocks;
  return {begin, std::min(begin + kTileBlocks, range.blocks().end)};
}

// Sum of the blocks' digests; `elements` are theirs.
Digest128 TileDigest(const ShardRange& range, IndexRange blocks,
                     const float* elements) {
  return RangeDigest(range.layout(), range.fragment(), blocks,
                     absl::MakeConstSpan(elements, range.ElementCount(blocks)));
}

// Version 0 of `blocks` as the run's generator makes it.
void GenerateBlocks(const v1::RunSpec& spec, const ShardRange& range,
                    IndexRange blocks, float* elements) {
  const int64_t first = range.ElementOffset(blocks.begin);
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    const TensorPlace& tensor = range.layout().BlockTensor(range.fragment(), b);
    GenerateInit(spec.layout().tensors(tensor.tensor).init(),
                 spec.init().seed(), tensor.tensor,
                 (b - tensor.first_block) * codec::kBlockElements,
                 absl::MakeSpan(elements + (range.ElementOffset(b) - first),
                                range.ElementCount({b, b + 1})));
  }
}

// Writes the optimizer's first state.
absl::Status WriteInitialState(VersionFile& file, const ShardRange& range,
                               const OuterOptimizer& optimizer,
                               IndexRange blocks, std::vector<float>& buffer) {
  const int64_t count = range.ElementCount(blocks);
  for (int i = 0; i < optimizer.state_count(); ++i) {
    buffer.assign(count, optimizer.initial_state(i));
    RETURN_IF_ERROR(file.Write(1 + i, blocks, buffer.data()));
  }
  return absl::OkStatus();
}

}  // namespace

struct RoundMerger::Round {
  const ShardRange& range;
  const OuterOptimizer& optimizer;
  const v1::Seal& seal;
  const SealedSet& set;
  std::shared_ptr<VersionFile> from;
  std::shared_ptr<VersionFile> to;
};

RoundMerger::RoundMerger(TilePool& pool)
    : pool_(pool), buffers_(pool.thread_count()) {
  for (Buffers& buffers : buffers_) {
    buffers.theta.resize(kTileElements);
    for (auto& state : buffers.state) state.resize(kTileElements);
    buffers.gradient.resize(kTileElements);
    buffers.contributions.resize(kTileElements);
  }
}

absl::StatusOr<Digest128> RoundMerger::MakeVersion0(
    RunStore& store, const OuterOptimizer& optimizer, int32_t fragment) {
  const ShardRange& range = store.range(fragment);
  const v1::RunSpec& spec = store.run().spec();
  std::shared_ptr<Contribution> import;
  if (spec.init().import()) {
    import = store.Find(ContributionKey::OfImport(fragment));
    if (import == nullptr || import->state() != Contribution::State::kStored) {
      return absl::FailedPreconditionError(
          absl::StrCat("fragment ", fragment, " is not imported"));
    }
  }
  ASSIGN_OR_RETURN(std::shared_ptr<VersionFile> file,
                   store.NewVersion(fragment, 0));
  std::vector<TileResult> results(TileCount(range));
  pool_.Run(TileCount(range), [&](int worker, int64_t tile) {
    Buffers& buffers = buffers_[worker];
    const IndexRange blocks = TileBlocks(range, tile);
    TileResult& result = results[tile];
    if (import != nullptr) {
      result.status = import->Read(blocks, buffers.theta.data());
      if (!result.status.ok()) return;
    } else {
      GenerateBlocks(spec, range, blocks, buffers.theta.data());
    }
    result.digest = TileDigest(range, blocks, buffers.theta.data());
    result.status = file->Write(0, blocks, buffers.theta.data());
    if (result.status.ok()) {
      result.status =
          WriteInitialState(*file, range, optimizer, blocks, buffers.gradient);
    }
    buffers.gradient.resize(kTileElements);
  });
  Digest128 digest;
  for (const TileResult& result : results) {
    RETURN_IF_ERROR(result.status);
    digest += result.digest;
  }
  store.PublishVersion(fragment, 0, {std::move(file), 0, digest});
  return digest;
}

// The new version's tile is made where it will lie, if it has an image.
absl::Status RoundMerger::LoadTile(const Round& round, IndexRange blocks,
                                   Buffers& buffers, OuterTile& tile,
                                   VersionImage* keep) const {
  for (int array = 0; array <= round.optimizer.state_count(); ++array) {
    float* elements = round.to->Map(array, blocks, keep);
    if (elements == nullptr) {
      elements =
          array == 0 ? buffers.theta.data() : buffers.state[array - 1].data();
    }
    (array == 0 ? tile.theta : tile.state[array - 1]) = elements;
    RETURN_IF_ERROR(round.from->Read(array, blocks, elements));
  }
  return absl::OkStatus();
}

RoundMerger::TileResult RoundMerger::MergeTile(const Round& round,
                                               IndexRange blocks,
                                               Buffers& buffers) const {
  TileResult result;
  const int64_t count = round.range.ElementCount(blocks);
  OuterTile tile;
  tile.count = count;
  tile.version = round.seal.version();
  tile.gradient = buffers.gradient.data();
  result.status =
      round.set.Merge(FastMergeKernels(), blocks, buffers.contributions,
                      buffers.gradient.data());
  if (!result.status.ok()) return result;
  const kernels::NormResult merged =
      kernels::CheckAndNorm(count, buffers.gradient.data());
  result.norm_squared = merged.sum_of_squares;
  result.finite = merged.finite;
  VersionImage keep;
  result.status = LoadTile(round, blocks, buffers, tile, &keep);
  if (!result.status.ok()) return result;
  round.optimizer.Step(FastOuterKernels(), tile);
  result.finite &= kernels::AllFinite(count, tile.theta);
  result.digest = TileDigest(round.range, blocks, tile.theta);
  result.status = round.to->Write(0, blocks, tile.theta);
  for (int i = 0; i < round.optimizer.state_count() && result.status.ok();
       ++i) {
    result.finite &= kernels::AllFinite(count, tile.state[i]);
    result.status = round.to->Write(1 + i, blocks, tile.state[i]);
  }
  return result;
}

absl::StatusOr<PreparedFact> RoundMerger::Merge(RunStore& store,
                                                const OuterOptimizer& optimizer,
                                                const MergeRule& rule,
                                                const v1::Seal& seal) {
  const int32_t fragment = seal.fragment();
  ASSIGN_OR_RETURN(const SealedSet set, SealedSet::Open(store, rule, seal));
  Round round{store.range(fragment), optimizer, seal, set};
  const std::optional<HeldVersion> from =
      store.FindVersion(fragment, seal.version());
  if (!from) {
    return absl::FailedPreconditionError(absl::StrCat(
        "fragment ", fragment, " has no version ", seal.version(), " here"));
  }
  round.from = from->file;
  ASSIGN_OR_RETURN(round.to, store.NewVersion(fragment, seal.version() + 1));

  const int64_t tile_count = TileCount(round.range);
  std::vector<TileResult> results(tile_count);
  pool_.Run(tile_count, [&](int worker, int64_t tile) {
    results[tile] =
        MergeTile(round, TileBlocks(round.range, tile), buffers_[worker]);
  });
  PreparedFact fact;
  fact.fragment = fragment;
  fact.version = seal.version();
  fact.attempt = seal.attempt();
  for (const TileResult& result : results) {
    RETURN_IF_ERROR(result.status);
    fact.digest += result.digest;
    fact.finite &= result.finite;
    fact.norm_squared += result.norm_squared;
  }
  store.PublishVersion(fragment, seal.version() + 1,
                       {std::move(round.to), 0, fact.digest});
  return fact;
}

absl::StatusOr<MeasuredFact> RoundMerger::Measure(RunStore& store,
                                                  const MergeRule& rule,
                                                  const v1::Seal& seal) {
  ASSIGN_OR_RETURN(const SealedSet set, SealedSet::Open(store, rule, seal));
  const ShardRange& range = store.range(seal.fragment());
  // A sum a thread: they are exact, so that who adds what cannot be seen.
  std::vector<GramSums> sums(buffers_.size(), set.NewSums());
  std::vector<absl::Status> statuses(TileCount(range));
  pool_.Run(TileCount(range), [&](int worker, int64_t tile) {
    statuses[tile] = set.Measure(FastMergeKernels(), TileBlocks(range, tile),
                                 buffers_[worker].contributions, sums[worker]);
  });
  for (const absl::Status& status : statuses) RETURN_IF_ERROR(status);
  MeasuredFact fact;
  fact.fragment = seal.fragment();
  fact.version = seal.version();
  fact.attempt = seal.attempt();
  for (size_t i = 1; i < sums.size(); ++i) sums[0] += sums[i];
  for (const GramMatrix& gram : sums[0].grams()) {
    fact.grams.push_back(gram.ToBytes());
  }
  return fact;
}

}  // namespace atl::server
