// Bytes of a fragment on the wire, by codec (base/codec defines the bytes of a
// block). Pure. Thread-safe.

#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "base/codec/codec.h"

namespace atl::worker::planner {

// The codec that CodecName calls `name`.
std::optional<codec::CodecId> FindCodecNamed(absl::string_view name);

// Bytes of `element_count` (>= 0) consecutive elements of one tensor: whole
// blocks of 4096 and a shorter last one, with scales. Excludes headers and
// checksums of chunks (some 50 bytes per MiB).
int64_t EncodedBytes(codec::CodecId codec, int64_t element_count);

}  // namespace atl::worker::planner
