// The error of a stream that has no place.

#pragma once

#include "absl/status/status.h"
#include "base/status/refusal.h"
#include "gtest/gtest.h"

namespace atl::server {

inline void ExpectNoPlace(const absl::Status& status) {
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_TRUE(GetRetryDelay(status).has_value()) << status;
  const auto reason = GetReason(status);
  ASSERT_TRUE(reason.has_value()) << status;
  EXPECT_EQ(reason->reason, "TOO_MANY_STREAMS");
}

}  // namespace atl::server
