// Quantities with a unit, as text for people.
//
// Pure. Thread-safe. Strict: a missing unit or a unit in the wrong case is an
// error, because Mb/s and MB/s differ by a factor of eight.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace atl::cli {

// Returns bytes per second: "20Mb/s" is 2.5e6, "5MB/s" is 5e6. The format: a
// positive number; nothing or k, M, G, T (powers of 1000); b (bits) or B
// (bytes); "/s".
//
// INVALID_ARGUMENT (a usage error): anything else.
absl::StatusOr<double> ParseBandwidth(absl::string_view text);

// Returns seconds, at least 0, of "40ms", "1.5s", "0s".
//
// INVALID_ARGUMENT (a usage error): anything else.
absl::StatusOr<double> ParseSeconds(absl::string_view text);

// Parses --patience: "30s", "5m", above 0.
//
// INVALID_ARGUMENT (a usage error): anything else.
absl::StatusOr<absl::Duration> ParsePatience(const std::string& text);

// Parses a count, at least 1: "1.2B", "350M", "70k", "857216"; k, M, B, T are
// powers of 1000.
//
// INVALID_ARGUMENT (a usage error): anything else.
absl::StatusOr<int64_t> ParseCount(absl::string_view text);

// Parses a size in bytes, at least 1: "64MB", "20GB", "4096B"; k, M, G, T are
// powers of 1000.
//
// INVALID_ARGUMENT (a usage error): anything else.
absl::StatusOr<int64_t> ParseBytes(absl::string_view text);

// Returns whether `text` looks like a count (possibly negative or malformed),
// not like a path or a name.
bool LooksLikeCount(absl::string_view text);

// "20 Mb/s": bits per second, in powers of 1000.
std::string FormatBandwidth(double bytes_per_second);

// "1.2B", "857k".
std::string FormatSize(int64_t count);

}  // namespace atl::cli
