#include "base/codec/xxh3.h"

// Compiled here with this build's AVX2: Debian's library is built for SSE2.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/status/check.h"

namespace atl::codec {

struct Xxh3::State {
  State() : xxh(XXH3_createState()) {}
  ~State() { XXH3_freeState(xxh); }
  XXH3_state_t* xxh;
};

Hash128 ComputeXxh3(absl::string_view bytes, uint64_t seed) {
  const XXH128_hash_t hash =
      XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed);
  return {hash.high64, hash.low64};
}

Xxh3::Xxh3() : state_(std::make_unique<State>()) {
  CHECK(state_->xxh != nullptr);
  CHECK_EQ(XXH3_128bits_reset(state_->xxh), XXH_OK);
}

Xxh3::~Xxh3() = default;

void Xxh3::Update(absl::string_view bytes) {
  CHECK_EQ(XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size()),
           XXH_OK);
}

Hash128 Xxh3::Current() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh);
  return {hash.high64, hash.low64};
}

}  // namespace atl::codec
