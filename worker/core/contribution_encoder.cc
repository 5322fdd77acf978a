#include "worker/core/contribution_encoder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/codec/f32_bytes.h"
#include "base/codec/f32_values.h"
#include "base/codec/xxh3.h"
#include "base/layout/exchange.h"
#include "base/status/not_finite.h"
#include "base/status/status_macros.h"

namespace atl::worker {
namespace {

// Blocks of a piece: enough work for a thread, and few for one fragment.
constexpr int64_t kBlocksAtOnce = 64;

float ChooseDecay(const v1::ExchangeSpec& exchange) {
  const double decay = exchange.error_feedback_decay();
  return decay == 0 ? 1.0f : static_cast<float>(decay);
}

bool SameKey(const v1::ContributionKey& a, const v1::ContributionKey& b) {
  return a.run_epoch() == b.run_epoch() && a.fragment() == b.fragment() &&
         a.slot() == b.slot() && a.seq() == b.seq();
}

bool SameOwner(const v1::ContributionKey& a, const v1::ContributionKey& b) {
  return a.run_epoch() == b.run_epoch() && a.slot() == b.slot();
}

}  // namespace

ContributionEncoder::ContributionEncoder(const HeldLayout& held,
                                         const v1::RunSpec& spec,
                                         codec::Loop loop)
    : holds_all_(held.is_all()),
      codec_(UpCodec(spec)),
      seed_(spec.exchange().seed()),
      decay_(ChooseDecay(spec.exchange())),
      loop_(std::move(loop)) {
  fragments_.reserve(held.layout().fragment_count());
  for (int32_t f = 0; f < held.layout().fragment_count(); ++f) {
    Fragment fragment{
        EncodedLayout(held.layout(), f, codec_, held.fragment_blocks(f))};
    fragment.element_count = held.fragment_element_count(f);
    if (!is_f32() || spec.exchange().error_feedback()) AddRuns(fragment);
    if (spec.exchange().error_feedback()) {
      fragment.feedback.emplace(fragment.element_count);
    }
    fragments_.push_back(std::move(fragment));
  }
}

void ContributionEncoder::AddRuns(Fragment& fragment) {
  const EncodedLayout& layout = fragment.layout;
  for (const IndexRange blocks : layout.held()) {
    const std::vector<int32_t> counts = layout.ElementCounts(blocks);
    fragment.element_counts.insert(fragment.element_counts.end(),
                                   counts.begin(), counts.end());
  }
  // The span stays valid: a move of `fragment` does not move the counts.
  absl::Span<const int32_t> counts = fragment.element_counts;
  for (const IndexRange blocks : layout.held()) {
    for (int64_t begin = blocks.begin; begin < blocks.end;
         begin += kBlocksAtOnce) {
      const int64_t count = std::min(kBlocksAtOnce, blocks.end - begin);
      codec::BlockRun run;
      run.first_block = begin;
      run.first_element = layout.layout().BlockOffset(layout.fragment(), begin);
      run.element_counts = counts.subspan(0, count);
      counts.remove_prefix(count);
      fragment.runs.push_back(run);
    }
  }
}

absl::Span<float> ContributionEncoder::GradientRoom(EncodedContribution& into) {
  const v1::ContributionKey& key = into.info.key();
  Fragment& fragment = fragments_[key.fragment()];
  const auto count = static_cast<size_t>(fragment.element_count);
  into.bytes.resize(fragment.layout.byte_count());
  if (fragment.feedback.has_value()) {
    if (fragment.key.has_value() && !SameOwner(*fragment.key, key)) {
      fragment.feedback.emplace(count);
    }
    fragment.feedback->Resolve(/*merged=*/false);
    return fragment.feedback->Room();
  }
  if (is_f32()) {
    return absl::MakeSpan(reinterpret_cast<float*>(into.bytes.data()), count);
  }
  fragment.scratch.resize(count);
  return absl::MakeSpan(fragment.scratch);
}

// Hashes the contribution's place in training, not its key: a restarted island
// skips values of `seq` and must produce the same bits.
uint64_t ContributionEncoder::ComputeSeed(
    const v1::ContributionInfo& info) const {
  const int64_t numbers[] = {info.key().fragment(), info.key().slot(),
                             info.anchor_version()};
  return codec::ComputeXxh3(
             absl::string_view(reinterpret_cast<const char*>(numbers),
                               sizeof(numbers)),
             seed_)
      .low;
}

Digest128 ContributionEncoder::ComputeDigest(
    const Fragment& fragment, absl::Span<const char> bytes) const {
  if (holds_all_) return ContributionDigest(bytes);
  Digest128 sum;
  for (const IndexRange blocks : fragment.layout.held()) {
    for (int64_t b = blocks.begin; b < blocks.end; ++b) {
      sum += BlockDigest(
          b, bytes.subspan(fragment.layout.ByteOffset(b),
                           fragment.layout.ByteCount({b, b + 1})));
    }
  }
  return sum;
}

absl::Status ContributionEncoder::Encode(EncodedContribution& into) {
  Fragment& fragment = fragments_[into.info.key().fragment()];
  if (fragment.feedback.has_value()) {
    return Encode(into, fragment.feedback->Room());
  }
  if (!is_f32()) return Encode(into, fragment.scratch);
  return Encode(into, absl::MakeConstSpan(
                          reinterpret_cast<const float*>(into.bytes.data()),
                          into.bytes.size() / sizeof(float)));
}

absl::Status ContributionEncoder::Encode(EncodedContribution& into,
                                         absl::Span<const float> gradient) {
  const v1::ContributionKey& key = into.info.key();
  Fragment& fragment = fragments_[key.fragment()];
  const uint64_t seed = ComputeSeed(into.info);
  for (codec::BlockRun& run : fragment.runs) run.seed = seed;
  absl::Status encoded;
  if (fragment.feedback.has_value()) {
    encoded = fragment.feedback->Encode(codec_, fragment.runs, decay_, gradient,
                                        absl::MakeSpan(into.bytes), loop_);
    if (encoded.ok()) fragment.key = key;
  } else if (!is_f32()) {
    encoded = codec::ForEachRun(
        loop_, codec_, fragment.runs,
        [&](const codec::BlockRun& run, const codec::RunPlace& place) {
          return codec::EncodeRun(codec_, run, place.ValuesIn(gradient),
                                  place.BytesIn(absl::MakeSpan(into.bytes)));
        });
  } else if (!codec::AllFinite(gradient)) {
    encoded = absl::InvalidArgumentError(
        absl::StrCat("the outer gradient of fragment ", key.fragment(),
                     " has a value that is not finite"));
  } else if (const char* const bytes = codec::F32Bytes(gradient).data();
             bytes != into.bytes.data()) {
    std::memcpy(into.bytes.data(), bytes, into.bytes.size());
  }
  if (absl::IsInvalidArgument(encoded)) {
    encoded = NotFinite(NotFiniteOf::kOther, encoded);
  }
  RETURN_IF_ERROR(encoded);
  into.info.set_codec(ToProto(codec_));
  *into.info.mutable_digest() = ComputeDigest(fragment, into.bytes).ToProto();
  return absl::OkStatus();
}

void ContributionEncoder::Resolve(const v1::ContributionKey& key, bool merged) {
  if (key.fragment() < 0 || key.fragment() >= fragments_.size()) return;
  Fragment& fragment = fragments_[key.fragment()];
  if (!fragment.key.has_value() || !SameKey(*fragment.key, key)) return;
  if (fragment.feedback.has_value()) fragment.feedback->Resolve(merged);
}

std::vector<v1::ContributionKey> ContributionEncoder::Pending() const {
  std::vector<v1::ContributionKey> keys;
  for (const Fragment& fragment : fragments_) {
    if (fragment.feedback.has_value() && fragment.feedback->pending()) {
      keys.push_back(*fragment.key);
    }
  }
  return keys;
}

std::vector<FeedbackView> ContributionEncoder::Feedback() const {
  std::vector<FeedbackView> views;
  for (const Fragment& fragment : fragments_) {
    if (!fragment.feedback.has_value() || !fragment.key.has_value()) continue;
    FeedbackView view;
    view.key = *fragment.key;
    view.before = fragment.feedback->before();
    if (fragment.feedback->pending()) view.after = fragment.feedback->after();
    views.push_back(view);
  }
  return views;
}

absl::Status ContributionEncoder::Restore(const FeedbackView& saved) {
  const int32_t f = saved.key.fragment();
  if (f < 0 || f >= fragments_.size()) {
    return absl::DataLossError(
        "the local checkpoint's error feedback names no fragment of the run");
  }
  Fragment& fragment = fragments_[f];
  const int64_t count = fragment.element_count;
  if (!fragment.feedback.has_value() || saved.before.size() != count ||
      (!saved.after.empty() && saved.after.size() != count)) {
    return absl::DataLossError(absl::StrCat(
        "the local checkpoint's error feedback of fragment ", f,
        " does not fit this run"));
  }
  fragment.feedback->Restore(saved.before, saved.after);
  fragment.key = saved.key;
  if (count > 0) return absl::OkStatus();
  // Without elements too: this process may ask for the outcome for others.
  return fragment.feedback->Encode(codec_, {}, decay_, {}, {});
}

}  // namespace atl::worker
