#include "base/random_id/random_id.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace atl {
namespace {

TEST(RandomIdTest, HasTheFormOfAnId) {
  const std::string id = RandomId();
  EXPECT_EQ(id.size(), 32u);
  EXPECT_TRUE(IsRandomId(id)) << id;
}

TEST(RandomIdTest, NeverRepeats) {
  std::set<std::string> ids;
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(ids.insert(RandomId()).second);
}

TEST(RandomIdTest, IsRandomIdRefusesOtherForms) {
  EXPECT_FALSE(IsRandomId(""));
  EXPECT_FALSE(IsRandomId(std::string(31, '0')));
  EXPECT_FALSE(IsRandomId(std::string(33, '0')));
  EXPECT_FALSE(IsRandomId(std::string(32, 'A')));
  EXPECT_FALSE(IsRandomId(std::string(32, 'g')));
  EXPECT_FALSE(IsRandomId(std::string(31, 'a') + "\n"));
  EXPECT_TRUE(IsRandomId(std::string(32, 'f')));
}

}  // namespace
}  // namespace atl
