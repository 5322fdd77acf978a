// What an island did not yet say of its outer gradients: the residual of one
// fragment, which its next contribution carries (Seide et al. 2014; with a
// decay, SparseLoCo, arXiv 2508.15706).
//
// Pure. Thread-compatible. Allocates when made, and never again.
//
//   F       elements of the fragment
//   before  [F], f32: e, as of the last contribution that was merged
//   after   [F], f32: e' - Dec(q) of the contribution on its way,
//           e' = decay * e + g
//
// before stays bit for bit until the outcome is known. MERGED: after takes its
// place; anything else: after is dropped. A save holds both.

#ifndef BASE_CODEC_ERROR_FEEDBACK_H_
#define BASE_CODEC_ERROR_FEEDBACK_H_

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
  // All zeros, no contribution on its way.
  explicit ErrorFeedback(size_t element_count)
      : before_(element_count), after_(element_count) {}

  // Encodes `gradient`, shape [F], of the blocks `runs`, which together are all
  // of it, one after the other, to `encoded`. The contribution is then on its
  // way.
  //
  // FAILED_PRECONDITION: one already is; its outcome comes first.
  // INVALID_ARGUMENT: as EncodeRunWithFeedback; none is then on its way, and
  // before is as it was.
  absl::Status Encode(const Codec& codec, absl::Span<const BlockRun> runs,
                      float decay, absl::Span<const float> gradient,
                      absl::Span<char> encoded) {
    if (pending_) {
      return absl::FailedPreconditionError(
          "the last contribution's outcome is not known");
    }
    const absl::Status status = ForEachRun(
        codec, runs, [&](const BlockRun& run, const RunPlace& place) {
          return EncodeRunWithFeedback(
              codec, run, place.ValuesIn(gradient), decay,
              place.ValuesIn(absl::MakeConstSpan(before_)),
              place.ValuesIn(absl::MakeSpan(after_)), place.BytesIn(encoded));
        });
    if (!status.ok()) return status;
    pending_ = true;
    return absl::OkStatus();
  }

  // The outcome of the contribution on its way. Nothing happens if none is.
  void Resolve(bool merged) {
    if (pending_ && merged) std::swap(before_, after_);
    pending_ = false;
  }

  // As a save had it: before, and after if a contribution was on its way.
  // Requires: `before` has shape [F], `after` too or is empty.
  void Restore(absl::Span<const float> before, absl::Span<const float> after) {
    before_.assign(before.begin(), before.end());
    pending_ = !after.empty();
    if (pending_) after_.assign(after.begin(), after.end());
  }

  // Room for a gradient, shape [F], that Encode may be given: after's place, so
  // that there is no third array. Requires: !pending().
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

#endif  // BASE_CODEC_ERROR_FEEDBACK_H_
