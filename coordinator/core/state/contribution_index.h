// A run's undecided contributions by fragment, and the parts that its shards have.
// Reports of shards and records of the run update it (rounds/index_updates.h), so
// that a decision reads it and looks at no report.
//
// Plain values. Thread-compatible.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "atoll/v1/plan.pb.h"

namespace atl::coordinator {

// Fragment, slot and seq of a contribution of the run's present epoch.
using ContributionPlace = std::tuple<int32_t, int32_t, int64_t>;

inline ContributionPlace ToPlace(const v1::ContributionKey& key) {
  return {key.fragment(), key.slot(), key.seq()};
}

// Any contribution that a report names: run_epoch, fragment, slot and seq.
using ReportedKey = std::tuple<int64_t, int32_t, int32_t, int64_t>;

inline ReportedKey ToReportedKey(const v1::ContributionKey& key) {
  return {key.run_epoch(), key.fragment(), key.slot(), key.seq()};
}

// Slot and seq: the order in which contributions are merged.
using SlotSeq = std::pair<int32_t, int64_t>;

// Equal headers of several shards are one object.
using SharedInfo = std::shared_ptr<const v1::ContributionInfo>;

// One contribution, as far as it is known.
struct SeenContribution {
  v1::ContributionKey key;
  SharedInfo info;  // The pushed header; null if only a refusal is known.
  // From the header; not set if no refusing shard knows it any longer.
  std::optional<int64_t> anchor_version;
  int stored_count = 0;     // Shards that have it whole.
  double norm_squared = 0;  // Over those shards.
  std::string refusal;      // Why it is refused; empty: it is not.
  bool received = false;    // Stored on all shards, refused by none.
  // Once it is stored on all shards (norm_bound.h):
  int64_t counted_step_count = 0;
  double norm_bound = 0;  // 0: none.
};

using SeenContributions = std::map<SlotSeq, SeenContribution>;

// A shard's part of a contribution.
struct ShardPart {
  int32_t shard = 0;
  // Entries of the shard's report that have it whole. More than 1 only if the
  // shard lies.
  int32_t stored_count = 0;
  bool has_other_info = false;  // These entries have different headers.
  double norm_squared = 0;      // Their sum.
  SharedInfo info;              // The header of the first of them.
  std::shared_ptr<const v1::RefusedContribution> refused;  // Null: it is not.
  // Its header, if the shard has had it whole or must have it, and a round may
  // still merge it. Reports of all incarnations of the shard's server count.
  SharedInfo had;

  bool is_named() const { return stored_count > 0 || refused != nullptr; }
  bool is_empty() const { return !is_named() && had == nullptr; }
};

// A contribution with the parts of all shards.
struct KnownContribution {
  v1::ContributionKey key;
  std::vector<ShardPart> parts;  // By shard; none is empty.

  const ShardPart* Find(int32_t shard) const {
    const auto at = std::lower_bound(
        parts.begin(), parts.end(), shard,
        [](const ShardPart& part, int32_t s) { return part.shard < s; });
    return at == parts.end() || at->shard != shard ? nullptr : &*at;
  }
  // The shard's part; makes an empty one.
  ShardPart& Part(int32_t shard) {
    const auto at = std::lower_bound(
        parts.begin(), parts.end(), shard,
        [](const ShardPart& part, int32_t s) { return part.shard < s; });
    if (at != parts.end() && at->shard == shard) return *at;
    return *parts.insert(at, ShardPart{.shard = shard});
  }
};

struct FragmentContributions {
  std::vector<int32_t> holders;  // Shards with a part of the fragment, in order.
  // Those that have not ended, or that are sealed. Some may be of a slot that no
  // member has yet.
  std::map<SlotSeq, KnownContribution> known;
  // The undecided ones of `known` that a shard names which has reported, or that
  // it has had and lost. Shards with different headers for one key, or a header
  // that is invalid for the run, count as a refusal. So does a norm over all
  // shards above an enrolled island's bound.
  SeenContributions seen;
  // Those of `seen`, and maybe others, that were judged since SettleOld and
  // NoteReceived last looked at the fragment. Empty once the run has ended.
  std::vector<SlotSeq> unsettled;
  std::vector<SlotSeq> unmeasured;
};

// Returns the places in order, each once, and leaves none.
inline std::vector<SlotSeq> TakePlaces(std::vector<SlotSeq>& places) {
  std::vector<SlotSeq> taken = std::exchange(places, {});
  std::sort(taken.begin(), taken.end());
  taken.erase(std::unique(taken.begin(), taken.end()), taken.end());
  return taken;
}

struct ContributionIndex {
  std::vector<FragmentContributions> fragments;
  size_t shard_count = 0;  // That `holders` are of.
  // Contributions for which UpdateRecalls must decide again.
  std::vector<ContributionPlace> changed;

  // The undecided contributions of `fragment`, by slot and seq.
  const SeenContributions& Seen(int32_t fragment) const {
    static const SeenContributions* const kNone = new SeenContributions();
    return fragment < 0 || static_cast<size_t>(fragment) >= fragments.size()
               ? *kNone
               : fragments[static_cast<size_t>(fragment)].seen;
  }
  // Null: no shard has any of it.
  const KnownContribution* Find(const ContributionPlace& place) const {
    const auto& [fragment, slot, seq] = place;
    if (fragment < 0 || static_cast<size_t>(fragment) >= fragments.size()) {
      return nullptr;
    }
    const auto& known = fragments[static_cast<size_t>(fragment)].known;
    const auto found = known.find({slot, seq});
    return found == known.end() ? nullptr : &found->second;
  }
  // The largest seq of `slot` up to `limit`; 0 without one.
  int64_t SeqMax(int32_t slot, int64_t limit) const {
    int64_t seq = 0;
    for (const FragmentContributions& fragment : fragments) {
      const auto above = fragment.known.upper_bound({slot, limit});
      if (above == fragment.known.begin()) continue;
      const SlotSeq& last = std::prev(above)->first;
      if (last.first == slot) seq = std::max(seq, last.second);
    }
    return seq;
  }
  void Clear() {
    for (FragmentContributions& fragment : fragments) {
      fragment.known.clear();
      fragment.seen.clear();
      fragment.unsettled.clear();
      fragment.unmeasured.clear();
    }
    changed.clear();
  }
};

}  // namespace atl::coordinator
