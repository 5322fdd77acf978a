// --memory and --disk: what a volunteer's machine lends to a run.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/flags/flags.h"

namespace atl::cli {

// As written; empty: not given.
struct LentFlags {
  std::string memory;
  std::string disk;
};

// In bytes; 0: not given.
struct Lent {
  int64_t memory_bytes = 0;
  int64_t disk_bytes = 0;
};

// Adds both flags to `command`. `flags` must outlive the parse.
void AddLentFlags(flags::Command& command, LentFlags& flags);

// INVALID_ARGUMENT (a usage error that names the flag): not a size.
absl::StatusOr<Lent> ReadLent(const LentFlags& flags);

}  // namespace atl::cli
