// Who of several callers gets one of a bounded number of places.
//
// As long as there is room everyone does. When there is none, who has least
// comes first: a caller takes the newest place of the one that has most, if it
// then has no more than that one keeps. So callers tend to equal shares, one
// alone may have all, and nobody's places keep another out. Callers beyond the
// number of places wait for their turn. What has gone on for longest is
// displaced last, so that it comes to its end.
//
// Pure: no thread, no clock, no I/O. Thread-compatible.

#ifndef SERVER_CORE_PLACES_H_
#define SERVER_CORE_PLACES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/string_view.h"

namespace atl::server {

class Places {
 public:
  // `count_max` (>= 1) places. Who is displaced needs a moment to go: a quarter
  // as many, but one at least, may be going at a time.
  explicit Places(int count_max);

  struct Answer {
    bool is_taken = false;
    std::optional<int64_t> displaced;  // Has no place any more: it has to go.
  };
  // A place for `holder`, on behalf of `caller`. Holders are numbered in the
  // order in which they come.
  Answer Take(int64_t holder, absl::string_view caller);
  // The holder goes on without its place, if it has one.
  void Leave(int64_t holder);
  // The holder is gone.
  void Remove(int64_t holder);

  int taken_count() const { return static_cast<int>(callers_of_.size()); }

 private:
  // Whose place a caller gets that has `count` now.
  std::optional<int64_t> FindDisplaced(size_t count) const;

  const size_t count_max_;
  const size_t going_count_max_;
  // Of those that have a place.
  std::map<int64_t, std::string> callers_of_;
  // Who has which; no caller without any.
  std::map<std::string, std::set<int64_t>, std::less<>> places_of_;
  std::set<int64_t> going_;  // Displaced, and not gone.
};

}  // namespace atl::server

#endif  // SERVER_CORE_PLACES_H_
