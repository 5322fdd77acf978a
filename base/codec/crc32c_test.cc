#include "base/codec/crc32c.h"

#include <random>
#include <string>

#include "gtest/gtest.h"

namespace atl::codec {
namespace {

TEST(Crc32cTest, GivesTheValuesOfRfc3720) {
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(""), 0u);
}

TEST(Crc32cTest, EqualsItsPlainDefinitionHoweverTheBytesAreCut) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int trial = 0; trial < 200; ++trial) {
    std::string bytes(random() % 3000, 0);
    for (char& c : bytes) c = static_cast<char>(random());
    const size_t cut = bytes.empty() ? 0 : random() % bytes.size();
    const uint32_t plain = ExtendCrc32cPlain(0, bytes);
    EXPECT_EQ(Crc32c(bytes), plain);
    EXPECT_EQ(ExtendCrc32c(Crc32c(bytes.substr(0, cut)), bytes.substr(cut)),
              plain);
  }
}

}  // namespace
}  // namespace atl::codec
