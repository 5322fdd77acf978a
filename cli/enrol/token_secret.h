// The secret of a new join token, made where it is shown. Thread-safe.

#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace atl::cli {

struct TokenSecret {
  std::string token_id;  // [a-z0-9]{12}
  std::string secret;    // 32 random bytes.
};

// UNAVAILABLE: the machine gives no random bytes.
absl::StatusOr<TokenSecret> MakeTokenSecret();

}  // namespace atl::cli
