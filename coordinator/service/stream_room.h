// Makes room for streams, and bounds them, in a list of one kind of stream. A
// stream has a `sink` that can end.
//
// Pure. Thread-compatible.

#pragma once

#include <algorithm>
#include <cstddef>
#include <list>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/status/refusal.h"

namespace atl::coordinator {

// Streams of a kind, and of these the ones of one run.
struct StreamBound {
  size_t all = 0;
  size_t a_run = 0;
};

inline absl::Status TooManyStreams(size_t count, absl::string_view run_id) {
  // Callers of a stream that has no room ask again after this time.
  constexpr absl::Duration kRetry = absl::Seconds(5);
  return RefuseForNow(
      absl::StatusCode::kResourceExhausted, "TOO_MANY_STREAMS",
      absl::StrCat("the coordinator serves ", count, " such streams",
                   run_id.empty() ? "" : " of run ", run_id, ", its maximum"),
      kRetry);
}

// Ends the oldest streams with `is_same` until fewer than `count_max` are left.
// A caller may reconnect without having ended its stream, after a broken link or
// with bad intent. It must not take the streams of others.
template <typename Stream, typename IsSame>
void MakeRoom(std::list<Stream>& streams, size_t count_max, IsSame is_same) {
  auto count = static_cast<size_t>(
      std::count_if(streams.begin(), streams.end(), is_same));
  streams.remove_if([&](const Stream& stream) {
    if (count < count_max || !is_same(stream)) return false;
    stream.sink->End(Refuse(absl::StatusCode::kUnavailable, "REPLACED",
                            "newer streams of the same caller replaced it"));
    --count;
    return true;
  });
}

// OK if there may be one more stream.
//
// RESOURCE_EXHAUSTED, TOO_MANY_STREAMS: a bound is reached.
inline absl::Status CheckRoom(const StreamBound& bound, size_t all_count,
                              size_t run_count, const std::string& run_id) {
  if (all_count >= bound.all) return TooManyStreams(bound.all, "");
  return run_count < bound.a_run ? absl::OkStatus()
                                 : TooManyStreams(bound.a_run, run_id);
}

}  // namespace atl::coordinator
