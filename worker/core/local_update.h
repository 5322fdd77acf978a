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

// Eager updates (arXiv 2502.12996, section 3.2): the outer gradient of a round
// is taken to be this island's fresh share of it, and for the others' share the
// one of the round before:
//
//   g^ = w g + c        c = (merged gradient - w g) of the round before
//   m' = beta m + g^
//   s  = lr (g^ + beta m')   Nesterov;   lr m'   momentum;   lr g^   SGD
//   P  = A - s
//
// The island trains on from P. The paper's islands each keep a state of the
// outer optimizer; here the servers have it, and the island learns of it from
// their answers: V says what the merged gradient g~ was, for P - V =
// kappa (g~ - g^) with kappa = lr (1 + beta), lr, lr. So when V comes,
//
//   c = c + (P - V) / kappa        (g~ - w g)
//   m = beta m + w g + c           (beta m + g~)
//   x = x + (V - P)
//
// and steps taken since the push are kept whole. m forgets a wrong start (an
// island that joins late has m = c = 0) by a factor of beta / (1 + beta) a round
// under Nesterov, and beta is not read under SGD.
class EagerStep {
 public:
  // Of an outer optimizer that can be foreseen (validate_streaming.cc).
  explicit EagerStep(const v1::OuterSpec& outer);

  // At the push, with g = A - x: `x` and `p` become P; m and c go half a step
  // (m = beta m + w g).
  void Foresee(absl::Span<const float> anchor, float weight,
               absl::Span<float> x, absl::Span<float> p, absl::Span<float> m,
               absl::Span<const float> c) const;

  // At the answer: x, m and c as above.
  void Correct(absl::Span<const float> v, absl::Span<const float> p,
               absl::Span<float> x, absl::Span<float> m,
               absl::Span<float> c) const;

 private:
  float rate_ = 1;
  float beta_ = 0;
  bool nesterov_ = false;
  float kappa_ = 1;
};

}  // namespace atl::worker

#endif  // WORKER_CORE_LOCAL_UPDATE_H_
