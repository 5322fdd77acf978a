// Error feedback of one fragment: the residual of an island's outer gradients,
// which its next contribution carries (Seide et al. 2014; with a decay,
// SparseLoCo, arXiv 2508.15706). Pure. Thread-compatible.
//
//   F       elements of the fragment
//   before  [F], f32: e, after the last merged contribution
//   after   [F], f32: e' - Dec(q) of the pending contribution,
//           e' = decay * e + g
//
// `before` stays bit for bit until the outcome is known. If the contribution is
// MERGED, `after` replaces it; otherwise `after` is dropped. The local
// checkpoint holds both.

#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/codec/block_run.h"
#include "base/codec/codec.h"

namespace atl::codec {

class ErrorFeedback {
 public:
  // All zeros, no pending contribution.
  explicit ErrorFeedback(size_t element_count)
      : before_(element_count), after_(element_count) {}

  // Encodes `gradient`, shape [F], to `encoded`. `runs` are its blocks, in
  // order and complete. The contribution is then pending.
  // FAILED_PRECONDITION: a contribution is pending; call Resolve first.
  // INVALID_ARGUMENT: as EncodeRunWithFeedback. Nothing is then pending, and
  // `before` is unchanged.
  absl::Status Encode(const Codec& codec, absl::Span<const BlockRun> runs,
                      float decay, absl::Span<const float> gradient,
                      absl::Span<char> encoded,
                      const Loop& loop = LoopInOrder) {
    if (pending_) {
      return absl::FailedPreconditionError(
          "the last contribution's outcome is not known");
    }
    const absl::Status status = ForEachRun(
        loop, codec, runs, [&](const BlockRun& run, const RunPlace& place) {
          return EncodeRunWithFeedback(
              codec, run, place.ValuesIn(gradient), decay,
              place.ValuesIn(absl::MakeConstSpan(before_)),
              place.ValuesIn(absl::MakeSpan(after_)), place.BytesIn(encoded));
        });
    if (!status.ok()) return status;
    pending_ = true;
    return absl::OkStatus();
  }

  // Takes the outcome of the pending contribution. No effect if none is.
  void Resolve(bool merged) {
    if (pending_ && merged) std::swap(before_, after_);
    pending_ = false;
  }

  // Restores the state from a local checkpoint. Requires: `before` has shape
  // [F]; `after` has shape [F] if a contribution was pending, else it is empty.
  void Restore(absl::Span<const float> before, absl::Span<const float> after) {
    before_.assign(before.begin(), before.end());
    pending_ = !after.empty();
    if (pending_) after_.assign(after.begin(), after.end());
  }

  // Memory for a gradient, shape [F], that Encode may be given. It is `after`'s
  // memory, so no third array is needed. Requires: !pending().
  absl::Span<float> Room() { return absl::MakeSpan(after_); }

  bool pending() const { return pending_; }
  absl::Span<const float> before() const { return before_; }
  // Meaningful while pending().
  absl::Span<const float> after() const { return after_; }

 private:
  std::vector<float> before_;
  std::vector<float> after_;
  bool pending_ = false;
};

}  // namespace atl::codec
