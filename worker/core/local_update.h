// Merges an answer into the local parameters of a streaming island.
//
// Pure. Thread-safe. All arithmetic is f32, element by element, without fused
// multiply-add, in the order of the formulas below, so a repeated step gives
// the same bits. All spans of a call have the same length.
//
//   x  local parameters      A  anchor at the push
//   g  A - x at the push      V  the answer: the new anchor

#pragma once

#include "absl/types/span.h"
#include "atoll/v1/run.pb.h"

namespace atl::worker {

// x = b x + (1 - b) V: one product each, then their sum. 1 - b is rounded to
// f32 once. b = 0 copies V bit for bit. Source: Streaming DiLoCo, arXiv
// 2501.18512, algorithm 2, line 14, where b is alpha.
void BlendIn(absl::Span<float> x, absl::Span<const float> v, float b);

// Eager updates (arXiv 2502.12996, section 3.2). At its push an island takes
// the outer step that its own share predicts, and trains on from P:
//
//   own = w g
//   m'  = beta m + own
//   s   = lr (own + beta m')   Nesterov;   lr m'   momentum;   lr own   SGD
//   P   = A - s
//
// A contains everything that the other islands pushed before. Their present
// pushes arrive once, a round late. The paper's islands keep parameters and an
// outer optimizer state that lag by the others' last round, and step by their
// fresh share and the others' last one. With SGD that is the same position,
// because the servers made A from that last share. Adding the others' last
// share to A again, as a guess, would halve the stable learning rate.
//
// The servers own the state m. An island derives it from their answers: V
// reveals the merged gradient g~, because P - V = kappa (g~ - own) with kappa =
// lr (1 + beta) for Nesterov, lr for momentum and SGD. When V comes:
//
//   m = beta m + own + (P - V) / kappa        (beta m + g~)
//   x = x + (V - P)
//
// A wrong start of m (an island that joins late has m = 0) decays by beta / (1
// + beta) a round under Nesterov. SGD does not read beta.
class EagerStep {
 public:
  // `outer` must be an optimizer that can be foreseen (validate_streaming.cc).
  explicit EagerStep(const v1::OuterSpec& outer);

  // At the push, with g = A - x: `x` and `p` become P, m becomes m'.
  void Foresee(absl::Span<const float> anchor, float weight,
               absl::Span<float> x, absl::Span<float> p,
               absl::Span<float> m) const;

  // At the answer: updates x and m as above.
  void Correct(absl::Span<const float> v, absl::Span<const float> p,
               absl::Span<float> x, absl::Span<float> m) const;

 private:
  float rate_ = 1;
  float beta_ = 0;
  bool nesterov_ = false;
  float kappa_ = 1;
};

}  // namespace atl::worker
