#include "worker/core/contribution_encoder.h"

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
  }

  ContributionEncoder Make(v1::Codec codec, bool feedback, double decay = 0) {
    v1::ExchangeSpec& exchange = *spec_.mutable_exchange();
    exchange.set_up(codec);
    exchange.set_error_feedback(feedback);
    exchange.set_error_feedback_decay(decay);
    exchange.set_seed(7);
    return ContributionEncoder(*layout_, spec_);
  }

  std::vector<float> Gradient() {
    std::normal_distribution<float> normal(0, 0.01f);
    std::vector<float> g(kElements);
    for (float& value : g) value = normal(random_);
    return g;
  }

  // Encodes `g` as fragment 0 of slot 1.
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

// e' = decay e + g, q = Enc(e'); e = e' - Dec(q) once q is merged.
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
  // What was never learnt counts as not merged.
  Encode(encoder, Gradient(), 2);
  for (const float e : encoder.Feedback()[0].before) ASSERT_EQ(e, 0);
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
  for (const float e : encoder.Feedback()[0].before) ASSERT_EQ(e, 0);
}

// A restarted island skips numbers of seq, and must not be seen to.
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
