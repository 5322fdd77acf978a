#include "base/codec/top_k.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/codec/block_grid.h"
#include "base/codec/codec.h"
#include "base/codec/crc32c.h"
#include "base/codec/subset_coder.h"
#include "base/codec/testing/test_values.h"
#include "gtest/gtest.h"

namespace atl::codec {
namespace {

double Log2Choose(double n, double k) {
  return (std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1)) /
         std::log(2.0);
}

class SubsetCoderTest : public ValuesTest {
 protected:
  // `k` ascending places below `end`, a set of the given kind.
  std::vector<uint16_t> Places(int kind, size_t k, size_t end) {
    std::vector<uint16_t> all(end);
    std::iota(all.begin(), all.end(), uint16_t{0});
    std::vector<uint16_t> places;
    if (kind == 0) {  // Random.
      std::sample(all.begin(), all.end(), std::back_inserter(places), k,
                  random_);
    } else if (kind == 1) {  // A run.
      const size_t begin = Uniform(0, end - k);
      places.assign(all.begin() + begin, all.begin() + begin + k);
    } else if (kind == 2) {  // Evenly apart.
      for (size_t i = 0; i < k; ++i) places.push_back(i * end / k);
    } else if (kind == 3) {  // Both ends.
      for (size_t i = 0; i < k; ++i) {
        places.push_back(i < k / 2 ? i : end - k + i);
      }
    } else {  // Clusters.
      std::vector<bool> taken(end);
      for (size_t left = k, at = Uniform(0, end - 1); left > 0;) {
        if (!taken[at]) --left;
        taken[at] = true;
        at = Uniform(0, 7) == 0 ? Uniform(0, end - 1) : (at + 1) % end;
      }
      for (size_t i = 0; i < end; ++i) {
        if (taken[i]) places.push_back(i);
      }
    }
    return places;
  }
};

TEST_F(SubsetCoderTest, TheTableIsTheOneOfTheFormat) {
  const SubsetModel& model = TheSubsetModel();
  const absl::string_view bytes(reinterpret_cast<const char*>(model.table()),
                                SubsetModel::kSize * sizeof(uint32_t));
  EXPECT_EQ(Crc32c(bytes), 4062471032u);
  // Each row's shares are the rounded probabilities.
  for (int level = 2; level <= kSubsetLevelMax; ++level) {
    for (int k = 2; k <= 64 && k < 1 << level; ++k) {
      const double h = 1 << (level - 1);
      const uint32_t* row = model.Row(level, k);
      for (int j = 0; j <= k; ++j) {
        if (j > h || k - j > h) {
          ASSERT_EQ(SubsetModel::Share(row, k, j), 0u);
          continue;
        }
        const double p = std::exp2(Log2Choose(h, j) + Log2Choose(h, k - j) -
                                   Log2Choose(2 * h, k));
        const double share = static_cast<double>(SubsetModel::Share(row, k, j));
        ASSERT_GE(share, 1);
        ASSERT_NEAR(share, p * 2147483648.0, 66 + 1e-9 * 2147483648.0);
      }
    }
  }
}

TEST_F(SubsetCoderTest, SizesAreTheLeastWholeBytes) {
  for (size_t k = 1; k <= 64; ++k) {
    const double bits = Log2Choose(std::exp2(SubsetLevel(k)), k);
    EXPECT_EQ(SubsetBytes(k), std::ceil(bits / 8 - 1e-9)) << k;
  }
  for (size_t n = 1; n <= 4096; ++n) {
    ASSERT_GE(size_t{1} << SubsetLevel(SubsetCount(n)), n);
  }
  EXPECT_EQ(SubsetBytes(64), 59u);
}

TEST_F(SubsetCoderTest, GivesBackEverySetInThatSize) {
  for (int round = 0; round < 5000; ++round) {
    const size_t k = round % 3 == 0 ? 64 : Uniform(1, 64);
    const int level = SubsetLevel(k);
    const auto places = Places(round % 5, k, size_t{1} << level);
    ASSERT_EQ(places.size(), k);
    std::vector<uint8_t> code(SubsetBytes(k) + 1, 0x5a);
    EncodeSubset(TheSubsetModel(), level, k, places.data(), code.data());
    ASSERT_EQ(code.back(), 0x5a);
    std::vector<uint16_t> back(k);
    DecodeSubset(TheSubsetModel(), level, k, code.data(), back.data());
    ASSERT_EQ(back, places) << "kind " << round % 5 << ", k " << k;
  }
}

// All small sets: no two have the same code.
TEST_F(SubsetCoderTest, GivesBackAllPairs) {
  for (uint16_t a = 0; a < 128; ++a) {
    for (uint16_t b = a + 1; b < 128; ++b) {
      const uint16_t places[] = {a, b};
      uint8_t code[2];
      EncodeSubset(TheSubsetModel(), 7, 2, places, code);
      uint16_t back[2];
      DecodeSubset(TheSubsetModel(), 7, 2, code, back);
      ASSERT_EQ(back[0], a);
      ASSERT_EQ(back[1], b);
    }
  }
}

TEST_F(SubsetCoderTest, AnyBytesAreAscendingPlaces) {
  for (int round = 0; round < 5000; ++round) {
    const size_t k = Uniform(1, 64);
    std::vector<uint8_t> code(SubsetBytes(k));
    for (uint8_t& byte : code) {
      byte = round % 3 == 0 ? 0xff : static_cast<uint8_t>(random_());
    }
    std::vector<uint16_t> places(k + 1, 0xffff);
    DecodeSubset(TheSubsetModel(), SubsetLevel(k), k, code.data(),
                 places.data());
    ASSERT_EQ(places[k], 0xffff);
    ASSERT_LT(places[k - 1], 1 << SubsetLevel(k));
    for (size_t i = 1; i < k; ++i) ASSERT_LT(places[i - 1], places[i]);
  }
}

class TopKTest : public ValuesTest {
 protected:
  std::string FindEncoded(const std::vector<float>& v) {
    const Codec& codec = GetCodec(CodecId::kTopK);
    std::string bytes(codec.EncodedBytes(v.size()), '\0');
    EXPECT_EQ(
        codec.Encode(BlockKey(), v, absl::MakeSpan(&bytes[0], bytes.size())),
        BlockFault::kNone);
    return bytes;
  }
};

// Counts every byte of a 1 MiB chunk, with 100 bytes for its header, message
// frame and checksum.
TEST_F(TopKTest, IsTwoHundredTimesSmaller) {
  const size_t block = GetCodec(CodecId::kTopK).EncodedBytes(4096);
  EXPECT_EQ(block, 78u);
  for (const size_t blocks :
       {size_t{60}, static_cast<size_t>(kChunkPayloadBytesMax) / block}) {
    const double ratio = 16384.0 * static_cast<double>(blocks) /
                         static_cast<double>(block * blocks + 100);
    EXPECT_GE(ratio, 205.0) << blocks;
  }
}

TEST_F(TopKTest, SendsTheGreatestAndOfEqualOnesTheFirst) {
  for (int round = 0; round < 120; ++round) {
    const size_t n = AnyCount();
    const auto v = ValuesOfKind(round % kKinds, n);
    std::vector<float> d(n);
    const std::string bytes = FindEncoded(v);
    ASSERT_EQ(GetCodec(CodecId::kTopK).Decode(bytes, absl::MakeSpan(d)),
              BlockFault::kNone);
    std::vector<size_t> order(n);
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return std::abs(v[a]) > std::abs(v[b]);
    });
    const size_t k = (n + 63) / 64;
    std::sort(order.begin(), order.begin() + k);
    std::vector<uint16_t> places(kSubsetCountMax);
    std::vector<float> values(kSubsetCountMax);
    ASSERT_EQ(TopKBytes::Read(TheSubsetModel(), n,
                              reinterpret_cast<const uint8_t*>(bytes.data()),
                              places.data(), values.data()),
              BlockFault::kNone);
    double error = 0, squares = 0;
    for (size_t i = 0; i < k; ++i) {
      ASSERT_EQ(places[i], order[i])
          << "kind " << round % kKinds << ", n " << n;
      const double sent = v[places[i]];
      ASSERT_EQ(std::signbit(sent), std::signbit(values[i]));
      error += (sent - values[i]) * (sent - values[i]);
      squares += sent * sent;
    }
    ASSERT_LE(error, squares * (1 + 1e-9) + 64 * std::ldexp(1.0, -266));
    size_t next = 0;
    for (size_t i = 0; i < n; ++i) {
      const bool is_sent = next < k && order[next] == i;
      ASSERT_EQ(d[i], is_sent ? values[next++] : 0.0f);
    }
  }
}

TEST_F(TopKTest, RefusesWhatNoEncoderWrites) {
  const Codec& codec = GetCodec(CodecId::kTopK);
  const std::string good = FindEncoded(ValuesOfKind(0, 3000));
  std::vector<float> d(3000);
  std::string bytes = good;
  bytes[1] = '\xff';
  EXPECT_EQ(codec.Decode(bytes, absl::MakeSpan(d)), BlockFault::kBadScale);
  bytes = good;  // 47 codes: the last bit of a plane is past them.
  bytes[3 + 5] = static_cast<char>(bytes[3 + 5] | 0x80);
  EXPECT_EQ(codec.Decode(bytes, absl::MakeSpan(d)), BlockFault::kBadPadding);
  bytes = good;  // Zeros are the set of the last places.
  for (size_t i = 3 + 12; i < bytes.size(); ++i) bytes[i] = '\0';
  EXPECT_EQ(codec.Decode(bytes, absl::MakeSpan(d)), BlockFault::kBadIndex);
}

}  // namespace
}  // namespace atl::codec
