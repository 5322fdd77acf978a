#include "worker/planner/codec_size.h"

#include "base/codec/block_grid.h"

namespace atl::worker::planner {

std::optional<codec::CodecId> FindCodecNamed(absl::string_view name) {
  for (const codec::CodecId id : codec::AllCodecs()) {
    if (codec::CodecName(id) == name) return id;
  }
  return std::nullopt;
}

int64_t EncodedBytes(codec::CodecId codec, int64_t element_count) {
  const codec::Codec& format = codec::GetCodec(codec);
  const int64_t blocks = element_count / codec::kBlockElements;
  const int64_t rest = element_count % codec::kBlockElements;
  return blocks *
             static_cast<int64_t>(format.EncodedBytes(codec::kBlockElements)) +
         (rest > 0 ? static_cast<int64_t>(format.EncodedBytes(rest)) : 0);
}

}  // namespace atl::worker::planner
