// The most servers, fragments and islands that a coordinator accepts in a run.
// Pure. Thread-safe.

#pragma once

#include <algorithm>
#include <cstdint>

namespace atl {

inline constexpr int32_t kServersMax = 256;
inline constexpr int32_t kFragmentsMax = 256;
inline constexpr int32_t kIslandsMax = 1024;
// Fragments times islands of a run. One server's plan holds the SEALs of all
// fragments, about 50 bytes a contribution, and must fit one message of 4 MiB.
inline constexpr int32_t kFragmentsTimesIslandsMax = 32768;

// Islands that a run of `fragment_count` fragments may have: kIslandsMax for up
// to 32 fragments.
constexpr int32_t IslandsMax(int64_t fragment_count) {
  return std::min<int32_t>(
      kIslandsMax,
      kFragmentsTimesIslandsMax /
          static_cast<int32_t>(std::clamp<int64_t>(fragment_count, 1,
                                                   kFragmentsMax)));
}

}  // namespace atl
