#include <string>

#include "base/codec/sha256.h"
#include "base/codec/xxh3.h"
#include "gtest/gtest.h"

namespace atl::codec {
namespace {

TEST(Sha256Test, GivesTheValueOfFips180) {
  EXPECT_EQ(ToHex(Sha256Of("abc")),
            "ba7816bf8f01cfea414140de5dae2223"
            "b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256Test, DoesNotDependOnHowTheBytesAreCut) {
  Sha256 hash;
  hash.Update("a");
  hash.Update("");
  hash.Update("bc");
  EXPECT_EQ(hash.Finish(), Sha256Of("abc"));
}

TEST(Xxh3Test, GivesThePublishedValueOfTheEmptyString) {
  const Hash128 hash = Xxh3Of("");
  EXPECT_EQ(hash.high, 0x99aa06d3014798d8u);
  EXPECT_EQ(hash.low, 0x6001c324468d497fu);
}

TEST(Xxh3Test, DoesNotDependOnHowTheBytesAreCutButOnTheSeed) {
  const std::string bytes(1000, 'x');
  Xxh3 hash;
  hash.Update(bytes.substr(0, 300));
  hash.Update(bytes.substr(300));
  EXPECT_EQ(hash.Current().high, Xxh3Of(bytes).high);
  EXPECT_EQ(hash.Current().low, Xxh3Of(bytes).low);
  EXPECT_NE(Xxh3Of(bytes, 1).low, Xxh3Of(bytes).low);
}

}  // namespace
}  // namespace atl::codec
