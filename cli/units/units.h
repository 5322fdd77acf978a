// Quantities with a unit, as people write and read them.
//
// Pure. Thread-safe. Strict: a number without its unit is an error, and so is a
// unit in the wrong case, for Mb/s and MB/s differ by eight.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace atl::cli {

// "20Mb/s" is 2.5e6 bytes a second, "5MB/s" 5e6: a positive number, one of
// nothing, k, M, G, T (powers of 1000), b (bits) or B (bytes), "/s".
//
// INVALID_ARGUMENT (a usage error): anything else.
absl::StatusOr<double> ParseBandwidth(absl::string_view text);

// "40ms", "1.5s", "0s": seconds, at least 0.
//
// INVALID_ARGUMENT (a usage error): anything else.
absl::StatusOr<double> ParseSeconds(absl::string_view text);

// What --patience says: "30s", "5m", more than no time.
//
// INVALID_ARGUMENT (a usage error): anything else.
absl::StatusOr<absl::Duration> ParsePatience(const std::string& text);

// "1.2B", "350M", "70k", "857216": a count, at least 1; k, M, B, T are powers
// of 1000.
//
// INVALID_ARGUMENT (a usage error): anything else.
absl::StatusOr<int64_t> ParseCount(absl::string_view text);

// Whether `text` begins as ParseCount's texts do, or as those below 0, not as a
// path or a name.
bool LooksLikeCount(absl::string_view text);

// "20 Mb/s": of bytes a second, in bits, powers of 1000.
std::string FormatBandwidth(double bytes_per_second);

// "1.2B", "857k".
std::string FormatSize(int64_t count);

}  // namespace atl::cli
