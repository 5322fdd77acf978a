// The frames of a log of records (server/store/DESIGN.md, Records): how a batch
// becomes a frame, and what the bytes of a log file contain. Pure. Thread-safe.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/store/records/record_store.h"

namespace atl::server {

// Frames begin at multiples of 8 bytes of their file.
struct RecordFrame {
  static constexpr int64_t kHeaderBytes = 40;
  static constexpr int64_t kPayloadBytesMax = int64_t{1} << 30;
  // Bits of `flags`.
  static constexpr uint32_t kSnapshot = 1;     // Of the records when the file
                                               // was made.
  static constexpr uint32_t kSnapshotEnd = 2;  // The last one of the snapshot.

  uint32_t flags = 0;
  // Grows by one with every frame of a store, also from file to file.
  uint64_t seq = 0;
  // The newest frame that was known to be synced when this one was written.
  uint64_t synced_seq = 0;
  // Random, one for each file, so that no frame of an earlier file parses.
  uint64_t file_id = 0;
  absl::string_view payload;

  // Bytes in the file, with padding.
  int64_t byte_count() const;
};

// Requires: the payload has at most kPayloadBytesMax bytes.
std::string EncodeFrame(const RecordFrame& frame);
// The frame at the beginning of `bytes`, into which its payload points; none if
// a checksum does not match.
std::optional<RecordFrame> ParseFrame(absl::string_view bytes);

// A frame's payload.
std::string EncodeBatch(const RecordBatch& batch);
std::optional<RecordBatch> DecodeBatch(absl::string_view payload);

// The contents of a log file.
struct LogScan {
  // Whole frames in their order, from the first on. They point into the bytes.
  std::vector<RecordFrame> frames;
  // Bytes that they take.
  int64_t end = 0;
  // Bytes behind `end` are not zero.
  bool has_tail = false;
  // The frames include a whole snapshot.
  bool has_snapshot = false;
  // Largest synced_seq of the frames, and of those behind damaged bytes.
  uint64_t synced_seq = 0;

  // The last frame's sequence number; 0 without frames.
  uint64_t last_seq() const { return frames.empty() ? 0 : frames.back().seq; }
};

LogScan ScanLog(absl::string_view bytes);

}  // namespace atl::server
