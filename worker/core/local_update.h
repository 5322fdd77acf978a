// How an answer becomes part of the local parameters of a streaming island.
//
// Pure. Thread-safe. All arithmetic is f32, element by element, no fused
// multiply-add, in the order in which the formulas are written here, so that a
// repeated step gives the same bits. Spans of one call have one length.
//
//   x  local parameters      A  anchor at the push      V  the answer: the new
//   g  A - x at the push        anchor

#ifndef WORKER_CORE_LOCAL_UPDATE_H_
#define WORKER_CORE_LOCAL_UPDATE_H_

#include "absl/types/span.h"
#include "atoll/v1/run.pb.h"

namespace atl::worker {

// x = b x + (1 - b) V: one product each, then their sum; 1 - b is rounded to
// f32 once. b = 0 copies V, bit for bit (Streaming DiLoCo, arXiv 2501.18512,
// algorithm 2, line 14, with b its alpha).
void BlendIn(absl::Span<float> x, absl::Span<const float> v, float b);

// Eager updates (arXiv 2502.12996, section 3.2): at its push an island takes the
// step that its own share of the merge predicts, and trains on from there:
//
//   own = w g
//   m'  = beta m + own
//   s   = lr (own + beta m')   Nesterov;   lr m'   momentum;   lr own   SGD
//   P   = A - s
//
// Of the others, A has all that they pushed before: what they push now arrives
// a round late, and once. The paper's islands each keep parameters and a state
// of the outer optimizer that lag by the others' last round, and step by their
// fresh share and the others' last one; with SGD that is the same position, for
// A is what the servers made of that last one. (To add the others' last share
// to A once more, as a guess of their next, halves the rate at which training
// is stable.) The state m is the servers'; an island learns of it from their
// answers: V says what the merged gradient g~ was, for P - V = kappa (g~ - own)
// with kappa = lr (1 + beta), lr, lr. So when V comes,
//
//   m = beta m + own + (P - V) / kappa        (beta m + g~)
//   x = x + (V - P)
//
// and steps taken since the push are kept whole. m forgets a wrong start (an
// island that joins late has m = 0) by a factor of beta / (1 + beta) a round
// under Nesterov, and beta is not read under SGD.
class EagerStep {
 public:
  // Of an outer optimizer that can be foreseen (validate_streaming.cc).
  explicit EagerStep(const v1::OuterSpec& outer);

  // At the push, with g = A - x: `x` and `p` become P, m becomes m'.
  void Foresee(absl::Span<const float> anchor, float weight,
               absl::Span<float> x, absl::Span<float> p,
               absl::Span<float> m) const;

  // At the answer: x and m as above.
  void Correct(absl::Span<const float> v, absl::Span<const float> p,
               absl::Span<float> x, absl::Span<float> m) const;

 private:
  float rate_ = 1;
  float beta_ = 0;
  bool nesterov_ = false;
  float kappa_ = 1;
};

}  // namespace atl::worker

#endif  // WORKER_CORE_LOCAL_UPDATE_H_
