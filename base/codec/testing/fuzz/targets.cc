#include "base/codec/testing/fuzz/targets.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/codec/codec.h"
#include "base/status/check.h"

namespace atl::codec {
namespace {

constexpr float kWeight = 0.37f;
constexpr float kDecay = 0.95f;

// One parsed input.
struct Input {
  CodecId id;
  size_t n;
  const uint8_t* rest;
  size_t rest_size;

  // `size` bytes of `rest` from `skip` on, repeated as needed.
  std::string Bytes(size_t skip, size_t size) const {
    std::string bytes(size, '\0');
    for (size_t done = 0, at = skip % rest_size; done < size; at = 0) {
      const size_t run = std::min(rest_size - at, size - done);
      std::memcpy(&bytes[done], rest + at, run);
      done += run;
    }
    return bytes;
  }

  std::vector<float> Floats(size_t skip, size_t count) const {
    const std::string bytes = Bytes(skip, count * sizeof(float));
    std::vector<float> values(count);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
};

// Most blocks are short, at most one sub-block and a part, for more inputs a
// second. A few have any length; of top-k fewer still, because its plain path
// is O(n^2), and a fuzzer keeps long inputs. The sum of all bytes chooses those:
// every mutation changes it.
bool Parse(const uint8_t* data, size_t size, Input* input) {
  if (size < 4) return false;
  const auto codecs = AllCodecs();
  input->id = codecs[data[0] % codecs.size()];
  const bool is_long =
      data[3] % 32 == 7 && (input->id != CodecId::kTopK ||
                            std::accumulate(data, data + size, 0u) % 8 == 0);
  const size_t n_max = is_long ? 4096 : 600;
  input->n = 1 + static_cast<size_t>(data[1] | data[2] << 8) % n_max;
  input->rest = data + 3;
  input->rest_size = size - 3;
  return true;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// The paths that are compared with the plain one.
const std::vector<SimdPath>& Paths() {
  static const std::vector<SimdPath>& paths = *[] {
    auto* others = new std::vector<SimdPath>(SupportedPaths());
    others->erase(others->begin());
    return others;
  }();
  return paths;
}

absl::string_view View(const std::vector<char>& bytes) {
  return absl::string_view(bytes.data(), bytes.size());
}

bool AllFinite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(),
                     [](float value) { return std::isfinite(value); });
}

// The result of one path on one input. Each array has exactly its size, so no
// byte follows its last.
struct Encoded {
  Encoded(size_t n, size_t bytes) : bytes(bytes), residual(n) {}

  BlockFault fault = BlockFault::kNone;
  std::vector<char> bytes;
  std::vector<float> residual;  // The residual, with error feedback only.
};

Encoded EncodeWithout(const Codec& codec, const BlockKey& key,
                      const std::vector<float>& gradient) {
  Encoded encoded(0, codec.EncodedBytes(gradient.size()));
  encoded.fault = codec.Encode(key, gradient, absl::MakeSpan(encoded.bytes));
  return encoded;
}

Encoded EncodeWith(const Codec& codec, const BlockKey& key,
                   const std::vector<float>& gradient,
                   const std::vector<float>& before) {
  Encoded encoded(gradient.size(), codec.EncodedBytes(gradient.size()));
  encoded.fault = codec.EncodeWithFeedback(
      key, gradient, kDecay, before, absl::MakeSpan(encoded.residual),
      absl::MakeSpan(encoded.bytes));
  return encoded;
}

}  // namespace

void FuzzDecode(const uint8_t* data, size_t size) {
  Input input;
  if (!Parse(data, size, &input)) return;
  const Codec& plain = GetCodec(input.id, SimdPath::kPlain);
  const std::string whole = input.Bytes(0, plain.EncodedBytes(input.n));
  // A vector, not a string: no byte follows its last.
  const std::vector<char> exact(whole.begin(), whole.end());
  const absl::string_view encoded(exact.data(), exact.size());
  std::vector<float> values(input.n), scaled(input.n), sum(input.n, 0.5f);
  const BlockFault fault = plain.Decode(encoded, absl::MakeSpan(values));
  if (fault == BlockFault::kNone) {
    CHECK(AllFinite(values));
    CHECK(plain.DecodeScaled(encoded, kWeight, absl::MakeSpan(scaled)) ==
          fault);
    CHECK(plain.DecodeAccumulate(encoded, kWeight, absl::MakeSpan(sum)) ==
          fault);
  }
  for (const SimdPath path : Paths()) {
    const Codec& codec = GetCodec(input.id, path);
    std::vector<float> v(input.n), w(input.n), s(input.n, 0.5f);
    CHECK(codec.Decode(encoded, absl::MakeSpan(v)) == fault);
    CHECK(codec.DecodeScaled(encoded, kWeight, absl::MakeSpan(w)) == fault);
    CHECK(codec.DecodeAccumulate(encoded, kWeight, absl::MakeSpan(s)) == fault);
    if (fault != BlockFault::kNone) continue;
    CHECK(SameBits(v, values));
    CHECK(SameBits(w, scaled));
    CHECK(SameBits(s, sum));
  }
}

void FuzzEncode(const uint8_t* data, size_t size) {
  Input input;
  if (!Parse(data, size, &input)) return;
  const size_t n = input.n;
  const std::vector<float> gradient = input.Floats(0, n);
  const std::vector<float> before = input.Floats(2, n);
  const BlockKey key{input.rest[0], n};
  const Codec& plain = GetCodec(input.id, SimdPath::kPlain);
  const Encoded without = EncodeWithout(plain, key, gradient);
  const Encoded with = EncodeWith(plain, key, gradient, before);
  std::vector<float> values(n);
  if (without.fault == BlockFault::kNone) {
    CHECK(plain.Decode(View(without.bytes), absl::MakeSpan(values)) ==
          BlockFault::kNone);
    CHECK(AllFinite(values));
  }
  if (with.fault == BlockFault::kNone) {
    CHECK(plain.Decode(View(with.bytes), absl::MakeSpan(values)) ==
          BlockFault::kNone);
    for (size_t i = 0; i < n; ++i) {
      const float kept = kDecay * before[i];
      const float sum = kept + gradient[i];
      CHECK(with.residual[i] == sum - values[i]);
    }
  }
  for (const SimdPath path : Paths()) {
    const Codec& codec = GetCodec(input.id, path);
    const Encoded w = EncodeWithout(codec, key, gradient);
    CHECK(w.fault == without.fault);
    if (w.fault == BlockFault::kNone) CHECK(w.bytes == without.bytes);
    const Encoded f = EncodeWith(codec, key, gradient, before);
    CHECK(f.fault == with.fault);
    if (f.fault != BlockFault::kNone) continue;
    CHECK(f.bytes == with.bytes);
    CHECK(SameBits(f.residual, with.residual));
    std::vector<float> v(n);
    CHECK(codec.Decode(View(f.bytes), absl::MakeSpan(v)) == f.fault);
    CHECK(SameBits(v, values));
  }
}

}  // namespace atl::codec
