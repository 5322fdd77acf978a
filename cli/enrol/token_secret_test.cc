#include "cli/enrol/token_secret.h"

#include "base/identity/join_string.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

TEST(TokenSecretTest, MakesAnotherOneEachTime) {
  const TokenSecret a = MakeTokenSecret().value();
  const TokenSecret b = MakeTokenSecret().value();
  EXPECT_TRUE(IsTokenId(a.token_id)) << a.token_id;
  EXPECT_EQ(a.secret.size(), 32);
  EXPECT_NE(a.token_id, b.token_id);
  EXPECT_NE(a.secret, b.secret);
}

}  // namespace
}  // namespace atl::cli
