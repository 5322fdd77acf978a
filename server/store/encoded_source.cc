#include "server/store/encoded_source.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/codec/block_grid.h"
#include "base/codec/codec.h"
#include "base/status/status_macros.h"

namespace atl::server {

absl::Status EncodedSource::Read(IndexRange blocks, float* elements) const {
  if (encoded().is_f32()) {
    return ReadEncoded(blocks, reinterpret_cast<char*>(elements));
  }
  // No codec takes more bytes than f32.
  char bytes[codec::kBlockElements * sizeof(float)];
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    const IndexRange block = {b, b + 1};
    const int64_t count = encoded().range().ElementCount(block);
    RETURN_IF_ERROR(ReadEncoded(block, bytes));
    const codec::BlockFault fault = encoded().codec().Decode(
        {bytes, static_cast<size_t>(encoded().ByteCount(block))},
        absl::MakeSpan(elements, static_cast<size_t>(count)));
    if (fault != codec::BlockFault::kNone) {
      return absl::DataLossError(absl::StrCat("block ", b, " of ", ToString(),
                                              " ", codec::FaultText(fault)));
    }
    elements += count;
  }
  return absl::OkStatus();
}

}  // namespace atl::server
