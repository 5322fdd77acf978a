#include "base/layout/digest.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "base/codec/block_grid.h"
#include "base/codec/f32_bytes.h"
#include "base/codec/sha256.h"
#include "base/codec/xxh3.h"

namespace atl {
namespace {

Digest128 Hash(absl::Span<const char> bytes, uint64_t seed) {
  const codec::Hash128 hash =
      codec::ComputeXxh3({bytes.data(), bytes.size()}, seed);
  return {hash.high, hash.low};
}

}  // namespace

Digest128& Digest128::operator+=(const Digest128& other) {
  low += other.low;
  high += other.high + (low < other.low ? 1 : 0);
  return *this;
}

v1::Digest Digest128::ToProto() const {
  v1::Digest digest;
  digest.set_high(high);
  digest.set_low(low);
  return digest;
}

Digest128 Digest128::FromProto(const v1::Digest& digest) {
  return {digest.high(), digest.low()};
}

std::string Digest128::ToHex() const {
  return absl::StrFormat("%016x%016x", high, low);
}

std::optional<Digest128> Digest128::FromHex(absl::string_view hex) {
  if (hex.size() != 32) return std::nullopt;
  Digest128 digest;
  for (size_t i = 0; i < hex.size(); ++i) {
    const char c = hex[i];
    uint64_t digit;
    if (c >= '0' && c <= '9') {
      digit = static_cast<uint64_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      digit = static_cast<uint64_t>(c - 'a' + 10);
    } else {
      return std::nullopt;
    }
    uint64_t& half = i < 16 ? digest.high : digest.low;
    half = half << 4 | digit;
  }
  return digest;
}

Digest128 BlockDigest(int64_t block, absl::Span<const char> bytes) {
  return Hash(bytes, static_cast<uint64_t>(block));
}

Digest128 BlockDigest(int64_t block, absl::Span<const float> elements) {
  return BlockDigest(block, codec::F32Bytes(elements));
}

Digest128 RangeDigest(const RunLayout& layout, int32_t fragment,
                      IndexRange blocks, absl::Span<const float> elements) {
  Digest128 sum;
  const int64_t first = layout.BlockOffset(fragment, blocks.begin);
  for (int64_t block = blocks.begin; block < blocks.end; ++block) {
    const IndexRange range = layout.BlockElements(fragment, {block, block + 1});
    sum +=
        BlockDigest(block, elements.subspan(range.begin - first, range.size()));
  }
  return sum;
}

Digest128 ContributionDigest(absl::Span<const char> encoded) {
  return Hash(encoded, 0);
}

std::string ParametersSha256(const RunLayout& layout,
                             absl::Span<const float> elements) {
  codec::Sha256 all;
  for (const TensorPlace& tensor : layout.tensors()) {
    for (int64_t begin = 0; begin < tensor.element_count;
         begin += codec::kBlockElements) {
      const int64_t count =
          std::min(codec::kBlockElements, tensor.element_count - begin);
      const auto digest = codec::ComputeSha256(codec::F32Bytes(
          elements.subspan(tensor.model_offset + begin, count)));
      all.Update(absl::string_view(reinterpret_cast<const char*>(digest.data()),
                                   digest.size()));
    }
  }
  return codec::ToHex(all.Finish());
}

}  // namespace atl
