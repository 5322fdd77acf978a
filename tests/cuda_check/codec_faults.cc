#include "tests/cuda_check/codec_faults.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status/status_macros.h"

namespace atl::engine::check {
namespace {

constexpr int64_t kBlocks = 192;

// Damages one encoding, or leaves it alone.
void Damage(int kind, std::mt19937_64& random, absl::Span<uint8_t> bytes) {
  const auto place = [&] { return random() % bytes.size(); };
  switch (kind) {
    case 0:
      return;
    case 1:  // One bit.
      bytes[place()] ^= static_cast<uint8_t>(1u << (random() % 8));
      return;
    case 2:  // Several bits.
      for (int i = 0; i < 8; ++i) {
        bytes[place()] ^= static_cast<uint8_t>(1u << (random() % 8));
      }
      return;
    case 3:  // A NaN where it hits a number; else codes or scales of ones.
    case 4: {
      const size_t begin = place() / 4 * 4;
      const size_t end = std::min(bytes.size(), begin + 4);
      std::fill(bytes.begin() + begin, bytes.begin() + end,
                kind == 3 ? 0xff : 0);
      return;
    }
    case 5:  // The end, where padding follows the last codes.
      bytes.back() |= static_cast<uint8_t>(0x80u >> (random() % 8));
      return;
    case 6:
      std::fill(bytes.begin(), bytes.end(), 0xff);
      return;
    default:
      for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
      return;
  }
}

constexpr int kDamages = 8;

}  // namespace

FaultyBlocks MakeFaultyBlocks(const codec::Codec& codec, size_t n,
                              uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  const size_t size = codec.EncodedBytes(n);
  FaultyBlocks blocks;
  blocks.n = n;
  blocks.weight = 0.3f;
  blocks.encoded.resize(kBlocks * size);
  blocks.sums.resize(kBlocks * n);
  blocks.faults.assign(kBlocks, codec::BlockFault::kNone);
  for (float& sum : blocks.sums) sum = normal(random);
  std::vector<float> values(n);
  for (int64_t b = 0; b < kBlocks; ++b) {
    for (float& value : values) value = normal(random);
    uint8_t* const to = blocks.encoded.data() + b * size;
    // Encode cannot fail: all values are finite.
    codec.Encode({seed, b * n}, values,
                 absl::MakeSpan(reinterpret_cast<char*>(to), size));
    Damage(static_cast<int>(b % kDamages), random, absl::MakeSpan(to, size));
  }
  return blocks;
}

absl::Status CheckFaults(const codec::Codec& codec, size_t n, uint64_t seed,
                         const Accumulate& accumulate) {
  const FaultyBlocks blocks = MakeFaultyBlocks(codec, n, seed);
  FaultyBlocks expected = blocks;
  FaultyBlocks found = blocks;
  RETURN_IF_ERROR(accumulate(found));
  const size_t size = codec.EncodedBytes(n);
  if (found.faults.size() != blocks.faults.size() ||
      found.sums.size() != blocks.sums.size()) {
    return absl::InternalError("the number of faults or of sums is wrong");
  }
  for (size_t b = 0; b < blocks.faults.size(); ++b) {
    float* const sums = expected.sums.data() + b * n;
    const codec::BlockFault fault = codec.DecodeAccumulate(
        {reinterpret_cast<const char*>(blocks.encoded.data()) + b * size, size},
        blocks.weight, absl::MakeSpan(sums, n));
    if (found.faults[b] != fault) {
      return absl::InternalError(absl::StrCat(
          "block ", b, " of ", n, " elements has the fault \"",
          codec::FaultText(found.faults[b]), "\", but on the CPU \"",
          codec::FaultText(fault), "\""));
    }
    if (fault == codec::BlockFault::kNone &&
        std::memcmp(found.sums.data() + b * n, sums, n * sizeof(float)) != 0) {
      return absl::InternalError(absl::StrCat(
          "sums of block ", b, " of ", n, " elements differ from the CPU's"));
    }
  }
  return absl::OkStatus();
}

}  // namespace atl::engine::check
