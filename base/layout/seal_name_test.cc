#include "base/layout/seal_name.h"

#include "gtest/gtest.h"

namespace atl {
namespace {

TEST(SealNameTest, ANameIsTheSameSealAndNoOtherIs) {
  v1::Seal seal;
  seal.set_fragment(1);
  seal.set_version(2);
  seal.set_attempt(3);
  seal.add_contributions();
  v1::Seal judged = seal;
  judged.mutable_verdict()->add_rows();
  EXPECT_TRUE(IsSameSeal(NameSeal(seal), seal));
  EXPECT_TRUE(IsSameSeal(NameSeal(judged), judged));
  EXPECT_EQ(NameSeal(judged).contributions_size(), 0);
  EXPECT_EQ(NameSeal(judged).verdict().rows_size(), 0);
  EXPECT_FALSE(IsSameSeal(judged, seal));
  v1::Seal other = seal;
  other.set_fragment(0);
  EXPECT_FALSE(IsSameSeal(other, seal));
  other = seal;
  other.set_version(0);
  EXPECT_FALSE(IsSameSeal(other, seal));
  other = seal;
  other.set_attempt(0);
  EXPECT_FALSE(IsSameSeal(other, seal));
}

}  // namespace
}  // namespace atl
