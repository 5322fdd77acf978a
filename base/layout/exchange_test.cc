#include "base/layout/exchange.h"

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

TEST(ExchangeTest, EveryCodecIsKnownInBothDirections) {
  for (int number = v1::Codec_MIN; number <= v1::Codec_MAX; ++number) {
    if (!v1::Codec_IsValid(number)) continue;
    v1::ExchangeSpec exchange;
    exchange.set_up(static_cast<v1::Codec>(number));
    exchange.set_down(static_cast<v1::Codec>(number));
    EXPECT_TRUE(CheckCodecs(exchange).ok()) << number;
  }
}

TEST(ExchangeTest, AnUnknownCodecIsRefusedByItsNumberAndNotTakenForF32) {
  v1::ExchangeSpec up, down;
  up.set_up(static_cast<v1::Codec>(93));
  down.set_down(static_cast<v1::Codec>(94));
  const absl::Status of_up = CheckCodecs(up), of_down = CheckCodecs(down);
  EXPECT_TRUE(absl::IsInvalidArgument(of_up)) << of_up;
  EXPECT_TRUE(absl::StrContains(of_up.message(), "exchange.up is 93")) << of_up;
  EXPECT_TRUE(absl::IsInvalidArgument(of_down)) << of_down;
  EXPECT_TRUE(absl::StrContains(of_down.message(), "exchange.down is 94"))
      << of_down;
}

}  // namespace
}  // namespace atl
