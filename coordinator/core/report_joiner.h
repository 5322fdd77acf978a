// Puts together the report of a shard that is more than a message takes.
//
// Pure. Thread-compatible.

#ifndef COORDINATOR_CORE_REPORT_JOINER_H_
#define COORDINATOR_CORE_REPORT_JOINER_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "atoll/v1/server_service.pb.h"

namespace atl::coordinator {

// What a server's parts may take here, in memory, before the last is there: 2
// bytes of a message may be 100 of it. The largest report of a run that is
// taken is below it (DESIGN.md, "Bounds").
inline constexpr size_t kReportBytesMax = size_t{256} << 20;

// Of one server, whose parts come one after the other.
class ReportJoiner {
 public:
  // The report, if `part` is its last part or all of it: nothing of it stays
  // here. None if more has to come, or if `part` does not follow what came
  // before: then that is given up, and the server's next report says it again.
  std::optional<v1::ShardReport> Add(int64_t report_seq,
                                     const v1::ShardReport& part);

  // What the parts that wait for the rest of their report take of memory.
  size_t MemoryBytes() const { return report_.SpaceUsedLong(); }

 private:
  void Forget();

  int64_t report_seq_ = 0;
  int32_t part_count_ = 0;  // That have come.
  size_t byte_count_ = 0;   // Of them, in memory.
  v1::ShardReport report_;  // As far as it has come.
};

}  // namespace atl::coordinator

#endif  // COORDINATOR_CORE_REPORT_JOINER_H_
