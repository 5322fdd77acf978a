// How many bytes a fragment takes on the wire, codec by codec.
//
// Pure. Thread-safe. What a block takes is base/codec's to say.

#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "base/codec/codec.h"

namespace atl::worker::planner {

// The codec that CodecName calls so.
std::optional<codec::CodecId> FindCodecNamed(absl::string_view name);

// Bytes of `element_count` (>= 0) consecutive elements of one tensor: whole
// blocks of 4096 and one shorter one, scales counted. Headers and checksums of
// chunks (some 50 bytes a MiB) are not.
int64_t EncodedBytes(codec::CodecId codec, int64_t element_count);

}  // namespace atl::worker::planner
