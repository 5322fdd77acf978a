// SHA-256 (FIPS 180-4), by OpenSSL. Thread-compatible.

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace atl::codec {

using Sha256Digest = std::array<uint8_t, 32>;

// Hashes bytes that arrive in pieces.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Update(absl::string_view bytes);

  // The digest of all bytes. The object must not be used afterwards.
  Sha256Digest Finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

Sha256Digest ComputeSha256(absl::string_view bytes);

// 64 lower-case hex digits.
std::string ToHex(const Sha256Digest& digest);

}  // namespace atl::codec
