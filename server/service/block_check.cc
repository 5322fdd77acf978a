#include "server/service/block_check.h"

#include "absl/types/span.h"
#include "base/codec/block_grid.h"
#include "server/kernels/loop_table.h"
#include "server/kernels/merge_kernels.h"

namespace atl::server {

CheckedBlock CheckBlock(const codec::Codec& codec, absl::string_view encoded,
                        int64_t element_count) {
  CheckedBlock checked;
  if (encoded.size() != codec.EncodedBytes(element_count)) {
    checked.fault = codec::BlockFault::kWrongSize;
    return checked;
  }
  alignas(64) float decoded[codec::kBlockElements];
  const kernels::UnalignedF32* elements = decoded;
  if (codec.id() == codec::CodecId::kF32) {
    // Checked in place.
    elements = reinterpret_cast<const kernels::UnalignedF32*>(encoded.data());
  } else {
    checked.fault = codec.Decode(
        encoded, absl::MakeSpan(decoded, static_cast<size_t>(element_count)));
    if (checked.fault != codec::BlockFault::kNone) return checked;
  }
  const kernels::NormResult norm =
      kernels::BestLoops().check_and_norm(element_count, elements);
  checked.sum_of_squares = norm.sum_of_squares;
  if (!norm.finite) checked.fault = codec::BlockFault::kNotFinite;
  return checked;
}

}  // namespace atl::server
