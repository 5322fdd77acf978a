#include "cli/curves/event_writer.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "cli/output/error.h"

namespace atl::cli {
namespace {

constexpr absl::string_view kEnding = ".atoll";

// Finds the run's file in the directory; empty if it does not exist.
absl::StatusOr<std::string> FindFile(FileSystem& file_system,
                                     const EventWriter::Options& options) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   file_system.List(options.directory));
  for (const std::string& name : names) {
    if (!absl::EndsWith(name, kEnding)) continue;
    if (absl::EndsWith(name, absl::StrCat(".", options.run_uid, kEnding))) {
      return name;
    }
    return WithHint(WithReason(absl::FailedPreconditionError(absl::StrCat(
                                   options.directory,
                                   " has the events of another run: ", name)),
                               "OTHER_RUN"),
                    "Give a directory for each run.");
  }
  return "";
}

}  // namespace

absl::StatusOr<std::unique_ptr<EventWriter>> EventWriter::Open(
    FileSystem& file_system, const Options& options) {
  RETURN_IF_ERROR(file_system.CreateDirectories(options.directory));
  ASSIGN_OR_RETURN(std::string name, FindFile(file_system, options));
  if (name.empty()) {
    name =
        absl::StrCat("events.out.tfevents.", absl::ToUnixSeconds(options.now),
                     ".", options.host, ".", options.run_uid, kEnding);
  }
  ASSIGN_OR_RETURN(
      std::unique_ptr<CurveFile> file,
      CurveFile::Open(file_system, absl::StrCat(options.directory, "/", name)));
  std::unique_ptr<EventWriter> writer(new EventWriter(std::move(file)));
  RETURN_IF_ERROR(writer->ReadWhatIsThere(options.now));
  return writer;
}

absl::Status EventWriter::ReadWhatIsThere(absl::Time now) {
  ASSIGN_OR_RETURN(const std::string bytes, file_->Read());
  const EventRecords records = ReadEventRecords(bytes);
  if (records.size_bytes < file_->size_bytes()) {
    RETURN_IF_ERROR(file_->Truncate(records.size_bytes));
  }
  for (const curves::Event& event : records.events) {
    for (const curves::SummaryValue& value : event.summary().value()) {
      steps_[value.tag()].insert(event.step());
    }
  }
  return records.events.empty() ? file_->Append(EventFileHeader(now))
                                : absl::OkStatus();
}

absl::Status EventWriter::Add(absl::Span<const CurvePoint> points) {
  std::string bytes;
  for (const CurvePoint& point : points) {
    if (!steps_[point.tag].insert(point.step).second) continue;
    bytes += EncodePoint(point);
  }
  return bytes.empty() ? absl::OkStatus() : file_->Append(bytes);
}

}  // namespace atl::cli
