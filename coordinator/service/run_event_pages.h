// The encoded events of one run, read from its log once for all WatchRun
// streams of the run.
//
// Streams that keep up ask for the same page after each change. The newest
// pages are kept, and their bytes are shared. A stream that is further behind
// gets pages of its own.
//
// Thread-safe.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/sync/mutex.h"
#include "coordinator/store/store.h"
#include "grpcpp/support/byte_buffer.h"

namespace atl::coordinator {

// The names of a run's islands, by slot.
using IslandNames = std::shared_ptr<const std::vector<std::string>>;

struct RunEventPage {
  int64_t begin = 0;        // Its records follow this revision,
  int64_t end = 0;          // up to and with this one.
  bool has_events = false;  // Some records make no event.
  grpc::ByteBuffer bytes;   // A v1::WatchRunResponse.
  IslandNames names_before, names_after;
};

class RunEventPages {
 public:
  static constexpr size_t kPagesMax = 16;
  static constexpr size_t kBytesMax = 4 << 20;

  // `store` must outlive it.
  RunEventPages(const Store& store, std::string run_id)
      : store_(store), run_id_(std::move(run_id)) {}

  // The events of the next records after revision `after`, of those up to
  // `durable`, which is greater. `names` are as of `after`; not null.
  //
  // OUT_OF_RANGE, REVISION_COMPACTED: the log begins later.
  // UNAVAILABLE: the log ends before. Also the errors of the store.
  absl::StatusOr<std::shared_ptr<const RunEventPage>> Read(
      int64_t after, int64_t durable, const IslandNames& names);

  // How often the log was read.
  int64_t read_count() const;

 private:
  absl::StatusOr<RunEventPage> ReadLog(int64_t after, int64_t durable,
                                       const IslandNames& names) const;

  const Store& store_;
  const std::string run_id_;

  mutable Mutex mutex_;
  // Newest last.
  std::deque<std::shared_ptr<const RunEventPage>> pages_
      ABSL_GUARDED_BY(mutex_);
  size_t byte_count_ ABSL_GUARDED_BY(mutex_) = 0;  // In pages_.
  int64_t read_count_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace atl::coordinator
