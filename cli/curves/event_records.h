// The bytes of a TensorBoard event file: TFRecords, each an Event. Pure.
//
// A record is (TensorFlow, core/lib/io/record_writer.h), little-endian:
//   length         u64, bytes of the event
//   length_crc     u32, masked CRC-32C of the 8 bytes of the length
//   event
//   event_crc      u32, masked CRC-32C of the event
// A masked CRC is the CRC rotated right by 15 bits, plus 0xa282ead8.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "cli/curves/tensorboard_event.pb.h"

namespace atl::cli {

struct CurvePoint {
  std::string tag;
  int64_t step = 0;
  absl::Time time;
  double value = 0;
};

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

}  // namespace atl::cli
