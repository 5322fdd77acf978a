#include "server/store/records/record_frame.h"

#include <algorithm>
#include <cstring>

#include "base/codec/crc32c.h"

namespace atl::server {
namespace {

using Kind = RecordBatch::Change::Kind;

constexpr uint32_t kMagic = 0x4c525441;  // "ATRL".

// magic u32, payload length u32, crc u32, flags u32, seq u64, synced_seq u64,
// file_id u64. The CRC covers all but magic and itself.
constexpr size_t kLengthAt = 4;
constexpr size_t kCrcAt = 8;
constexpr size_t kFlagsAt = 12;
constexpr size_t kSeqAt = 16;
constexpr size_t kSyncedAt = 24;
constexpr size_t kFileIdAt = 32;

constexpr size_t kAlignment = 8;

template <typename T>
void PutNumber(T value, char* out) {
  std::memcpy(out, &value, sizeof(value));  // Little-endian machines only.
}

template <typename T>
T GetNumber(const char* in) {
  T value;
  std::memcpy(&value, in, sizeof(value));
  return value;
}

uint32_t FrameCrc(absl::string_view frame, uint32_t length) {
  return codec::ExtendCrc32c(
      codec::Crc32c(frame.substr(kLengthAt, kCrcAt - kLengthAt)),
      frame.substr(kFlagsAt, RecordFrame::kHeaderBytes - kFlagsAt + length));
}

void AppendText(absl::string_view text, std::string* out) {
  const uint32_t length = static_cast<uint32_t>(text.size());
  out->append(reinterpret_cast<const char*>(&length), sizeof(length));
  out->append(text.data(), text.size());
}

bool TakeText(absl::string_view* bytes, absl::string_view* text) {
  if (bytes->size() < sizeof(uint32_t)) return false;
  const uint32_t length = GetNumber<uint32_t>(bytes->data());
  bytes->remove_prefix(sizeof(uint32_t));
  if (bytes->size() < length) return false;
  *text = bytes->substr(0, length);
  bytes->remove_prefix(length);
  return true;
}

}  // namespace

int64_t RecordFrame::byte_count() const {
  const size_t bytes = kHeaderBytes + payload.size();
  return static_cast<int64_t>((bytes + kAlignment - 1) / kAlignment *
                              kAlignment);
}

std::string EncodeFrame(const RecordFrame& frame) {
  std::string bytes(frame.byte_count(), '\0');
  const uint32_t length = static_cast<uint32_t>(frame.payload.size());
  PutNumber(kMagic, bytes.data());
  PutNumber(length, bytes.data() + kLengthAt);
  PutNumber(frame.flags, bytes.data() + kFlagsAt);
  PutNumber(frame.seq, bytes.data() + kSeqAt);
  PutNumber(frame.synced_seq, bytes.data() + kSyncedAt);
  PutNumber(frame.file_id, bytes.data() + kFileIdAt);
  if (length > 0) {
    std::memcpy(bytes.data() + RecordFrame::kHeaderBytes, frame.payload.data(),
                length);
  }
  PutNumber(FrameCrc(bytes, length), bytes.data() + kCrcAt);
  return bytes;
}

std::optional<RecordFrame> ParseFrame(absl::string_view bytes) {
  if (bytes.size() < RecordFrame::kHeaderBytes ||
      GetNumber<uint32_t>(bytes.data()) != kMagic) {
    return std::nullopt;
  }
  const uint32_t length = GetNumber<uint32_t>(bytes.data() + kLengthAt);
  if (length > bytes.size() - RecordFrame::kHeaderBytes ||
      GetNumber<uint32_t>(bytes.data() + kCrcAt) != FrameCrc(bytes, length)) {
    return std::nullopt;
  }
  RecordFrame frame;
  frame.flags = GetNumber<uint32_t>(bytes.data() + kFlagsAt);
  frame.seq = GetNumber<uint64_t>(bytes.data() + kSeqAt);
  frame.synced_seq = GetNumber<uint64_t>(bytes.data() + kSyncedAt);
  frame.file_id = GetNumber<uint64_t>(bytes.data() + kFileIdAt);
  frame.payload = bytes.substr(RecordFrame::kHeaderBytes, length);
  return frame;
}

std::string EncodeBatch(const RecordBatch& batch) {
  std::string payload;
  for (const RecordBatch::Change& change : batch.changes()) {
    payload.push_back(static_cast<char>(change.kind));
    AppendText(change.name, &payload);
    AppendText(change.value, &payload);
  }
  return payload;
}

std::optional<RecordBatch> DecodeBatch(absl::string_view payload) {
  RecordBatch batch;
  while (!payload.empty()) {
    const int kind = payload[0];
    payload.remove_prefix(1);
    absl::string_view name, value;
    if (!TakeText(&payload, &name) || !TakeText(&payload, &value)) {
      return std::nullopt;
    }
    switch (kind) {
      case static_cast<int>(Kind::kPut):
        batch.Put(name, value);
        break;
      case static_cast<int>(Kind::kDelete):
        batch.Delete(name);
        break;
      case static_cast<int>(Kind::kDeletePrefix):
        batch.DeletePrefix(name);
        break;
      default:
        return std::nullopt;
    }
  }
  return batch;
}

LogScan ScanLog(absl::string_view bytes) {
  LogScan scan;
  while (true) {
    const absl::string_view rest = bytes.substr(scan.end);
    const std::optional<RecordFrame> frame = ParseFrame(rest);
    if (!frame) break;
    if (!scan.frames.empty() && (frame->seq != scan.last_seq() + 1 ||
                                 frame->file_id != scan.frames[0].file_id)) {
      break;
    }
    // The snapshot is at the beginning of the file.
    if (!scan.has_snapshot && !(frame->flags & RecordFrame::kSnapshot)) break;
    scan.has_snapshot |= (frame->flags & RecordFrame::kSnapshotEnd) != 0;
    scan.synced_seq = std::max(scan.synced_seq, frame->synced_seq);
    scan.frames.push_back(*frame);
    scan.end = std::min<int64_t>(scan.end + frame->byte_count(), bytes.size());
  }
  const absl::string_view tail = bytes.substr(scan.end);
  scan.has_tail = tail.find_first_not_of('\0') != absl::string_view::npos;
  if (!scan.has_tail) return scan;
  for (size_t at = 0; at + RecordFrame::kHeaderBytes <= tail.size();) {
    const std::optional<RecordFrame> frame = ParseFrame(tail.substr(at));
    if (frame && (scan.frames.empty() ||
                  frame->file_id == scan.frames[0].file_id)) {
      scan.synced_seq = std::max(scan.synced_seq, frame->synced_seq);
      at += static_cast<size_t>(frame->byte_count());
    } else {
      at += kAlignment;
    }
  }
  return scan;
}

}  // namespace atl::server
