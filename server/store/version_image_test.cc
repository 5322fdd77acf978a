#include "server/store/version_image.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace atl::server {
namespace {

constexpr int64_t kHuge = 2 << 20;

TEST(ImagePoolTest, AnImageCanBeWrittenToItsEnd) {
  const auto pool = ImagePool::Create(4 * kHuge);
  const VersionImage image = pool->Take(1000);
  ASSERT_NE(image, nullptr);
  image[0] = 1;
  image[999] = 2;
  EXPECT_EQ(image[0] + image[999], 3);
}

TEST(ImagePoolTest, WhatIsGivenBackIsUsedAgain) {
  const auto pool = ImagePool::Create(4 * kHuge);
  VersionImage image = pool->Take(1000);
  const float* const memory = image.get();
  image = nullptr;
  EXPECT_EQ(pool->bytes(), kHuge);
  image = pool->Take(1000);
  EXPECT_EQ(image.get(), memory);
  EXPECT_EQ(pool->bytes(), kHuge);
}

TEST(ImagePoolTest, ThereIsNoImageBeyondTheBound) {
  const auto pool = ImagePool::Create(2 * kHuge);
  VersionImage first = pool->Take(1000);
  const VersionImage second = pool->Take(1000);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(pool->Take(1000), nullptr);
  first = nullptr;
  EXPECT_NE(pool->Take(1000), nullptr);
}

TEST(ImagePoolTest, FreeImagesOfAnotherSizeMakeRoom) {
  const auto pool = ImagePool::Create(3 * kHuge);
  VersionImage first = pool->Take(1000);
  VersionImage second = pool->Take(1000);
  const int64_t large = 2 * kHuge / static_cast<int64_t>(sizeof(float));
  EXPECT_EQ(pool->Take(large), nullptr);
  first = second = nullptr;
  EXPECT_NE(pool->Take(large), nullptr);
  EXPECT_LE(pool->bytes(), 3 * kHuge);
}

TEST(ImagePoolTest, NeighboursAreNotAtADistanceThatACacheCannotTell) {
  constexpr int64_t kAlike = 256 << 20;
  const int64_t count = kAlike / static_cast<int64_t>(sizeof(float));
  for (int64_t neighbours = 1; neighbours < 100; ++neighbours) {
    EXPECT_NE(neighbours * ImagePool::AsBytes(count) % kAlike, 0);
    EXPECT_NE(neighbours * ImagePool::AsBytes(count / 2) % kAlike, 0);
  }
}

TEST(ImagePoolTest, AShareIsOfTheSameMemoryAndHasABoundOfItsOwn) {
  const auto pool = ImagePool::Create(3 * kHuge);
  auto share = pool->Share(2 * kHuge);
  VersionImage one = share->Take(1);
  VersionImage two = share->Take(1);
  ASSERT_NE(two, nullptr);
  EXPECT_EQ(share->bytes(), 2 * kHuge);
  EXPECT_EQ(share->Take(1), nullptr);
  VersionImage three = pool->Take(1);
  ASSERT_NE(three, nullptr);
  EXPECT_EQ(pool->bytes(), 3 * kHuge);
  const float* const place = one.get();
  one = nullptr;
  EXPECT_EQ(share->bytes(), kHuge);
  one = share->Take(1);
  EXPECT_EQ(one.get(), place);
  one = nullptr;
  // The pool's own bound holds too, and a failed Take is not counted.
  VersionImage four = pool->Take(1);
  EXPECT_EQ(share->Take(1), nullptr);
  EXPECT_EQ(share->bytes(), kHuge);
  share = nullptr;
  two[0] = 1;
}

TEST(ImagePoolTest, AnImageOutlivesTheOwnerOfItsPool) {
  auto pool = ImagePool::Create(2 * kHuge);
  const VersionImage image = pool->Take(1000);
  pool = nullptr;
  image[7] = 7;
  EXPECT_EQ(image[7], 7);
}

}  // namespace
}  // namespace atl::server
