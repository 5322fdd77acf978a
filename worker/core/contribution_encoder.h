// Makes an island's contributions: outer gradients, encoded with the run's
// codec and error feedback.
//
// Pure. Thread-compatible; threads may encode different fragments concurrently.
//
//   F      elements of the fragment that this process holds, in held order
//          (base/layout/held_layout.h)
//   g      outer gradient, [F], f32
//   e      what the codec has not transmitted so far, [F], f32; 0 at first
//   decay  exchange.error_feedback_decay
//
// With error feedback q = Enc(e'), e' = decay e + g. When q is MERGED, e = e' -
// Dec(q); after any other outcome e keeps its bits. A fragment has at most one
// contribution in flight, and a local checkpoint holds e before and after it.
// Without error feedback q = Enc(g).
//
// e belongs to this island and slot: a contribution under another slot or
// run_epoch starts from e = 0, as in a new island.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "atoll/v1/plan.pb.h"
#include "atoll/v1/run.pb.h"
#include "base/codec/block_run.h"
#include "base/codec/codec.h"
#include "base/codec/error_feedback.h"
#include "base/layout/digest.h"
#include "base/layout/encoded_layout.h"
#include "base/layout/held_layout.h"

namespace atl::worker {

// An encoded contribution, or the part of one that this process holds.
struct EncodedContribution {
  v1::ContributionInfo info;
  std::vector<char> bytes;  // Format: base/layout/encoded_layout.h.
};

// The error feedback of one fragment, as a local checkpoint holds it. The
// encoder or the local checkpoint owns the memory.
struct FeedbackView {
  v1::ContributionKey key;
  absl::Span<const float> before;  // [F].
  absl::Span<const float> after;   // [F]; empty if none is in flight.
};

class ContributionEncoder {
 public:
  // held.layout() must outlive the encoder. Encodes in a `loop`, which changes
  // no bit. Requires: CreateRun accepts `spec`.
  ContributionEncoder(const HeldLayout& held, const v1::RunSpec& spec,
                      codec::Loop loop = codec::LoopInOrder);

  // Begins contribution `into.info.key` and returns a buffer for its outer
  // gradient, [F], uninitialised, that the caller fills before Encode(). If the
  // outcome of the fragment's previous contribution is unknown, it counts as
  // not merged. The memory of `into` is reused.
  absl::Span<float> GradientRoom(EncodedContribution& into);

  // Encodes the gradient in the buffer that GradientRoom() returned for `into`;
  // sets bytes, codec and digest. If several processes hold the fragment, the
  // sum of their digests is the contribution's.
  //
  // INVALID_ARGUMENT, NotFinite (base/status/not_finite.h): a value is not
  // finite. The error feedback stays as it was.
  absl::Status Encode(EncodedContribution& into);
  // The same for a gradient, [F], in other memory, which is not changed.
  absl::Status Encode(EncodedContribution& into,
                      absl::Span<const float> gradient);

  // Tells the outcome of contribution `key`. No effect if it is not in flight.
  void Resolve(const v1::ContributionKey& key, bool merged);

  // Keys of contributions whose outcome matters and is unknown.
  std::vector<v1::ContributionKey> Pending() const;

  // The residuals that a local checkpoint must hold: one entry for each
  // fragment that was encoded, in order; empty without error feedback.
  std::vector<FeedbackView> Feedback() const;
  // Restores Feedback(). DATA_LOSS: wrong layout, or no error feedback here.
  absl::Status Restore(const FeedbackView& saved);

 private:
  struct Fragment {
    EncodedLayout layout;
    int64_t element_count = 0;  // F.
    // The blocks to encode, in pieces for the loop, and their element counts.
    std::vector<codec::BlockRun> runs;
    std::vector<int32_t> element_counts;
    std::optional<codec::ErrorFeedback> feedback;
    std::optional<v1::ContributionKey> key;  // The newest contribution.
    std::vector<float> scratch;  // Lossy codecs without error feedback.
  };

  static void AddRuns(Fragment& fragment);
  bool is_f32() const { return codec_.id() == codec::CodecId::kF32; }
  uint64_t ComputeSeed(const v1::ContributionInfo& info) const;
  Digest128 ComputeDigest(const Fragment& fragment,
                          absl::Span<const char> bytes) const;

  const bool holds_all_;
  const codec::Codec& codec_;
  const uint64_t seed_;
  const float decay_;
  const codec::Loop loop_;
  std::vector<Fragment> fragments_;
};

}  // namespace atl::worker
