#include "server/merge/add_blocks.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace atl::server {

absl::Status AddBlocks(const MergeRule& rule, const EncodedRange& range,
                       IndexRange blocks, int index, float weight,
                       const char* encoded, float* g) {
  const bool is_aligned =
      reinterpret_cast<uintptr_t>(encoded) % alignof(float) == 0;
  if (range.is_f32() && is_aligned) {
    rule.Add(index, weight, range.range().ElementCount(blocks),
             reinterpret_cast<const float*>(encoded), g);
    return absl::OkStatus();
  }
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    const auto bytes = static_cast<size_t>(range.ByteCount({b, b + 1}));
    const auto count =
        static_cast<size_t>(range.range().ElementCount({b, b + 1}));
    const codec::BlockFault fault =
        rule.AddEncoded(range.codec(), index, weight, {encoded, bytes},
                        absl::MakeSpan(g, count));
    if (fault != codec::BlockFault::kNone) {
      return absl::DataLossError(absl::StrCat("block ", b, " of contribution ",
                                              index, " ",
                                              codec::FaultText(fault)));
    }
    encoded += bytes;
    g += count;
  }
  return absl::OkStatus();
}

}  // namespace atl::server
