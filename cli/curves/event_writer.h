// Writes curves as a TensorBoard event file.
// Thread-compatible.
//
// A directory has the events of one run, in one file:
//   events.out.tfevents.SECONDS.HOST.RUN_UID.atoll
// A point that the file has is not written again, so a run can be written to
// the same directory several times.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/io/file_system.h"
#include "cli/curves/curve_file.h"
#include "cli/curves/event_records.h"

namespace atl::cli {

class EventWriter {
 public:
  struct Options {
    std::string directory;  // Created if necessary.
    std::string run_uid;
    std::string host;  // This machine's name.
    absl::Time now;
  };

  // Continues the run's file in the directory, or makes it. A record that is
  // torn is cut off. `file_system` outlives this.
  //
  // FAILED_PRECONDITION: the directory has the events of another run, or
  // another process writes the file. Others: as the file system's.
  static absl::StatusOr<std::unique_ptr<EventWriter>> Open(
      FileSystem& file_system, const Options& options);

  const std::string& path() const { return file_->path(); }

  // Writes, with one write, the points whose tag has no point at that step.
  // Errors as the file system's.
  absl::Status Add(absl::Span<const CurvePoint> points);

 private:
  explicit EventWriter(std::unique_ptr<CurveFile> file)
      : file_(std::move(file)) {}

  absl::Status ReadWhatIsThere(absl::Time now);

  const std::unique_ptr<CurveFile> file_;
  std::map<std::string, std::set<int64_t>> steps_;  // In the file, by tag.
};

}  // namespace atl::cli
