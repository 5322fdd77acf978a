#include "base/codec/block_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/codec/error_feedback.h"
#include "base/codec/testing/test_values.h"
#include "gtest/gtest.h"

namespace atl::codec {
namespace {

class BlockRunTest : public ValuesTest {
 protected:
  BlockRunTest() : counts_({4096, 4096, 700, 1, 4096, 33}) {
    run_.first_block = 40;
    run_.first_element = 123456;
    run_.seed = 5;
    run_.element_counts = counts_;
    size_ = std::accumulate(counts_.begin(), counts_.end(), size_t{0});
  }

  const std::vector<int32_t> counts_;
  BlockRun run_;
  size_t size_ = 0;
};

using ErrorFeedbackTest = BlockRunTest;

TEST_F(BlockRunTest, SeveralRunsFollowEachOtherAndTheFirstErrorCounts) {
  const Codec& codec = GetCodec(CodecId::kInt8);
  BlockRun first = run_, second = run_;
  first.element_counts = run_.element_counts.subspan(0, 3);
  second.element_counts = run_.element_counts.subspan(3);
  second.first_block += 3;
  const std::vector<BlockRun> runs = {first, second, first};
  const std::vector<float> values(size_ + 4096 + 4096 + 700);
  std::string bytes(
      EncodedRunBytes(codec, run_) + EncodedRunBytes(codec, first), '\0');
  size_t element = 0, byte = 0;
  int count = 0;
  const auto visit = [&](const BlockRun& run, const RunPlace& place) {
    EXPECT_EQ(run.element_counts, runs[count].element_counts);
    EXPECT_EQ(place.ValuesIn(absl::MakeConstSpan(values)).data(),
              values.data() + element);
    EXPECT_EQ(place.BytesIn(absl::MakeSpan(&bytes[0], bytes.size())).data(),
              bytes.data() + byte);
    EXPECT_EQ(place.byte_count, EncodedRunBytes(codec, run));
    element += place.element_count;
    byte += place.byte_count;
    ++count;
    return absl::OkStatus();
  };
  EXPECT_TRUE(ForEachRun(LoopInOrder, codec, runs, visit).ok());
  EXPECT_EQ(element, values.size());
  EXPECT_EQ(byte, bytes.size());
  int seen = 0;
  const auto fail = [&](const BlockRun&, const RunPlace&) {
    return ++seen == 1 ? absl::OkStatus()
                       : absl::UnknownError(absl::StrCat(seen));
  };
  EXPECT_EQ(ForEachRun(LoopInOrder, codec, runs, fail).message(), "2");
  EXPECT_EQ(seen, 3);
}

TEST_F(BlockRunTest, IsItsBlocksBackToBack) {
  for (const CodecId id : AllCodecs()) {
    const Codec& codec = GetCodec(id);
    const auto v = ValuesOfKind(0, size_);
    std::string whole(EncodedRunBytes(codec, run_), '\0');
    ASSERT_TRUE(
        EncodeRun(codec, run_, v, absl::MakeSpan(&whole[0], whole.size()))
            .ok());
    // Cut after two blocks: the same bytes.
    BlockRun rest = run_;
    rest.first_block += 2;
    rest.first_element += 2 * 4096;
    rest.element_counts.remove_prefix(2);
    std::string tail(EncodedRunBytes(codec, rest), '\0');
    ASSERT_TRUE(EncodeRun(codec, rest, absl::MakeSpan(v).subspan(2 * 4096),
                          absl::MakeSpan(&tail[0], tail.size()))
                    .ok());
    EXPECT_EQ(whole.substr(whole.size() - tail.size()), tail);
    std::vector<float> d(size_), d_of_rest(size_ - 2 * 4096);
    ASSERT_TRUE(DecodeRun(codec, run_, whole, absl::MakeSpan(d)).ok());
    ASSERT_TRUE(DecodeRun(codec, rest, tail, absl::MakeSpan(d_of_rest)).ok());
    EXPECT_TRUE(std::equal(d_of_rest.begin(), d_of_rest.end(),
                           d.begin() + 2 * 4096));
  }
}

TEST_F(BlockRunTest, AnErrorNamesTheBlock) {
  const Codec& codec = GetCodec(CodecId::kInt8);
  auto v = ValuesOfKind(0, size_);
  std::string bytes(EncodedRunBytes(codec, run_), '\0');
  const auto span = absl::MakeSpan(&bytes[0], bytes.size());
  ASSERT_TRUE(EncodeRun(codec, run_, v, span).ok());
  bytes[4128] = '\xff';  // The second block's first scale.
  bytes[4129] = '\xff';
  const absl::Status decoded = DecodeRun(codec, run_, bytes, absl::MakeSpan(v));
  EXPECT_EQ(decoded.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(decoded.message(), "block 41 (int8)"))
      << decoded;
  v[8192 + 3] = NAN;
  const absl::Status encoded = EncodeRun(codec, run_, v, span);
  EXPECT_EQ(encoded.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(encoded.message(), "block 42")) << encoded;
}

TEST_F(BlockRunTest, RefusesSizesThatDoNotFit) {
  const Codec& codec = GetCodec(CodecId::kE3m0);
  std::vector<float> v(size_);
  std::string bytes(EncodedRunBytes(codec, run_), '\0');
  ASSERT_TRUE(
      EncodeRun(codec, run_, v, absl::MakeSpan(&bytes[0], bytes.size())).ok());
  ASSERT_TRUE(DecodeRun(codec, run_, bytes, absl::MakeSpan(v)).ok());
  EXPECT_FALSE(DecodeRun(codec, run_, bytes.substr(1), absl::MakeSpan(v)).ok());
  EXPECT_FALSE(DecodeRun(codec, run_, bytes + "x", absl::MakeSpan(v)).ok());
  EXPECT_FALSE(
      DecodeRun(codec, run_, bytes, absl::MakeSpan(v).subspan(0, size_ - 1))
          .ok());
  std::vector<float> more(size_ + 1);
  EXPECT_FALSE(DecodeRun(codec, run_, bytes, absl::MakeSpan(more)).ok());
  for (const int32_t count : {0, -1, 4097}) {
    const std::vector<int32_t> counts = {4096, count};
    BlockRun bad = run_;
    bad.element_counts = counts;
    EXPECT_FALSE(DecodeRun(codec, bad, bytes, absl::MakeSpan(v)).ok());
  }
}

// Even if the sizes of the spans fit these counts.
TEST_F(BlockRunTest, RefusesBlocksOfNoElementAndOfMoreThanABlockHas) {
  const Codec& codec = GetCodec(CodecId::kF32);
  for (const int32_t count : {-1, 0, 4097}) {
    const std::vector<int32_t> counts = {4096, count};
    BlockRun bad = run_;
    bad.element_counts = counts;
    std::vector<float> values(4096 + std::max(0, count));
    const std::string bytes(values.size() * sizeof(float), '\0');
    // This message is ForEachBlock's, not the codec's.
    EXPECT_EQ(DecodeRun(codec, bad, bytes, absl::MakeSpan(values)).message(),
              absl::StrCat("block 41 has ", count, " elements"));
  }
}

// With decay 1 the decoded values telescope: their sum is the sum of the
// gradients less the last residual, up to the roundings of each round.
TEST_F(ErrorFeedbackTest, SumsOfDecodedValuesAreSumsOfGradients) {
  constexpr int kRounds = 30;
  for (const CodecId id : AllCodecs()) {
    const Codec& codec = GetCodec(id);
    ErrorFeedback feedback(size_);
    std::string bytes(EncodedRunBytes(codec, run_), '\0');
    std::vector<double> gradients(size_), decoded(size_), rounding(size_);
    std::vector<float> d(size_);
    double residual = 0, total = 0;
    const auto drift = ValuesOfKind(0, size_);
    for (int round = 0; round < kRounds; ++round) {
      auto g = ValuesOfKind(0, size_);
      for (size_t i = 0; i < size_; ++i) g[i] += drift[i];
      ASSERT_TRUE(feedback
                      .Encode(codec, {run_}, 1.0f, g,
                              absl::MakeSpan(&bytes[0], bytes.size()))
                      .ok());
      ASSERT_TRUE(DecodeRun(codec, run_, bytes, absl::MakeSpan(d)).ok());
      for (size_t i = 0; i < size_; ++i) {
        gradients[i] += g[i];
        decoded[i] += d[i];
        const double e =
            std::abs(double{feedback.before()[i]}) + std::abs(g[i]);
        rounding[i] += std::ldexp(e + std::abs(d[i]), -23);
      }
      feedback.Resolve(/*merged=*/true);
    }
    for (size_t i = 0; i < size_; ++i) {
      const double e = feedback.before()[i];
      ASSERT_NEAR(gradients[i] - decoded[i], e, rounding[i] + 1e-30)
          << CodecName(id) << ", element " << i;
      residual += e * e;
      total += gradients[i] * gradients[i];
    }
    // The last residual is small compared with the sum of gradients.
    EXPECT_LT(residual, (id == CodecId::kTopK ? 0.8 : 0.01) * total)
        << CodecName(id);
  }
}

TEST_F(ErrorFeedbackTest, MovesOnOnlyWhenMerged) {
  const Codec& codec = GetCodec(CodecId::kTwoBit);
  ErrorFeedback feedback(size_);
  std::string bytes(EncodedRunBytes(codec, run_), '\0');
  const auto span = absl::MakeSpan(&bytes[0], bytes.size());
  const auto g = ValuesOfKind(0, size_);
  ASSERT_TRUE(feedback.Encode(codec, {run_}, 0.95f, g, span).ok());
  feedback.Resolve(true);
  const std::vector<float> e(feedback.before().begin(),
                             feedback.before().end());
  EXPECT_FALSE(feedback.pending());
  ASSERT_TRUE(feedback.Encode(codec, {run_}, 0.95f, g, span).ok());
  const std::string first = bytes;
  EXPECT_TRUE(feedback.pending());
  EXPECT_EQ(feedback.Encode(codec, {run_}, 0.95f, g, span).code(),
            absl::StatusCode::kFailedPrecondition);
  feedback.Resolve(/*merged=*/false);
  EXPECT_EQ(std::memcmp(e.data(), feedback.before().data(), 4 * size_), 0);
  ASSERT_TRUE(feedback.Encode(codec, {run_}, 0.95f, g, span).ok());
  EXPECT_EQ(bytes, first);
  const std::vector<float> after(feedback.after().begin(),
                                 feedback.after().end());
  // Restored from a local checkpoint.
  ErrorFeedback restored(size_);
  restored.Restore(feedback.before(), feedback.after());
  EXPECT_TRUE(restored.pending());
  restored.Resolve(true);
  EXPECT_EQ(std::memcmp(after.data(), restored.before().data(), 4 * size_), 0);
}

TEST_F(ErrorFeedbackTest, AGradientThatIsNotFiniteLeavesItAsItWas) {
  const Codec& codec = GetCodec(CodecId::kInt8);
  ErrorFeedback feedback(size_);
  std::string bytes(EncodedRunBytes(codec, run_), '\0');
  auto g = ValuesOfKind(0, size_);
  g[size_ - 1] = INFINITY;
  EXPECT_EQ(
      feedback
          .Encode(codec, {run_}, 1.0f, g, absl::MakeSpan(&bytes[0], bytes.size()))
          .code(),
      absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(feedback.pending());
  for (const float e : feedback.before()) ASSERT_EQ(e, 0);
}

}  // namespace
}  // namespace atl::codec
