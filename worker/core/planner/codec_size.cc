#include "worker/core/planner/codec_size.h"

namespace atl::worker::planner {
namespace {

constexpr int64_t kBlockElements = 4096;

struct CodecSize {
  WireCodec codec;
  absl::string_view name;
  int64_t block_bytes;  // Of a full block.
};

constexpr CodecSize kSizes[] = {
    {WireCodec::kF32, "f32", 16384},
    {WireCodec::kBf16, "bf16", 8192},
    {WireCodec::kInt8, "int8", 4096 + 32},
    {WireCodec::kE3m0, "e3m0", 2048 + 16},
    {WireCodec::kTwoBit, "two_bit", 1024 + 24},
    {WireCodec::kTopK, "top_k", 78},
};

const CodecSize& SizeOf(WireCodec codec) {
  for (const CodecSize& size : kSizes) {
    if (size.codec == codec) return size;
  }
  return kSizes[0];
}

}  // namespace

absl::Span<const WireCodec> AllWireCodecs() {
  static constexpr WireCodec kAll[] = {WireCodec::kF32,    WireCodec::kBf16,
                                       WireCodec::kInt8,   WireCodec::kE3m0,
                                       WireCodec::kTwoBit, WireCodec::kTopK};
  return kAll;
}

absl::string_view WireCodecName(WireCodec codec) { return SizeOf(codec).name; }

std::optional<WireCodec> FindWireCodec(absl::string_view name) {
  for (const CodecSize& size : kSizes) {
    if (size.name == name) return size.codec;
  }
  return std::nullopt;
}

int64_t EncodedBytes(WireCodec codec, int64_t element_count) {
  const int64_t block_bytes = SizeOf(codec).block_bytes;
  const int64_t rest = element_count % kBlockElements;
  return element_count / kBlockElements * block_bytes +
         (rest * block_bytes + kBlockElements - 1) / kBlockElements;
}

}  // namespace atl::worker::planner
