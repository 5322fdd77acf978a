#include "coordinator/gate/gate_limits.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1'700'000'000);

class CallLimitTest : public ::testing::Test {
 protected:
  // How many calls of `key` are allowed at once.
  int Burst(const std::string& key, absl::Duration after) {
    int count = 0;
    while (count < 10'000 && limit_.Take(key, kStart + after)) ++count;
    return count;
  }

  CallLimit limit_{{100, 100}, {5, 20}};
};

TEST_F(CallLimitTest, AKeyHasItsBurstAndThenItsRate) {
  EXPECT_EQ(Burst("a", absl::ZeroDuration()), 20);
  EXPECT_EQ(Burst("a", absl::Milliseconds(199)), 0);
  EXPECT_EQ(Burst("a", absl::Milliseconds(201)), 1);
  EXPECT_EQ(Burst("a", absl::Seconds(1.3)), 5);
  EXPECT_EQ(Burst("a", absl::Hours(1)), 20);
}

TEST_F(CallLimitTest, AllKeysShareOneRate) {
  int count = 0;
  for (int i = 0; i < 500; ++i) {
    count += limit_.Take(absl::StrCat(i), kStart) ? 1 : 0;
  }
  EXPECT_EQ(count, 100);
  EXPECT_FALSE(limit_.Take("x", kStart + absl::Milliseconds(9)));
  EXPECT_TRUE(limit_.Take("x", kStart + absl::Milliseconds(11)));
}

TEST_F(CallLimitTest, ACallThatAllTogetherForbidCostsItsKeyNothing) {
  EXPECT_TRUE(limit_.Take("a", kStart));
  for (int i = 0; i < 500; ++i) limit_.Take(absl::StrCat(i), kStart);
  for (int i = 0; i < 500; ++i) EXPECT_FALSE(limit_.Take("a", kStart));
  EXPECT_EQ(Burst("a", absl::Seconds(1)), 20);
}

TEST_F(CallLimitTest, AKeyThatIsRefusedTakesNothingFromOthers) {
  for (int i = 0; i < 1'000; ++i) limit_.Take("a", kStart);
  EXPECT_EQ(Burst("b", absl::ZeroDuration()), 20);
}

TEST_F(CallLimitTest, StrangersWithEverNewAddressesFillNoMemory) {
  absl::Time now = kStart;
  size_t most = 0;
  for (int i = 0; i < 100'000; ++i) {
    limit_.Take(absl::StrCat(i), now);
    now += absl::Milliseconds(2);
    most = std::max(most, limit_.key_count());
  }
  EXPECT_LE(most, 1'000);
  EXPECT_GE(most, 400);
}

}  // namespace
}  // namespace atl::coordinator
