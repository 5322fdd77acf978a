#include "server/merge/round_merger.h"

#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/codec/block_grid.h"
#include "base/layout/init_generator.h"
#include "base/status/status_macros.h"
#include "server/kernels/loop_table.h"
#include "server/merge/sealed_set.h"

namespace atl::server {
namespace {

Digest128 TileDigest(const ShardRange& range, IndexRange blocks,
                     const float* elements) {
  return RangeDigest(range.layout(), range.fragment(), blocks,
                     absl::MakeConstSpan(elements, range.ElementCount(blocks)));
}

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
  std::unique_ptr<ReplicaMaker> replica;  // Null if the run has none.
};

RoundMerger::RoundMerger(TilePool& pool)
    : pool_(pool), buffers_(pool.thread_count()) {}

absl::StatusOr<Version0Fact> RoundMerger::MakeVersion0(
    RunStore& store, const OuterOptimizer& optimizer, int32_t fragment) {
  const ShardRange& range = store.range(fragment);
  const v1::RunSpec& spec = store.run().spec();
  std::shared_ptr<Contribution> import;
  if (spec.init().import()) {
    import = store.contributions().Find(ContributionKey::OfImport(fragment));
    if (import == nullptr || import->state() != Contribution::State::kStored) {
      return absl::FailedPreconditionError(
          absl::StrCat("fragment ", fragment, " is not imported"));
    }
  }
  ASSIGN_OR_RETURN(std::shared_ptr<VersionFile> file,
                   store.versions().New(fragment, 0));
  const absl::Cleanup give_up = [&store, fragment, made = file] {
    store.versions().GiveUp(fragment, 0, made);
  };
  std::vector<TileResult> results(TileCount(range));
  pool_.Run(TileCount(range), [&](int worker, int64_t tile) {
    TileBuffers& buffers = buffers_[worker];
    const IndexRange blocks = TileBlocks(range, tile);
    TileResult& result = results[tile];
    if (import != nullptr) {
      result.status = import->Read(blocks, buffers.theta.data());
      if (!result.status.ok()) return;
    } else {
      GenerateBlocks(spec, range, blocks, buffers.theta.data());
    }
    result.digest = TileDigest(range, blocks, buffers.theta.data());
    result.norm_squared =
        kernels::BestLoops()
            .check_and_norm(range.ElementCount(blocks), buffers.theta.data())
            .sum_of_squares;
    result.status = file->Write(0, blocks, buffers.theta.data());
    if (result.status.ok()) {
      result.status =
          WriteInitialState(*file, range, optimizer, blocks, buffers.gradient);
    }
    if (result.status.ok() && store.versions().replica_array() != 0) {
      result.status = file->Write(store.versions().replica_array(), blocks,
                                  buffers.theta.data());
    }
    buffers.gradient.resize(buffers.theta.size());
  });
  Version0Fact fact;
  for (const TileResult& result : results) {
    RETURN_IF_ERROR(result.status);
    fact.digest += result.digest;
    fact.norm_squared += result.norm_squared;
  }
  HeldVersion held = {std::move(file), 0, fact.digest};
  if (store.versions().replica_array() != 0) held.replica_digest = fact.digest;
  store.versions().Publish(fragment, 0, std::move(held));
  return fact;
}

TileResult RoundMerger::MergeTile(const Round& round, IndexRange blocks,
                                  TileBuffers& buffers) const {
  const absl::Status merged =
      round.set.Merge(blocks, buffers.contributions, buffers.gradient.data());
  if (!merged.ok()) {
    TileResult failed;
    failed.status = merged;
    return failed;
  }
  return StepTile({round.range, round.optimizer, *round.from, *round.to,
                   round.seal.version(), round.replica.get()},
                  blocks, buffers);
}

absl::StatusOr<PreparedFact> RoundMerger::Merge(RunStore& store,
                                                const OuterOptimizer& optimizer,
                                                const MergeRule& rule,
                                                const v1::Seal& seal) {
  const int32_t fragment = seal.fragment();
  ASSIGN_OR_RETURN(const SealedSet set, SealedSet::Open(store, rule, seal));
  Round round{store.range(fragment), optimizer, seal, set};
  const std::optional<HeldVersion> from =
      store.versions().Find(fragment, seal.version());
  if (!from) {
    return absl::FailedPreconditionError(absl::StrCat(
        "fragment ", fragment, " has no version ", seal.version(), " here"));
  }
  round.from = from->file;
  ASSIGN_OR_RETURN(round.to,
                   store.versions().New(fragment, seal.version() + 1));
  const absl::Cleanup give_up = [&store, &seal, made = round.to] {
    store.versions().GiveUp(seal.fragment(), seal.version() + 1, made);
  };
  ASSIGN_OR_RETURN(round.replica,
                   ReplicaMaker::Create(store, fragment, seal.version() + 1,
                                        round.from, round.to));

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
  RETURN_IF_ERROR(AddUp(results, fact));
  if (round.replica != nullptr) round.replica->Publish();
  store.versions().Publish(
      fragment, seal.version() + 1,
      {std::move(round.to), 0, fact.digest, fact.replica_digest});
  return fact;
}

absl::StatusOr<MeasuredFact> RoundMerger::Measure(RunStore& store,
                                                  const MergeRule& rule,
                                                  const v1::Seal& seal) {
  ASSIGN_OR_RETURN(const SealedSet set, SealedSet::Open(store, rule, seal));
  const ShardRange& range = store.range(seal.fragment());
  // One sum for each thread. Sums are exact, so the split does not matter.
  std::vector<GramSums> sums(buffers_.size(), set.NewSums());
  std::vector<absl::Status> statuses(TileCount(range));
  pool_.Run(TileCount(range), [&](int worker, int64_t tile) {
    statuses[tile] = set.Measure(TileBlocks(range, tile),
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
