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
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/io/file_system.h"
#include "cli/curves/curve_file.h"
#include "cli/curves/tensorboard_event.pb.h"

namespace atl::cli {

struct CurvePoint {
  std::string tag;
  int64_t step = 0;
  absl::Time time;
  double value = 0;
};

// The bytes of a TensorBoard event file: TFRecords, each an Event. Pure.
//
// A record is (TensorFlow, core/lib/io/record_writer.h), little-endian:
//   length         u64, bytes of the event
//   length_crc     u32, masked CRC-32C of the 8 bytes of the length
//   event
//   event_crc      u32, masked CRC-32C of the event
// A masked CRC is the CRC rotated right by 15 bits, plus 0xa282ead8.

// The first record of every event file.
std::string EventFileHeader(absl::Time time);

std::string EncodePoint(const CurvePoint& point);

std::string EncodeRecord(const curves::Event& event);

struct EventRecords {
  std::vector<curves::Event> events;
  // Bytes of the whole records at the front. The rest is torn or damaged.
  int64_t size_bytes = 0;
};

EventRecords ReadEventRecords(absl::string_view bytes);

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
