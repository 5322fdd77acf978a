#include "server/replay/replay.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/codec/block_grid.h"
#include "base/codec/codec.h"
#include "base/codec/xxh3.h"
#include "base/layout/encoded_layout.h"
#include "base/layout/exchange.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "base/sync/mutex.h"
#include "server/core/contribution_key.h"
#include "server/core/merge/merge_rule.h"
#include "server/core/outer_optimizer/outer_optimizer.h"
#include "server/core/replica.h"
#include "server/merge/merge_tile.h"
#include "server/merge/sealed_set.h"
#include "server/merge/work_queue.h"
#include "server/replay/read_ahead.h"
#include "server/store/encoded_range.h"
#include "server/store/encoded_source.h"
#include "server/store/shard_range.h"

namespace atl::server {
namespace {

constexpr int64_t kPieceBlocksMin = 64;

class Piece : public EncodedSource {
 public:
  Piece(const EncodedRange& encoded, const ContributionKey& key)
      : encoded_(encoded), key_(key) {}

  void Set(IndexRange blocks, std::vector<char> bytes) {
    blocks_ = blocks;
    bytes_ = std::move(bytes);
  }
  const ContributionKey& key() const { return key_; }

  // Adds the blocks to both digests that a contribution may have.
  void AddToDigests() {
    whole_.Update({bytes_.data(), bytes_.size()});
    for (int64_t b = blocks_.begin; b < blocks_.end; ++b) {
      sum_ += BlockDigest(b, BlockBytes({b, b + 1}));
    }
  }
  // Once all blocks were added: OK if one of them is `sealed`.
  absl::Status CheckDigest(const Digest128& sealed) const {
    const codec::Hash128 hash = whole_.Current();
    const Digest128 whole = {hash.high, hash.low};
    if (whole == sealed || sum_ == sealed) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat(key_.ToString(), " as kept has digest ",
                     whole.ToHex(), ", but ", sealed.ToHex(), " was sealed"));
  }

  const EncodedRange& encoded() const override { return encoded_; }
  std::string ToString() const override { return key_.ToString(); }
  absl::Status ReadEncoded(IndexRange blocks, char* bytes) const override {
    const absl::Span<const char> found = BlockBytes(blocks);
    std::memcpy(bytes, found.data(), found.size());
    return absl::OkStatus();
  }

 private:
  absl::Span<const char> BlockBytes(IndexRange blocks) const {
    const int64_t begin = encoded_.ByteCount({blocks_.begin, blocks.begin});
    return absl::MakeConstSpan(bytes_).subspan(
        static_cast<size_t>(begin),
        static_cast<size_t>(encoded_.ByteCount(blocks)));
  }

  const EncodedRange& encoded_;
  const ContributionKey key_;
  IndexRange blocks_;
  std::vector<char> bytes_;
  codec::Xxh3 whole_;
  Digest128 sum_;
};

v1::Seal ToSeal(const v1::Round& round) {
  v1::Seal seal;
  seal.set_fragment(round.fragment());
  seal.set_version(round.version() - 1);
  seal.set_attempt(round.attempt());
  for (const v1::RoundContribution& contribution : round.contributions()) {
    if (contribution.outcome() != v1::OUTCOME_MERGED) continue;
    v1::SealedContribution* sealed = seal.add_contributions();
    *sealed->mutable_key() = contribution.info().key();
    *sealed->mutable_digest() = contribution.info().digest();
    sealed->set_weight(contribution.weight());
    sealed->set_token_count(contribution.token_count());
  }
  if (round.has_verdict()) *seal.mutable_verdict() = round.verdict();
  return seal;
}

struct Buffers {
  std::vector<float> contributions;
  std::vector<float> gradient;
  std::vector<char> delta;
};

struct PartDigests {
  Digest128 theta;
  Digest128 replica;
};

// One fragment at its newest recomputed version.
class FragmentReplay {
 public:
  FragmentReplay(const ReplayOptions& options, const RunLayout& layout,
                 int32_t fragment, const OuterOptimizer& optimizer,
                 const MergeRule& rule, TilePool& pool, ParameterClient& shards,
                 KeptClient& kept)
      : options_(options),
        spec_(options.run.spec()),
        layout_(layout),
        fragment_(fragment),
        optimizer_(optimizer),
        rule_(rule),
        pool_(pool),
        shards_(shards),
        kept_(kept),
        range_(layout, fragment, /*shard=*/0, /*shard_count=*/1),
        encoded_(range_, UpCodec(spec_)),
        down_(layout, fragment, DownCodec(spec_)),
        buffers_(pool.thread_count()) {}

  absl::Status Load(const v1::FragmentVersion& cut) {
    version_ = cut.version();
    const auto count = static_cast<size_t>(range_.element_count());
    theta_.resize(count);
    RETURN_IF_ERROR(
        shards_
            .Pull(fragment_, version_, Digest128::FromProto(cut.digest()),
                  absl::MakeSpan(theta_), options_.bounds)
            .status);
    state_.resize(optimizer_.state_count());
    for (size_t i = 0; i < state_.size(); ++i) {
      RETURN_IF_ERROR(PullState(static_cast<int32_t>(i), state_[i]));
    }
    if (!HasReplica(spec_)) return absl::OkStatus();
    replica_.resize(count);
    return shards_
        .PullReplica(fragment_, version_, -1, absl::MakeSpan(replica_),
                     options_.bounds)
        .status;
  }

  // Starts reading the contributions of `rounds`: all that will be made.
  void BeginReading(std::vector<const v1::Round*> rounds) {
    std::vector<size_t> counts;
    for (const v1::Round* round : rounds) {
      std::vector<ContributionKey> keys;
      const v1::Seal seal = ToSeal(*round);
      for (const v1::SealedContribution& sealed : seal.contributions()) {
        keys.push_back(ContributionKey::FromProto(sealed.key()));
      }
      for (IndexRange blocks = {0, 0}; blocks.end < range_.block_count();) {
        blocks = {blocks.end,
                  std::min(range_.block_count(),
                           blocks.end + PieceBlocks(keys.size()))};
        counts.push_back(keys.size());
        batches_.push_back({blocks, keys});
      }
    }
    ahead_.emplace(std::move(counts), kReadersMax,
                   [this](size_t batch, size_t item, std::stop_token stop) {
                     return ReadItem(batches_[batch].blocks,
                                     batches_[batch].keys[item], stop);
                   });
  }

  // Makes the version of `round`, which must be the next.
  absl::StatusOr<ReplayedCommit> Make(const v1::Round& round) {
    const v1::Seal seal = ToSeal(round);
    if (FindNeeds(spec_.outer().merge()) != MergeNeeds::kNothing &&
        !seal.has_verdict()) {
      return absl::FailedPreconditionError(
          "the run's history lacks its verdict: an older program made it");
    }
    std::vector<std::shared_ptr<Piece>> pieces;
    for (const v1::SealedContribution& sealed : seal.contributions()) {
      pieces.push_back(std::make_shared<Piece>(
          encoded_, ContributionKey::FromProto(sealed.key())));
    }
    ASSIGN_OR_RETURN(const SealedSet set,
                     SealedSet::Of(range_, spec_, rule_, seal,
                                   {pieces.begin(), pieces.end()}));
    std::vector<PartDigests> parts(
        static_cast<size_t>(std::max(1, spec_.server_count())));
    std::vector<KeptDigests> said;
    for (IndexRange blocks = {0, 0}; blocks.end < range_.block_count();) {
      // Frees the last piece: only this one and the next one stay in memory.
      for (const auto& piece : pieces) piece->Set({}, {});
      ASSIGN_OR_RETURN(std::vector<ReadAhead::Item> items, ahead_->Next());
      blocks = batches_[next_batch_++].blocks;
      for (size_t i = 0; i < pieces.size(); ++i) {
        pieces[i]->Set(blocks, std::move(items[i].bytes));
        AddKnown(std::move(items[i].digests), said);
      }
      pool_.Run(static_cast<int64_t>(pieces.size()),
                [&](int, int64_t i) { pieces[i]->AddToDigests(); });
      RETURN_IF_ERROR(StepPiece(set, blocks, parts));
    }
    for (int i = 0; i < seal.contributions_size(); ++i) {
      RETURN_IF_ERROR(pieces[i]->CheckDigest(
          Digest128::FromProto(seal.contributions(i).digest())));
    }
    version_ = round.version();
    return Compare(round, seal.contributions_size(), parts, said);
  }

  absl::StatusOr<ReplayedState> CompareState() {
    ReplayedState result;
    result.fragment = fragment_;
    result.version = version_;
    std::vector<float> held;
    for (size_t i = 0; i < state_.size(); ++i) {
      const absl::Status pulled = PullState(static_cast<int32_t>(i), held);
      if (absl::IsOutOfRange(pulled)) return result;
      RETURN_IF_ERROR(pulled);
      for (size_t k = 0; k < held.size(); ++k) {
        // Bitwise: 0 and -0 differ.
        if (std::memcmp(&held[k], &state_[i][k], sizeof(float)) == 0) continue;
        result.compared = true;
        result.array = static_cast<int32_t>(i);
        result.element = static_cast<int64_t>(k);
        return result;
      }
    }
    result.compared = true;
    return result;
  }

  bool has_state() const { return !state_.empty(); }

 private:
  absl::Status PullState(int32_t array, std::vector<float>& out) {
    out.resize(static_cast<size_t>(range_.element_count()));
    v1::PullKeptRequest wanted;
    wanted.set_fragment(fragment_);
    wanted.mutable_state()->set_version(version_);
    wanted.mutable_state()->set_array(array);
    return kept_.Pull(
        wanted, codec::GetCodec(codec::CodecId::kF32), range_.blocks(),
        absl::MakeSpan(reinterpret_cast<char*>(out.data()),
                       out.size() * sizeof(float)),
        options_.bounds, nullptr);
  }

  // Blocks of each of `count` contributions that are in memory at once.
  int64_t PieceBlocks(size_t count) const {
    const auto block_bytes = static_cast<int64_t>(
        encoded_.codec().EncodedBytes(codec::kBlockElements));
    const int64_t pieces = std::max<int64_t>(1, static_cast<int64_t>(count));
    return std::max(kPieceBlocksMin, kPieceBytes / 2 / (block_bytes * pieces));
  }

  // Runs on a thread of ahead_.
  absl::StatusOr<ReadAhead::Item> ReadItem(IndexRange blocks,
                                           const ContributionKey& key,
                                           std::stop_token stop) {
    v1::PullKeptRequest wanted;
    wanted.set_fragment(fragment_);
    *wanted.mutable_contribution() = key.ToProto();
    // Stops if the caller stops, or if the result is no longer needed.
    std::stop_source either;
    const auto forward = [&either] { either.request_stop(); };
    const std::stop_callback callers(options_.bounds.stop, forward);
    const std::stop_callback own(stop, forward);
    CallBounds bounds = options_.bounds;
    bounds.stop = either.get_token();
    bounds.on_progress = nullptr;  // Each would count its own bytes.
    if (bounds.on_waiting) {
      bounds.on_waiting = [this](const TransferWait& waiting) {
        MutexLock lock(&waiting_mutex_);
        options_.bounds.on_waiting(waiting);
      };
    }
    ReadAhead::Item item;
    item.bytes.resize(static_cast<size_t>(encoded_.ByteCount(blocks)));
    const absl::Status pulled =
        kept_.Pull(wanted, encoded_.codec(), blocks,
                   absl::MakeSpan(item.bytes), bounds, &item.digests);
    if (!pulled.ok()) return Annotate(pulled, key.ToString());
    return item;
  }

  // Adds the digests of shards that are not in `said`.
  static void AddKnown(std::vector<KeptDigests> digests,
                       std::vector<KeptDigests>& said) {
    for (KeptDigests& part : digests) {
      const bool is_known =
          std::any_of(said.begin(), said.end(), [&](const KeptDigests& d) {
            return d.shard == part.shard;
          });
      if (!is_known) said.push_back(std::move(part));
    }
  }

  absl::Status StepPiece(const SealedSet& set, IndexRange blocks,
                         std::vector<PartDigests>& parts) {
    const int64_t tile_count =
        (blocks.size() + kTileBlocks - 1) / kTileBlocks;
    std::vector<absl::Status> statuses(tile_count);
    // By tile: a tile may span two shards.
    std::vector<std::vector<PartDigests>> digests(
        tile_count, std::vector<PartDigests>(parts.size()));
    pool_.Run(tile_count, [&](int worker, int64_t tile) {
      const int64_t begin = blocks.begin + tile * kTileBlocks;
      statuses[tile] =
          StepOneTile(set, {begin, std::min(begin + kTileBlocks, blocks.end)},
                      buffers_[worker], digests[tile]);
    });
    for (const absl::Status& status : statuses) RETURN_IF_ERROR(status);
    for (const std::vector<PartDigests>& tile : digests) {
      for (size_t shard = 0; shard < parts.size(); ++shard) {
        parts[shard].theta += tile[shard].theta;
        parts[shard].replica += tile[shard].replica;
      }
    }
    return absl::OkStatus();
  }

  absl::Status StepOneTile(const SealedSet& set, IndexRange blocks,
                           Buffers& buffers, std::vector<PartDigests>& parts) {
    const int64_t count = range_.ElementCount(blocks);
    const int64_t offset = range_.ElementOffset(blocks.begin);
    buffers.gradient.resize(static_cast<size_t>(count));
    RETURN_IF_ERROR(
        set.Merge(blocks, buffers.contributions, buffers.gradient.data()));
    OuterTile tile;
    tile.count = count;
    tile.version = version_;
    tile.gradient = buffers.gradient.data();
    tile.theta = theta_.data() + offset;
    for (size_t i = 0; i < state_.size(); ++i) {
      tile.state[i] = state_[i].data() + offset;
    }
    StepBlocks(optimizer_, layout_, fragment_, blocks, tile);
    for (size_t shard = 0; shard < parts.size(); ++shard) {
      const IndexRange held =
          layout_.ShardBlocks(fragment_, static_cast<int32_t>(shard),
                              static_cast<int32_t>(parts.size()));
      const IndexRange part = {std::max(held.begin, blocks.begin),
                               std::min(held.end, blocks.end)};
      if (part.begin >= part.end) continue;
      const absl::Span<const float> theta =
          absl::MakeConstSpan(theta_).subspan(
              static_cast<size_t>(range_.ElementOffset(part.begin)),
              static_cast<size_t>(range_.ElementCount(part)));
      parts[shard].theta += RangeDigest(layout_, fragment_, part, theta);
      if (replica_.empty()) continue;
      float* const replica = replica_.data() + range_.ElementOffset(part.begin);
      buffers.delta.resize(static_cast<size_t>(down_.ByteCount(part)));
      const ReplicaStep step(down_, spec_.exchange(), version_ + 1);
      const ReplicaStep::Result made = step.Advance(
          part, theta.data(), replica, replica, buffers.delta.data());
      if (!made.finite) {
        return absl::DataLossError(
            "its replica has values that are not finite");
      }
      parts[shard].replica += made.digest;
    }
    return absl::OkStatus();
  }

  static ReplayedCommit Compare(const v1::Round& round, int contribution_count,
                                const std::vector<PartDigests>& parts,
                                const std::vector<KeptDigests>& said) {
    ReplayedCommit commit;
    commit.commit_seq = round.commit_seq();
    commit.fragment = round.fragment();
    commit.version = round.version();
    commit.contribution_count = contribution_count;
    commit.committed = Digest128::FromProto(round.digest());
    for (const PartDigests& part : parts) commit.replayed += part.theta;
    if (commit.replayed != commit.committed) {
      commit.differences.push_back(
          {-1, false, commit.committed, commit.replayed});
    }
    for (const KeptDigests& shard : said) {
      const PartDigests& part = parts[static_cast<size_t>(shard.shard)];
      if (shard.digest != part.theta) {
        commit.differences.push_back(
            {shard.shard, false, shard.digest, part.theta});
      }
      if (shard.replica_digest.has_value() &&
          *shard.replica_digest != part.replica) {
        commit.differences.push_back(
            {shard.shard, true, *shard.replica_digest, part.replica});
      }
    }
    return commit;
  }

  const ReplayOptions& options_;
  const v1::RunSpec& spec_;
  const RunLayout& layout_;
  const int32_t fragment_;
  const OuterOptimizer& optimizer_;
  const MergeRule& rule_;
  TilePool& pool_;
  ParameterClient& shards_;
  KeptClient& kept_;
  const ShardRange range_;  // All of the fragment.
  const EncodedRange encoded_;
  const EncodedLayout down_;
  int64_t version_ = 0;
  std::vector<float> theta_;
  std::vector<std::vector<float>> state_;
  std::vector<float> replica_;    // Empty: the run has none.
  std::vector<Buffers> buffers_;  // One a thread.
  // The batches to read, in order: blocks of all contributions of a round.
  struct MakeBatch {
    IndexRange blocks;
    std::vector<ContributionKey> keys;
  };
  std::vector<MakeBatch> batches_;
  size_t next_batch_ = 0;
  Mutex waiting_mutex_;
  std::optional<ReadAhead> ahead_;  // Last: its threads use the others.
};

std::string MakeName(const v1::Round& round) {
  return absl::StrCat("commit ", round.commit_seq(), " (fragment ",
                      round.fragment(), ", version ", round.version(), ")");
}

absl::Status CheckDecisions(const ReplayOptions& options,
                            const RunLayout& layout) {
  const int32_t fragment_count = layout.fragment_count();
  if (options.from.cut_size() != fragment_count) {
    return absl::FailedPreconditionError("the cut is of another layout");
  }
  std::vector<int64_t> versions;
  for (const v1::FragmentVersion& cut : options.from.cut()) {
    versions.push_back(cut.version());
  }
  int64_t commit_seq = options.from.commit_seq();
  for (const v1::Round& round : options.rounds) {
    const int32_t f = round.fragment();
    if (round.commit_seq() != commit_seq || f < 0 || f >= fragment_count ||
        round.version() != versions[f] + 1) {
      return absl::FailedPreconditionError(
          absl::StrCat(MakeName(round), " does not follow from the cut"));
    }
    ++versions[f];
    ++commit_seq;
  }
  return absl::OkStatus();
}

}  // namespace

const ReplayedCommit* ReplayResult::first_difference() const {
  for (const ReplayedCommit& commit : commits) {
    if (!commit.agrees()) return &commit;
  }
  return nullptr;
}

absl::StatusOr<ReplayResult> Replay(const ReplayOptions& options,
                                    const RunLayout& layout,
                                    ParameterClient& parameters,
                                    KeptClient& kept) {
  RETURN_IF_ERROR(CheckDecisions(options, layout));
  ASSIGN_OR_RETURN(const std::unique_ptr<OuterOptimizer> optimizer,
                   MakeOuterOptimizer(options.run.spec().outer()));
  ASSIGN_OR_RETURN(const std::unique_ptr<MergeRule> rule,
                   MakeMergeRule(options.run.spec().outer()));
  TilePool pool(std::max(1, options.thread_count));
  ReplayResult result;
  for (int32_t f = 0; f < layout.fragment_count(); ++f) {
    std::vector<const v1::Round*> rounds;
    for (const v1::Round& round : options.rounds) {
      if (round.fragment() == f) rounds.push_back(&round);
    }
    if (rounds.empty()) continue;
    FragmentReplay fragment(options, layout, f, *optimizer, *rule, pool,
                            parameters, kept);
    const absl::Status loaded = fragment.Load(options.from.cut(f));
    if (!loaded.ok()) {
      return Annotate(loaded, absl::StrCat("fragment ", f, " of the cut"));
    }
    fragment.BeginReading(rounds);
    bool agrees = true;
    for (const v1::Round* round : rounds) {
      absl::StatusOr<ReplayedCommit> made = fragment.Make(*round);
      if (!made.ok()) return Annotate(made.status(), MakeName(*round));
      result.commits.push_back(*std::move(made));
      if (options.on_commit) options.on_commit(*round);
      agrees = result.commits.back().agrees();
      if (!agrees) break;
    }
    if (!agrees || !fragment.has_state()) continue;
    ASSIGN_OR_RETURN(ReplayedState state, fragment.CompareState());
    result.states.push_back(std::move(state));
  }
  std::sort(result.commits.begin(), result.commits.end(),
            [](const ReplayedCommit& a, const ReplayedCommit& b) {
              return a.commit_seq < b.commit_seq;
            });
  return result;
}

}  // namespace atl::server
