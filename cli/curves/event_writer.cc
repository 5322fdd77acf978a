#include "cli/curves/event_writer.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/codec/crc32c.h"
#include "base/status/status_macros.h"
#include "cli/output/error.h"

namespace atl::cli {
namespace {

constexpr size_t kHeaderBytes = 12;
constexpr size_t kTrailerBytes = 4;

uint32_t MaskedCrc(absl::string_view bytes) {
  const uint32_t crc = codec::Crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

void AppendLittleEndian(uint64_t value, int byte_count, std::string& out) {
  for (int i = 0; i < byte_count; ++i) {
    out.push_back(static_cast<char>(value >> (8 * i)));
  }
}

uint64_t ReadLittleEndian(absl::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i > 0; --i) {
    value = (value << 8) | static_cast<uint8_t>(bytes[i - 1]);
  }
  return value;
}

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

std::string EncodeRecord(const curves::Event& event) {
  const std::string data = event.SerializeAsString();
  std::string record;
  AppendLittleEndian(data.size(), 8, record);
  AppendLittleEndian(MaskedCrc(record), 4, record);
  record += data;
  AppendLittleEndian(MaskedCrc(data), 4, record);
  return record;
}

std::string EventFileHeader(absl::Time time) {
  curves::Event event;
  event.set_wall_time(absl::ToDoubleSeconds(time - absl::UnixEpoch()));
  event.set_file_version("brain.Event:2");
  return EncodeRecord(event);
}

std::string EncodePoint(const CurvePoint& point) {
  curves::Event event;
  event.set_wall_time(absl::ToDoubleSeconds(point.time - absl::UnixEpoch()));
  event.set_step(point.step);
  curves::SummaryValue& value = *event.mutable_summary()->add_value();
  value.set_tag(point.tag);
  value.set_simple_value(static_cast<float>(point.value));
  return EncodeRecord(event);
}

EventRecords ReadEventRecords(absl::string_view bytes) {
  EventRecords records;
  for (;;) {
    const absl::string_view rest =
        bytes.substr(static_cast<size_t>(records.size_bytes));
    if (rest.size() < kHeaderBytes + kTrailerBytes) return records;
    const uint64_t size = ReadLittleEndian(rest.substr(0, 8));
    if (ReadLittleEndian(rest.substr(8, 4)) != MaskedCrc(rest.substr(0, 8)) ||
        size > rest.size() - kHeaderBytes - kTrailerBytes) {
      return records;
    }
    const absl::string_view data = rest.substr(kHeaderBytes, size);
    const absl::string_view crc = rest.substr(kHeaderBytes + size, 4);
    curves::Event event;
    if (ReadLittleEndian(crc) != MaskedCrc(data) ||
        !event.ParseFromArray(data.data(), static_cast<int>(data.size()))) {
      return records;
    }
    records.events.push_back(std::move(event));
    records.size_bytes +=
        static_cast<int64_t>(kHeaderBytes + size + kTrailerBytes);
  }
}

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
