// The rules by which a sealed round's contributions become one outer gradient.
// Pure. Immutable, so thread-safe.
//
//   n    contributions of the round
//   x_i  contribution i, f32, in the order of the seal: (slot, seq)
//   w_i  its weight, f32: normalised in f64 and rounded by the coordinator; or
//        its coefficient, if the rule has a verdict
//   g    merged outer gradient, f32
//
// Two kinds of rules. A sum g = sum(w_i x_i) takes one contribution at a time:
// the weighted mean, and RDA, norm clip, centred clip, Krum and MDA, whose
// coefficients are the coordinator's verdict on the statistics of GramSums. An
// order rule (trimmed mean, median) takes all contributions of a tile at once.
//
// Rules are element-wise: any cut of a fragment into tiles gives the same bits.

#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "atoll/v1/run.pb.h"
#include "base/codec/codec.h"

namespace atl::server {

class MergeRule {
 public:
  virtual ~MergeRule() = default;

  // For people and logs: "weighted mean".
  virtual absl::string_view name() const = 0;

  // True: the caller uses MergeRows. False: it uses Add for each contribution.
  virtual bool takes_rows() const { return false; }

  // Adds a tile of contribution `index` to `g`, both of `n` elements. Called
  // once for each contribution, in order. The first call overwrites `g`.
  // Requires: !takes_rows().
  virtual void Add(int index, float weight, int64_t n, const float* x,
                   float* g) const;

  // Add with one encoded block; same bits. `g` has the block's elements and is
  // unspecified after a fault. Requires: !takes_rows().
  virtual codec::BlockFault AddEncoded(const codec::Codec& codec, int index,
                                       float weight, absl::string_view encoded,
                                       absl::Span<float> g) const;

  // Merges the tiles of all contributions, `n` elements each, into `g`, and
  // overwrites them. They are finite. Requires: takes_rows(),
  // contribution_count >= 1.
  virtual void MergeRows(int64_t n, int contribution_count, float* const* x,
                         float* g) const;
};

// The data that a rule needs, besides the seal, before it can merge.
enum class MergeNeeds {
  kNothing,   // Nothing.
  kNorms,     // A verdict on the norms reported with STORED.
  kProducts,  // A verdict on the inner products of GramSums.
};
// Returns kNothing for an unknown rule, which has no MergeRule.
MergeNeeds FindNeeds(const v1::MergeSpec& spec);

// UNSPECIFIED is the weighted mean. INVALID_ARGUMENT: the rule is unknown to
// this program; the message has its number.
absl::StatusOr<std::unique_ptr<MergeRule>> MakeMergeRule(
    const v1::OuterSpec& spec);

}  // namespace atl::server
