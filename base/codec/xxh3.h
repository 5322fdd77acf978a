// XXH3-128, by xxHash: fast, but not secure against adversaries.
// Thread-compatible.

#pragma once

#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"

namespace atl::codec {

struct Hash128 {
  uint64_t high = 0;
  uint64_t low = 0;

  friend bool operator==(const Hash128&, const Hash128&) = default;
};

// XXH3-128 of `bytes` under `seed`.
Hash128 ComputeXxh3(absl::string_view bytes, uint64_t seed = 0);

// XXH3-128, seed 0, of bytes that arrive in pieces.
class Xxh3 {
 public:
  Xxh3();
  ~Xxh3();
  Xxh3(const Xxh3&) = delete;
  Xxh3& operator=(const Xxh3&) = delete;

  void Update(absl::string_view bytes);

  // The hash of all bytes so far.
  Hash128 Current() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace atl::codec
