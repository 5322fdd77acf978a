// Makes an island's contributions: outer gradients, encoded by the run's codec
// and with the run's error feedback.
//
// Pure. Thread-compatible; different fragments may be encoded by different
// threads at once.
//
//   F      elements of the fragment that this process holds, in their held
//          order (base/layout/held_layout.h)
//   g      outer gradient, [F], f32
//   e      what the codec has left unsaid so far, [F], f32; 0 at first
//   decay  exchange.error_feedback_decay
//
// With error feedback q = Enc(e'), e' = decay e + g. Once q is MERGED,
// e = e' - Dec(q); whatever else becomes of it, e stays bit for bit. So a
// fragment has at most one contribution on its way, and a save holds e before
// and after it. Without error feedback q = Enc(g).
//
// e is this island's, under its slot: a contribution under another slot or
// run_epoch starts from e = 0, as a new island does.

#ifndef WORKER_CORE_CONTRIBUTION_ENCODER_H_
#define WORKER_CORE_CONTRIBUTION_ENCODER_H_

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

// One contribution as it travels, or the part of it that this process holds:
// made once, pushed as often as it takes.
struct EncodedContribution {
  v1::ContributionInfo info;
  std::vector<char> bytes;  // As base/layout/encoded_layout.h has them.
};

// The error feedback of one fragment, as a save has it. All spans are the
// encoder's, or the save's.
struct FeedbackView {
  // Of the newest contribution that was encoded.
  v1::ContributionKey key;
  absl::Span<const float> before;  // [F].
  absl::Span<const float> after;   // [F]; empty if none is on its way.
};

class ContributionEncoder {
 public:
  // held.layout() must outlive it. Requires: `spec` is one that CreateRun takes.
  ContributionEncoder(const HeldLayout& held, const v1::RunSpec& spec);

  // Bytes of a contribution of `fragment`.
  int64_t byte_count(int32_t fragment) const {
    return fragments_[fragment].layout.byte_count();
  }

  // Begins contribution `into.info.key`: room for its outer gradient, [F], to
  // be filled before Encode(); it holds anything. A contribution of the
  // fragment whose outcome was never learnt counts as one that was not merged.
  // The memory of `into` is used again.
  absl::Span<float> GradientRoom(EncodedContribution& into);

  // Encodes what GradientRoom() of the same `into` was filled with; sets its
  // bytes, codec and digest. Where several processes hold the fragment their
  // digests add up to the contribution's.
  //
  // INVALID_ARGUMENT: a value is not finite; the message names the block. With
  // F32 that is left to the servers, which look at every value anyway.
  absl::Status Encode(EncodedContribution& into);
  // The same of a gradient, [F], that is elsewhere already: the room is not
  // filled, and `gradient` is not changed.
  absl::Status Encode(EncodedContribution& into,
                      absl::Span<const float> gradient);

  // What became of contribution `key`. Nothing if it is not on its way here.
  void Resolve(const v1::ContributionKey& key, bool merged);

  // Keys of those whose outcome matters and is not known yet.
  std::vector<v1::ContributionKey> Pending() const;

  // What a save has to hold: of each fragment that was encoded, in order;
  // empty without error feedback.
  std::vector<FeedbackView> Feedback() const;
  // Takes it up again.
  //
  // DATA_LOSS: it is not of this layout, or this run has no error feedback.
  absl::Status Restore(const FeedbackView& saved);

 private:
  struct Fragment {
    EncodedLayout layout;
    int64_t element_count = 0;  // F.
    // Of what has to be encoded: blocks, and their element counts.
    std::vector<codec::BlockRun> runs;
    std::vector<int32_t> element_counts;
    std::optional<codec::ErrorFeedback> feedback;
    std::optional<v1::ContributionKey> key;  // The newest.
    std::vector<float> scratch;  // Of lossy codecs without error feedback.
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
  std::vector<Fragment> fragments_;
};

}  // namespace atl::worker

#endif  // WORKER_CORE_CONTRIBUTION_ENCODER_H_
