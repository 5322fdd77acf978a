#include "worker/core/contribution_encoder.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/codec/block_run.h"
#include "base/layout/digest.h"
#include "gtest/gtest.h"

namespace atl::worker {
namespace {

constexpr int64_t kElements = 2 * 4096 + 700 + 33;

class ContributionEncoderTest : public ::testing::Test {
 protected:
  ContributionEncoderTest() {
    v1::Layout& layout = *spec_.mutable_layout();
    layout.set_fragment_count(2);
    for (const int64_t size :
         {int64_t{2 * 4096 + 700}, int64_t{33}, int64_t{5000}}) {
      v1::TensorSpec* tensor = layout.add_tensors();
      tensor->set_name("t" + std::to_string(size));
      tensor->add_shape(size);
      tensor->set_dtype(v1::DATA_TYPE_F32);
      tensor->set_tensor_class(v1::TENSOR_CLASS_MATRIX);
      tensor->set_fragment(size == 5000 ? 1 : 0);
      tensor->mutable_init()->set_kind(v1::INIT_KIND_CONSTANT);
    }
    auto made = RunLayout::Create(layout);
    EXPECT_TRUE(made.ok()) << made.status();
    layout_ = *std::move(made);
    held_.emplace(*layout_);
  }

  ContributionEncoder Make(v1::Codec codec, bool feedback, double decay = 0) {
    v1::ExchangeSpec& exchange = *spec_.mutable_exchange();
    exchange.set_up(codec);
    exchange.set_error_feedback(feedback);
    exchange.set_error_feedback_decay(decay);
    exchange.set_seed(7);
    return ContributionEncoder(*held_, spec_);
  }

  std::vector<float> Gradient() {
    std::normal_distribution<float> normal(0, 0.01f);
    std::vector<float> g(kElements);
    for (float& value : g) value = normal(random_);
    return g;
  }

  EncodedContribution Encode(ContributionEncoder& encoder,
                             const std::vector<float>& g, int64_t seq,
                             int32_t slot = 1, int64_t anchor = 0) {
    EncodedContribution made;
    made.info.set_anchor_version(anchor);
    made.info.mutable_key()->set_run_epoch(1);
    made.info.mutable_key()->set_slot(slot);
    made.info.mutable_key()->set_seq(seq);
    const absl::Span<float> room = encoder.GradientRoom(made);
    absl::Status encoded;
    if (random_() % 2 == 0) {
      std::copy(g.begin(), g.end(), room.begin());
      encoded = encoder.Encode(made);
    } else {
      encoded = encoder.Encode(made, g);
    }
    EXPECT_TRUE(encoded.ok()) << encoded;
    return made;
  }

  std::vector<float> Decode(const EncodedContribution& made) {
    const codec::Codec& codec = *codec::FindCodec(made.info.codec());
    const std::vector<int32_t> counts =
        EncodedLayout(*layout_, 0, codec).ElementCounts({0, 4});
    codec::BlockRun run;
    run.element_counts = counts;
    std::vector<float> values(kElements);
    EXPECT_TRUE(codec::DecodeRun(
                    codec, run,
                    absl::string_view(made.bytes.data(), made.bytes.size()),
                    absl::MakeSpan(values))
                    .ok());
    return values;
  }

  const uint64_t seed_ = std::random_device()();
  ::testing::ScopedTrace trace_{__FILE__, __LINE__,
                                "seed " + std::to_string(seed_)};
  std::mt19937_64 random_{seed_};
  v1::RunSpec spec_;
  std::optional<RunLayout> layout_;
  std::optional<HeldLayout> held_;
};

TEST_F(ContributionEncoderTest, F32IsTheGradientItselfWithoutACopy) {
  ContributionEncoder encoder = Make(v1::CODEC_UNSPECIFIED, false);
  const std::vector<float> g = Gradient();
  EncodedContribution made = Encode(encoder, g, 1);
  EXPECT_EQ(made.info.codec(), v1::CODEC_F32);
  ASSERT_EQ(made.bytes.size(), g.size() * sizeof(float));
  EXPECT_EQ(std::memcmp(made.bytes.data(), g.data(), made.bytes.size()), 0);
  EXPECT_EQ(static_cast<const void*>(encoder.GradientRoom(made).data()),
            static_cast<const void*>(made.bytes.data()));
}

TEST_F(ContributionEncoderTest, SaysTheRunsCodecAndTheBytesDigest) {
  for (const codec::CodecId id : codec::AllCodecs()) {
    ContributionEncoder encoder = Make(static_cast<v1::Codec>(id), false);
    const EncodedContribution made = Encode(encoder, Gradient(), 1);
    EXPECT_EQ(made.info.codec(), static_cast<v1::Codec>(id));
    EXPECT_EQ(Digest128::FromProto(made.info.digest()),
              ContributionDigest(made.bytes));
    EXPECT_EQ(made.bytes.size(),
              EncodedLayout(*layout_, 0, codec::GetCodec(id)).byte_count());
    EXPECT_TRUE(encoder.Feedback().empty());
    EXPECT_TRUE(encoder.Pending().empty());
  }
}

// The parts that processes encode concatenate to one process's bytes, and the
// digest does not depend on the number of processes.
TEST_F(ContributionEncoderTest, PartsAreTheBytesOfTheWhole) {
  const std::vector<float> g = Gradient(), h = Gradient();
  for (const codec::CodecId id : codec::AllCodecs()) {
    const bool feedback = id != codec::CodecId::kF32;
    ContributionEncoder whole = Make(static_cast<v1::Codec>(id), feedback);
    Encode(whole, g, 1);
    const EncodedContribution made = Encode(whole, h, 2);
    const EncodedLayout places(*layout_, 0, codec::GetCodec(id));
    std::vector<Digest128> names;
    for (const int part_count : {2, 3, 4}) {
      Digest128& name = names.emplace_back();
      for (int part = 0; part < part_count; ++part) {
        std::vector<IndexRange> spans;
        for (int64_t b = part; b < 4; b += part_count) {
          spans.push_back(layout_->BlockElements(0, {b, b + 1}));
        }
        const auto held = HeldLayout::Create(*layout_, spans);
        ASSERT_TRUE(held.ok()) << held.status();
        ContributionEncoder encoder(*held, spec_);
        std::vector<float> part_of_g, part_of_h;
        for (const IndexRange at : spans) {
          part_of_g.insert(part_of_g.end(), g.begin() + at.begin,
                           g.begin() + at.end);
          part_of_h.insert(part_of_h.end(), h.begin() + at.begin,
                           h.begin() + at.end);
        }
        Encode(encoder, part_of_g, 1);
        const EncodedContribution of_part = Encode(encoder, part_of_h, 2);
        const char* bytes = of_part.bytes.data();
        for (const IndexRange blocks : held->fragment_blocks(0)) {
          ASSERT_EQ(std::memcmp(bytes,
                                made.bytes.data() +
                                    places.ByteOffset(blocks.begin),
                                places.ByteCount(blocks)),
                    0)
              << codec::CodecName(id);
          bytes += places.ByteCount(blocks);
        }
        ASSERT_EQ(bytes, of_part.bytes.data() + of_part.bytes.size());
        name += Digest128::FromProto(of_part.info.digest());
      }
    }
    EXPECT_EQ(names[0], names[1]);
    EXPECT_EQ(names[0], names[2]);
  }
}

TEST_F(ContributionEncoderTest, WhoHoldsNothingOfAFragmentAsksForItsOutcome) {
  Make(v1::CODEC_INT8, true);
  const IndexRange other = {kElements, layout_->element_count()};
  const auto held = HeldLayout::Create(*layout_, {other});
  ASSERT_TRUE(held.ok()) << held.status();
  ContributionEncoder encoder(*held, spec_), next_life(*held, spec_);
  const EncodedContribution made = Encode(encoder, {}, 1);
  EXPECT_TRUE(made.bytes.empty());
  EXPECT_EQ(encoder.Pending().size(), 1);
  ASSERT_EQ(encoder.Feedback().size(), 1);
  ASSERT_TRUE(next_life.Restore(encoder.Feedback()[0]).ok());
  ASSERT_EQ(next_life.Pending().size(), 1);
  next_life.Resolve(made.info.key(), /*merged=*/true);
  EXPECT_TRUE(next_life.Pending().empty());
}

// Formula: e' = decay e + g, q = Enc(e'); e = e' - Dec(q) once q is merged.
TEST_F(ContributionEncoderTest, FollowsTheRecurrenceOfErrorFeedback) {
  for (const codec::CodecId id : codec::AllCodecs()) {
    if (id == codec::CodecId::kF32) continue;
    const float decay = 0.95f;
    ContributionEncoder encoder = Make(static_cast<v1::Codec>(id), true, 0.95);
    std::vector<float> e(kElements, 0.0f);
    for (int64_t seq = 1; seq <= 6; ++seq) {
      const std::vector<float> g = Gradient();
      const EncodedContribution made = Encode(encoder, g, seq);
      const std::vector<float> decoded = Decode(made);
      std::vector<float> after(kElements);
      for (int64_t i = 0; i < kElements; ++i) {
        volatile float kept = decay * e[i];
        volatile float combined = kept + g[i];
        after[i] = combined - decoded[i];
      }
      const bool merged = seq % 3 != 0;
      ASSERT_EQ(encoder.Pending().size(), 1u);
      encoder.Resolve(made.info.key(), merged);
      EXPECT_TRUE(encoder.Pending().empty());
      if (merged) e = after;
      ASSERT_EQ(encoder.Feedback().size(), 1u);
      EXPECT_EQ(std::memcmp(encoder.Feedback()[0].before.data(), e.data(),
                            e.size() * sizeof(float)),
                0)
          << codec::CodecName(id) << " " << seq;
    }
  }
}

TEST_F(ContributionEncoderTest, AnotherContributionsOutcomeChangesNothing) {
  ContributionEncoder encoder = Make(v1::CODEC_TWO_BIT, true);
  const EncodedContribution first = Encode(encoder, Gradient(), 1);
  v1::ContributionKey other = first.info.key();
  other.set_seq(2);
  encoder.Resolve(other, true);
  other.set_seq(1);
  other.set_fragment(9);
  encoder.Resolve(other, true);
  ASSERT_EQ(encoder.Pending().size(), 1u);
  EXPECT_EQ(encoder.Pending()[0].seq(), 1);
  // An unknown outcome counts as not merged.
  Encode(encoder, Gradient(), 2);
  const std::vector<FeedbackView> feedback = encoder.Feedback();
  for (const float e : feedback[0].before) ASSERT_EQ(e, 0);
}

TEST_F(ContributionEncoderTest, ARestoredOneGoesOnWithTheSameBits) {
  ContributionEncoder one = Make(v1::CODEC_TOP_K, true);
  EncodedContribution made = Encode(one, Gradient(), 1);
  one.Resolve(made.info.key(), true);
  made = Encode(one, Gradient(), 2);
  ContributionEncoder two = Make(v1::CODEC_TOP_K, true);
  for (const FeedbackView& view : one.Feedback()) {
    ASSERT_TRUE(two.Restore(view).ok());
  }
  one.Resolve(made.info.key(), true);
  two.Resolve(made.info.key(), true);
  const std::vector<float> g = Gradient();
  EXPECT_TRUE(Encode(one, g, 3).bytes == Encode(two, g, 3).bytes);
  FeedbackView wrong = one.Feedback()[0];
  wrong.before = wrong.before.subspan(1);
  EXPECT_EQ(two.Restore(wrong).code(), absl::StatusCode::kDataLoss);
  ContributionEncoder none = Make(v1::CODEC_INT8, false);
  EXPECT_EQ(none.Restore(one.Feedback()[0]).code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(ContributionEncoderTest, UnderAnotherSlotItStartsFromNothing) {
  ContributionEncoder encoder = Make(v1::CODEC_TWO_BIT, true);
  const EncodedContribution first = Encode(encoder, Gradient(), 1);
  encoder.Resolve(first.info.key(), true);
  Encode(encoder, Gradient(), 2, /*slot=*/4);
  const std::vector<FeedbackView> feedback = encoder.Feedback();
  for (const float e : feedback[0].before) ASSERT_EQ(e, 0);
}

// A restarted island skips values of seq; the bits must not change.
TEST_F(ContributionEncoderTest, StochasticBitsDependOnThePlaceInTraining) {
  ContributionEncoder encoder = Make(v1::CODEC_BF16_STOCHASTIC, false);
  const std::vector<float> g = Gradient();
  const std::vector<char> bytes = Encode(encoder, g, 1).bytes;
  EXPECT_TRUE(Encode(encoder, g, 1).bytes == bytes);
  EXPECT_TRUE(Encode(encoder, g, 17).bytes == bytes);
  EXPECT_FALSE(Encode(encoder, g, 1, /*slot=*/2).bytes == bytes);
  EXPECT_FALSE(Encode(encoder, g, 1, /*slot=*/1, /*anchor=*/1).bytes == bytes);
}

TEST_F(ContributionEncoderTest, RefusesAValueThatIsNotFinite) {
  ContributionEncoder encoder = Make(v1::CODEC_INT8, true);
  const EncodedContribution first = Encode(encoder, Gradient(), 1);
  encoder.Resolve(first.info.key(), true);
  const std::vector<float> before(encoder.Feedback()[0].before.begin(),
                                  encoder.Feedback()[0].before.end());
  EncodedContribution made;
  made.info.mutable_key()->set_run_epoch(1);
  made.info.mutable_key()->set_slot(1);
  made.info.mutable_key()->set_seq(2);
  const absl::Span<float> room = encoder.GradientRoom(made);
  std::fill(room.begin(), room.end(), 1.0f);
  room[4096] = std::numeric_limits<float>::infinity();
  const absl::Status refused = encoder.Encode(made);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("block 1"), std::string::npos) << refused;
  EXPECT_TRUE(encoder.Pending().empty());
  EXPECT_EQ(encoder.Feedback()[0].before, absl::MakeConstSpan(before));
}

}  // namespace
}  // namespace atl::worker
