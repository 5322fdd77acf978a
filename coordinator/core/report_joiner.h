// Joins the parts of a large shard report. Pure. Thread-compatible.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "atoll/v1/server_service.pb.h"

namespace atl::coordinator {

// Memory limit for one server's incomplete report. 2 bytes of a message may
// take 100 bytes of memory. The largest report of an accepted run is below the
// limit (coordinator/BOUNDS.md).
inline constexpr size_t kReportBytesMax = size_t{256} << 20;

// For one server, which sends its parts in order.
class ReportJoiner {
 public:
  // Returns the report if `part` completes it, and then keeps nothing. Returns
  // nullopt if parts are missing. Drops the incomplete report if `part` does
  // not follow or exceeds the limit; the server's next report repeats it.
  std::optional<v1::ShardReport> Add(int64_t report_seq, v1::ShardReport part);

  // Memory of the incomplete report, in bytes.
  size_t MemoryBytes() const { return report_.SpaceUsedLong(); }

 private:
  void Forget();

  int64_t report_seq_ = 0;
  int32_t part_count_ = 0;  // Parts received.
  size_t byte_count_ = 0;   // Memory of the parts.
  v1::ShardReport report_;  // The parts joined so far.
};

}  // namespace atl::coordinator
