// A run that is small enough for a test, and its data.

#pragma once

#include <cstdint>
#include <string>

#include "atoll/v1/run.pb.h"

namespace atl::worker {

struct TinyRunOptions {
  int island_count = 1;
  int64_t inner_step_count = 2;
  int64_t round_count = 3;
  int32_t layer_count = 2;
  int32_t fragment_count = 1;  // At most layer_count.
  bool adamw = true;
  std::string data_path;
};

// A strict run of a small model with vocabulary 256.
v1::RunSpec TinyRun(const TinyRunOptions& options);

// Writes `size_bytes` of text, a pure function of `seed`, to a file in
// `directory`; returns its path.
std::string WriteTinyText(const std::string& directory, uint64_t seed,
                          int64_t size_bytes);

}  // namespace atl::worker
