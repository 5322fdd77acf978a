// Every path gives the bits of the plain definition, and no path trusts bytes.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/codec/bits.h"
#include "base/codec/codec.h"
#include "base/codec/crc32c.h"
#include "base/codec/testing/test_values.h"
#include "gtest/gtest.h"

namespace atl::codec {
namespace {

constexpr int kRounds = 60;

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

class PathsTest : public ValuesTest {
 protected:
  // Calls `body(plain, other, label)` for every codec and every other path.
  template <typename Body>
  void ForEachPath(Body body) {
    for (const CodecId id : AllCodecs()) {
      const Codec& plain = GetCodec(id, SimdPath::kPlain);
      for (const SimdPath path : SupportedPaths()) {
        body(plain, GetCodec(id, path),
             std::string(CodecName(id)) + " on " + std::string(PathName(path)));
      }
    }
  }

  std::string FindEncoded(const Codec& codec, const BlockKey& key,
                          const std::vector<float>& v) {
    std::string bytes(codec.EncodedBytes(v.size()), '\x5a');
    EXPECT_EQ(codec.Encode(key, v, absl::MakeSpan(&bytes[0], bytes.size())),
              BlockFault::kNone);
    return bytes;
  }
};

TEST_F(PathsTest, AllCodecsAndPathsAreThere) {
  ForEachPath([](const Codec& plain, const Codec& other, const std::string&) {
    EXPECT_EQ(plain.id(), other.id());
    EXPECT_EQ(plain.path(), SimdPath::kPlain);
    for (size_t n = 1; n <= 4096; ++n) {
      ASSERT_EQ(plain.EncodedBytes(n), other.EncodedBytes(n)) << n;
    }
  });
  for (const SimdPath path : SupportedPaths()) {
    EXPECT_EQ(GetCodec(CodecId::kInt8, path).path(), path);
  }
  EXPECT_EQ(FindCodec(0), nullptr);
  EXPECT_EQ(FindCodec(99), nullptr);
  EXPECT_EQ(FindCodec(4)->id(), CodecId::kInt8);
}

TEST_F(PathsTest, EncodeGivesTheSameBytes) {
  ForEachPath(
      [&](const Codec& plain, const Codec& other, const std::string& label) {
        for (int round = 0; round < kRounds; ++round) {
          const size_t n = AnyCount();
          const auto v = ValuesOfKind(round % kKinds, n);
          const BlockKey key{random_(), random_()};
          ASSERT_EQ(FindEncoded(plain, key, v), FindEncoded(other, key, v))
              << label << ", kind " << round % kKinds << ", n " << n;
        }
      });
}

TEST_F(PathsTest, FeedbackGivesTheSameBytesAndResiduals) {
  ForEachPath([&](const Codec& plain, const Codec& other,
                  const std::string& label) {
    for (int round = 0; round < kRounds; ++round) {
      const size_t n = AnyCount();
      const int kind = round % kKinds;
      const auto g = ValuesOfKind(kind, n);
      auto before = ValuesOfKind(kind, n);
      if (kind == 1 || kind == 4) before.assign(n, 0.25f);  // No overflow.
      const float decay = round % 2 == 0 ? 0.95f : 1.0f;
      const BlockKey key{random_(), random_()};
      const auto kept = before;
      std::vector<float> after[2] = {std::vector<float>(n), g};
      std::string bytes[2];
      const Codec* codecs[] = {&plain, &other};
      BlockFault faults[2];
      for (int c = 0; c < 2; ++c) {
        bytes[c].resize(plain.EncodedBytes(n));
        faults[c] = codecs[c]->EncodeWithFeedback(
            key,
            c == 0 ? absl::MakeConstSpan(g) : absl::MakeConstSpan(after[1]),
            decay, before, absl::MakeSpan(after[c]),
            absl::MakeSpan(&bytes[c][0], bytes[c].size()));
      }
      ASSERT_EQ(faults[0], faults[1]) << label << ", kind " << kind;
      ASSERT_TRUE(SameBits(before, kept)) << label;
      if (faults[0] != BlockFault::kNone) continue;
      ASSERT_EQ(bytes[0], bytes[1]) << label << ", kind " << kind;
      ASSERT_TRUE(SameBits(after[0], after[1])) << label << ", kind " << kind;
      // after is e' less the decoded bytes.
      std::vector<float> d(n);
      ASSERT_EQ(other.Decode(bytes[1], absl::MakeSpan(d)), BlockFault::kNone);
      for (size_t i = 0; i < n; ++i) {
        const float scaled = decay * before[i];
        const float expected = (scaled + g[i]) - d[i];
        ASSERT_EQ(expected, after[1][i]) << label << ", element " << i;
      }
    }
  });
}

TEST_F(PathsTest, DecodeGivesTheSameValuesInAllForms) {
  ForEachPath([&](const Codec& plain, const Codec& other,
                  const std::string& label) {
    for (int round = 0; round < kRounds; ++round) {
      const size_t n = AnyCount();
      const auto v = ValuesOfKind(round % kKinds, n);
      const std::string bytes = FindEncoded(plain, BlockKey(), v);
      const float weight = 0.37f;
      const auto start = ValuesOfKind(0, n);
      std::vector<float> d[2], scaled[2], sum[2];
      const Codec* codecs[] = {&plain, &other};
      for (int c = 0; c < 2; ++c) {
        d[c].resize(n);
        scaled[c].resize(n);
        sum[c] = start;
        ASSERT_EQ(codecs[c]->Decode(bytes, absl::MakeSpan(d[c])),
                  BlockFault::kNone)
            << label;
        ASSERT_EQ(
            codecs[c]->DecodeScaled(bytes, weight, absl::MakeSpan(scaled[c])),
            BlockFault::kNone);
        ASSERT_EQ(
            codecs[c]->DecodeAccumulate(bytes, weight, absl::MakeSpan(sum[c])),
            BlockFault::kNone);
      }
      ASSERT_TRUE(SameBits(d[0], d[1])) << label << ", kind " << round % kKinds;
      ASSERT_TRUE(SameBits(scaled[0], scaled[1])) << label;
      ASSERT_TRUE(SameBits(sum[0], sum[1])) << label;
      for (size_t i = 0; i < n; ++i) {
        ASSERT_TRUE(std::isfinite(d[1][i]));
        const float product = weight * d[1][i];
        ASSERT_EQ(product, scaled[1][i]) << label;
        ASSERT_EQ(start[i] + product, sum[1][i]) << label;
      }
    }
  });
}

// Encodings of fixed values, so that no compiler, CPU or code change alters
// them.
TEST_F(PathsTest, BytesAreThoseOfTheFormat) {
  const std::pair<CodecId, uint32_t> expected[] = {
      {CodecId::kF32, 83081924},
      {CodecId::kBf16, 3713448688},
      {CodecId::kBf16Stochastic, 1680946099},
      {CodecId::kInt8, 3485030020},
      {CodecId::kE3m0, 2940931711},
      {CodecId::kTwoBit, 2272230975},
      {CodecId::kTopK, 1269856544}};
  // 3700 values of 40 exponents, made with integers only.
  std::vector<float> v(3700);
  for (size_t i = 0; i < v.size(); ++i) {
    const uint32_t high = Random16({1, 2}, static_cast<uint32_t>(i));
    const uint32_t low = Random16({3, 4}, static_cast<uint32_t>(i));
    v[i] = FromBits((high & 0x8000) << 16 | (100 + high % 40) << 23 |
                    (low << 7 & 0x007fffff));
  }
  for (const auto& [id, crc] : expected) {
    for (const SimdPath path : SupportedPaths()) {
      const Codec& codec = GetCodec(id, path);
      const std::string bytes = FindEncoded(codec, {7, 8192}, v);
      std::vector<float> sum = v;
      ASSERT_EQ(codec.DecodeAccumulate(bytes, -0.7f, absl::MakeSpan(sum)),
                BlockFault::kNone);
      const uint32_t found = ExtendCrc32c(
          Crc32c(bytes),
          absl::string_view(reinterpret_cast<const char*>(sum.data()),
                            sum.size() * sizeof(float)));
      EXPECT_EQ(found, crc) << CodecName(id) << " on " << PathName(path);
    }
  }
}

// Every path gives the same fault or the same finite values, and writes nothing
// past the end.
TEST_F(PathsTest, AnyBytesDecodeToFiniteValuesOrAFault) {
  ForEachPath([&](const Codec& plain, const Codec& other,
                  const std::string& label) {
    for (int round = 0; round < 4 * kRounds; ++round) {
      const size_t n = AnyCount();
      std::string bytes = FindEncoded(plain, BlockKey(), ValuesOfKind(0, n));
      if (round % 4 == 0) {
        for (char& byte : bytes) byte = static_cast<char>(random_());
      } else {
        for (size_t i = 0; i < Uniform(1, 4); ++i) {
          bytes[Uniform(0, bytes.size() - 1)] = static_cast<char>(random_());
        }
      }
      std::vector<float> d(n), e(n + 1);
      e[n] = 7;
      const BlockFault fault = plain.Decode(bytes, absl::MakeSpan(d));
      const BlockFault other_fault =
          other.Decode(bytes, absl::MakeSpan(e).subspan(0, n));
      ASSERT_EQ(fault, other_fault) << label;
      ASSERT_EQ(e[n], 7);
      if (fault != BlockFault::kNone) continue;
      e.pop_back();
      ASSERT_TRUE(SameBits(d, e)) << label;
      for (const float value : d) ASSERT_TRUE(std::isfinite(value)) << label;
    }
  });
}

TEST_F(PathsTest, AWrongSizeIsAFault) {
  ForEachPath([&](const Codec&, const Codec& other, const std::string& label) {
    const size_t n = AnyCount();
    std::vector<float> v(n);
    std::string bytes(other.EncodedBytes(n) + 1, '\0');
    EXPECT_EQ(other.Decode(bytes, absl::MakeSpan(v)), BlockFault::kWrongSize);
    EXPECT_EQ(other.Encode(BlockKey(), v, absl::MakeSpan(&bytes[0], 0)),
              BlockFault::kWrongSize)
        << label;
    std::vector<float> empty, many(4097);
    EXPECT_EQ(other.Decode("", absl::MakeSpan(empty)), BlockFault::kWrongSize);
    // One of these sizes is right for 4097 elements.
    for (size_t more = 0; more <= sizeof(float); ++more) {
      bytes.assign(other.EncodedBytes(4096) + more, '\0');
      EXPECT_EQ(other.Decode(bytes, absl::MakeSpan(many)),
                BlockFault::kWrongSize);
    }
  });
}

TEST_F(PathsTest, ASingleBadValueIsNotEncodedWhereverItIs) {
  const float bad[] = {std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity(),
                       std::numeric_limits<float>::quiet_NaN(),
                       FromBits(0xff800001)};
  ForEachPath([&](const Codec&, const Codec& other, const std::string& label) {
    for (int round = 0; round < kRounds; ++round) {
      const size_t n = AnyCount();
      auto v = ValuesOfKind(round % 2 == 0 ? 0 : 2, n);
      v[Uniform(0, n - 1)] = bad[Uniform(0, 3)];
      std::string bytes(other.EncodedBytes(n), '\0');
      ASSERT_EQ(
          other.Encode(BlockKey(), v, absl::MakeSpan(&bytes[0], bytes.size())),
          BlockFault::kNotFinite)
          << label << ", n " << n;
      const std::vector<float> before(n);
      std::vector<float> after(n);
      ASSERT_EQ(other.EncodeWithFeedback(
                    BlockKey(), v, 1.0f, before, absl::MakeSpan(after),
                    absl::MakeSpan(&bytes[0], bytes.size())),
                BlockFault::kNotFinite)
          << label;
    }
  });
}

}  // namespace
}  // namespace atl::codec
