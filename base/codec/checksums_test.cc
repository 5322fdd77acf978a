#include <cstdint>
#include <random>
#include <string>

#include "absl/strings/string_view.h"
#include "base/codec/block_grid.h"
#include "base/codec/crc32c.h"
#include "base/codec/sha256.h"
#include "base/codec/xxh3.h"
#include "gtest/gtest.h"

namespace atl::codec {
namespace {

// Fresh random inputs; a failure prints the seed.
class CodecTest : public ::testing::Test {
 protected:
  CodecTest() : seed_(std::random_device()()), random_(seed_) {
    RecordProperty("seed", std::to_string(seed_));
  }
  ~CodecTest() override {
    if (HasFailure()) std::printf("seed: %u\n", seed_);
  }

  size_t Uniform(size_t low, size_t high) {
    return std::uniform_int_distribution<size_t>(low, high)(random_);
  }

  std::string RandomBytes(size_t size) {
    std::string bytes(size, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random_());
    return bytes;
  }

  const unsigned seed_;
  std::mt19937 random_;
};

using Crc32cTest = CodecTest;
using HashTest = CodecTest;

TEST_F(Crc32cTest, GivesTheValuesOfRfc3720) {
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

TEST_F(Crc32cTest, EqualsItsPlainDefinitionForEveryLengthAndAlignment) {
  const std::string bytes = RandomBytes(40000);
  for (int i = 0; i < 200; ++i) {
    const size_t begin = Uniform(0, 20);
    const size_t size = i < 100 ? Uniform(0, 2000) : Uniform(0, 39000);
    const auto piece = absl::string_view(bytes).substr(begin, size);
    const auto start = static_cast<uint32_t>(random_());
    const uint32_t expected = ExtendCrc32cPlain(start, piece);
    ASSERT_EQ(ExtendCrc32c(start, piece), expected)
        << "begin " << begin << " size " << size;
    ASSERT_EQ(ExtendCrc32cNarrow(start, piece), expected)
        << "begin " << begin << " size " << size;
    if (CanMixCrc32c()) {
      ASSERT_EQ(ExtendCrc32cMixed(start, piece), expected)
          << "begin " << begin << " size " << size;
    }
    if (!CanFoldCrc32c()) continue;
    ASSERT_EQ(ExtendCrc32cFolded(start, piece), expected)
        << "begin " << begin << " size " << size;
    ASSERT_EQ(ExtendCrc32cFoldedMixed(start, piece), expected)
        << "begin " << begin << " size " << size;
  }
}

TEST_F(Crc32cTest, ExtendsAndCombinesAsIfThePartsWereOne) {
  for (int i = 0; i < 50; ++i) {
    const std::string a = RandomBytes(Uniform(0, 5000));
    const std::string b =
        RandomBytes(i % 5 == 0 ? 16384 : Uniform(0, i % 5 == 1 ? 8 : 5000));
    const uint32_t whole = Crc32c(a + b);
    EXPECT_EQ(ExtendCrc32c(Crc32c(a), b), whole);
    EXPECT_EQ(CombineCrc32c(Crc32c(a), Crc32c(b), b.size()), whole);
  }
}

TEST_F(HashTest, Sha256GivesTheValuesOfFips180) {
  EXPECT_EQ(ToHex(ComputeSha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(ToHex(ComputeSha256("")),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST_F(HashTest, PiecesHashAsTheWhole) {
  const std::string bytes = RandomBytes(Uniform(0, 10000));
  const size_t cut = Uniform(0, bytes.size());
  Sha256 sha;
  Xxh3 xxh;
  for (const absl::string_view piece : {absl::string_view(bytes).substr(0, cut),
                                        absl::string_view(bytes).substr(cut)}) {
    sha.Update(piece);
    xxh.Update(piece);
  }
  EXPECT_EQ(sha.Finish(), ComputeSha256(bytes));
  EXPECT_EQ(xxh.Current(), ComputeXxh3(bytes));
}

TEST_F(HashTest, Xxh3GivesTheKnownValueAndDependsOnTheSeed) {
  EXPECT_EQ(ComputeXxh3(""), (Hash128{0x99aa06d3014798d8, 0x6001c324468d497f}));
  EXPECT_FALSE(ComputeXxh3("abc", 1) == ComputeXxh3("abc", 2));
}

TEST(BlockGridTest, CountsAShortLastBlock) {
  static_assert(BlockCount(0) == 0);
  static_assert(BlockCount(1) == 1);
  static_assert(BlockCount(kBlockElements) == 1);
  static_assert(BlockCount(kBlockElements + 1) == 2);
  EXPECT_EQ(kChunkPayloadBytesMax % (4 * kBlockElements), 0);
}

}  // namespace
}  // namespace atl::codec
