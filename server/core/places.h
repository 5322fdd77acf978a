// Shares a bounded number of places fairly between callers.
//
// While places are free, every request succeeds. Otherwise a caller takes the
// newest place of the caller with the most, if afterwards it has no more than
// that caller. So shares tend to be equal, one caller alone may have all
// places, and no caller can lock others out. The oldest holders are displaced
// last, so that they can finish. If callers outnumber the places, the rest must
// ask again. Pure: no thread, no clock, no I/O. Thread-compatible.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/string_view.h"

namespace atl::server {

class Places {
 public:
  // `count_max` (>= 1) places, and a quarter more (>= 1) for displaced holders.
  explicit Places(int count_max);

  struct Answer {
    bool is_taken = false;
    std::optional<int64_t> displaced;  // It lost its place and must end.
  };
  // Takes a place for `holder` of `caller`. Holder numbers must grow.
  Answer Take(int64_t holder, absl::string_view caller);
  // The holder continues without its place, if it had one.
  void Leave(int64_t holder);
  void Remove(int64_t holder);

 private:
  // The holder whose place a caller with `count` places would get.
  std::optional<int64_t> FindDisplaced(size_t count) const;

  const size_t count_max_;
  const size_t going_count_max_;
  // By holder that has a place.
  std::map<int64_t, std::string> callers_of_;
  // By caller with at least one place.
  std::map<std::string, std::set<int64_t>, std::less<>> places_of_;
  std::set<int64_t> going_;  // Displaced, but not ended.
};

}  // namespace atl::server
