#include "base/rpc/chunk_codec.h"

#include <algorithm>
#include <cstring>

#include "base/codec/crc32c.h"
#include "grpcpp/support/proto_buffer_reader.h"

namespace atl::rpc {
namespace {

// Tags: field number * 8 + wire type.
constexpr uint8_t kOuterChunkTag = 15 << 3 | 2;
constexpr uint8_t kKeyTag = 1 << 3 | 2;
constexpr uint8_t kCodecTag = 2 << 3;
constexpr uint8_t kFirstBlockTag = 3 << 3;
constexpr uint8_t kBlockCountTag = 4 << 3;
constexpr uint8_t kCrc32cTag = 5 << 3 | 5;
constexpr uint8_t kPaddingTag = 6 << 3 | 2;
constexpr uint8_t kPayloadTag = 15 << 3 | 2;
constexpr uint8_t kRunEpochTag = 1 << 3;
constexpr uint8_t kFragmentTag = 2 << 3;
constexpr uint8_t kSlotTag = 3 << 3;
constexpr uint8_t kSeqTag = 4 << 3;

// Bound of a message's bytes before its payload: two lengths, a key of four
// numbers, three numbers, a checksum, padding and their tags.
constexpr size_t kPrefixBytesMax = 512;

// --- Padding -----------------------------------------------------------------

// A copy of the payload by `rep movsb` is slow if its distance from the
// payload, modulo 4096, is 1 to 31 (base/rpc/DESIGN.md, Chunks). It often
// starts a page, so the distance depends on the bytes before the payload.
constexpr size_t kPageBytes = 4096;
// The header of an HTTP/2 frame, and gRPC's header of a message.
constexpr size_t kFrameHeadBytes = 9;
constexpr size_t kMessageHeadBytes = 5;
// If the window splits a message, the headers of further frames move the rest.
constexpr size_t kFurtherFramesMax = 16;
constexpr size_t kDistanceMin = 32;
constexpr size_t kDistanceMax =
    kPageBytes - kFurtherFramesMax * kFrameHeadBytes;
// Smaller payloads are not worth padding.
constexpr size_t kPaddedBytesMin = 4096;

// Bytes of padding with its tag and length: 0 for none, else at least 3,
// because protobuf writes no empty field.
size_t PaddingBytes(size_t prefix_bytes, const grpc::Slice& payload) {
  if (payload.size() < kPaddedBytesMin) return 0;
  const size_t distance =
      (kFrameHeadBytes + kMessageHeadBytes + prefix_bytes -
       reinterpret_cast<uintptr_t>(payload.begin())) % kPageBytes;
  if (distance >= kDistanceMin && distance <= kDistanceMax) return 0;
  return std::max<size_t>(3, (kDistanceMin - distance) % kPageBytes);
}

// --- Writing -----------------------------------------------------------------

// Appends bytes to a buffer of fixed capacity.
class PrefixWriter {
 public:
  void Byte(uint8_t byte) { bytes_[size_++] = byte; }
  void Varint(uint64_t value) {
    while (value >= 0x80) {
      Byte(static_cast<uint8_t>(value) | 0x80);
      value >>= 7;
    }
    Byte(static_cast<uint8_t>(value));
  }
  // As proto3: 0 is omitted; a negative number takes ten bytes.
  void Number(uint8_t tag, int64_t value) {
    if (value == 0) return;
    Byte(tag);
    Varint(static_cast<uint64_t>(value));
  }
  void Fixed32(uint8_t tag, uint32_t value) {
    if (value == 0) return;
    Byte(tag);
    for (int i = 0; i < 4; ++i) Byte(static_cast<uint8_t>(value >> (8 * i)));
  }
  // `size` bytes of padding in total: 0, or at least 3.
  void Padding(size_t size) {
    if (size == 0) return;
    Byte(kPaddingTag);
    // A length of 128 needs two bytes; the extra byte is harmless.
    const size_t length = size - 2;
    Varint(length);
    std::memset(bytes_ + size_, 0, length);
    size_ += length;
  }
  void Bytes(const PrefixWriter& other) {
    std::memcpy(bytes_ + size_, other.bytes_, other.size_);
    size_ += other.size_;
  }
  const uint8_t* data() const { return bytes_; }
  size_t size() const { return size_; }

 private:
  uint8_t bytes_[kPrefixBytesMax];
  size_t size_ = 0;
};

// --- Reading -----------------------------------------------------------------

// Reads slices as one string. After a method returns false the position is
// unspecified; callers stop.
class SliceCursor {
 public:
  explicit SliceCursor(const std::vector<grpc::Slice>& slices)
      : slices_(slices) {
    for (const grpc::Slice& slice : slices) size_ += slice.size();
  }

  size_t position() const { return position_; }
  size_t remaining() const { return size_ - position_; }

  bool Byte(uint8_t* byte) {
    SkipEmptySlices();
    if (index_ >= slices_.size()) return false;
    *byte = slices_[index_].begin()[offset_];
    ++offset_;
    ++position_;
    return true;
  }

  // A varint of at most ten bytes whose value fits 64 bits.
  bool Varint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      uint8_t byte;
      if (!Byte(&byte)) return false;
      if (shift == 63 && byte > 1) return false;
      *value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if ((byte & 0x80) == 0) return true;
    }
    return false;
  }

  bool Fixed32(uint32_t* value) {
    *value = 0;
    for (int i = 0; i < 4; ++i) {
      uint8_t byte;
      if (!Byte(&byte)) return false;
      *value |= static_cast<uint32_t>(byte) << (8 * i);
    }
    return true;
  }

  // Reads a length that does not reach past `end`.
  bool Length(size_t end, size_t* length) {
    uint64_t value;
    if (!Varint(&value) || position_ > end || value > end - position_) {
      return false;
    }
    *length = static_cast<size_t>(value);
    return true;
  }

  // Skips `length` (<= remaining()) bytes, and appends them to `pieces`, in
  // place, unless that is null.
  void Take(size_t length, std::vector<absl::string_view>* pieces) {
    while (length > 0) {
      SkipEmptySlices();
      const grpc::Slice& slice = slices_[index_];
      const size_t count = std::min(length, slice.size() - offset_);
      if (pieces != nullptr) {
        pieces->emplace_back(
            reinterpret_cast<const char*>(slice.begin()) + offset_, count);
      }
      offset_ += count;
      position_ += count;
      length -= count;
    }
  }

 private:
  void SkipEmptySlices() {
    while (index_ < slices_.size() && offset_ == slices_[index_].size()) {
      ++index_;
      offset_ = 0;
    }
  }

  const std::vector<grpc::Slice>& slices_;
  size_t size_ = 0;
  size_t position_ = 0;
  size_t index_ = 0;   // The current slice.
  size_t offset_ = 0;  // Within that slice.
};

// As protobuf: the low 32 bits of the varint.
int32_t ToInt32(uint64_t value) {
  return static_cast<int32_t>(static_cast<uint32_t>(value));
}

bool ReadKey(SliceCursor& cursor, size_t end, ChunkHeader* header) {
  header->has_key = true;
  while (cursor.position() < end) {
    uint8_t tag;
    uint64_t value;
    if (!cursor.Byte(&tag) || !cursor.Varint(&value)) return false;
    switch (tag) {
      case kRunEpochTag:
        header->run_epoch = static_cast<int64_t>(value);
        break;
      case kFragmentTag:
        header->fragment = ToInt32(value);
        break;
      case kSlotTag:
        header->slot = ToInt32(value);
        break;
      case kSeqTag:
        header->seq = static_cast<int64_t>(value);
        break;
      default:
        return false;
    }
  }
  return cursor.position() == end;
}

bool ReadChunk(SliceCursor& cursor, size_t end, ReceivedChunk* chunk) {
  ChunkHeader& header = chunk->header;
  while (cursor.position() < end) {
    uint8_t tag;
    uint64_t value;
    size_t length;
    if (!cursor.Byte(&tag)) return false;
    switch (tag) {
      case kKeyTag:
        if (!cursor.Length(end, &length) ||
            !ReadKey(cursor, cursor.position() + length, &header)) {
          return false;
        }
        break;
      case kCodecTag:
        if (!cursor.Varint(&value)) return false;
        header.codec = ToInt32(value);
        break;
      case kFirstBlockTag:
        if (!cursor.Varint(&value)) return false;
        header.first_block = static_cast<int64_t>(value);
        break;
      case kBlockCountTag:
        if (!cursor.Varint(&value)) return false;
        header.block_count = ToInt32(value);
        break;
      case kCrc32cTag:
        if (!cursor.Fixed32(&header.crc32c)) return false;
        break;
      case kPaddingTag:
        if (!cursor.Length(end, &length)) return false;
        cursor.Take(length, nullptr);
        break;
      case kPayloadTag:
        if (!cursor.Length(end, &length)) return false;
        // If a message has several payloads, the last one counts.
        chunk->payload.clear();
        chunk->payload_bytes = length;
        cursor.Take(length, &chunk->payload);
        break;
      default:
        return false;
    }
  }
  return cursor.position() == end;
}

}  // namespace

void ReceivedChunk::CopyPayload(char* out) const {
  for (const absl::string_view piece : payload) {
    std::memcpy(out, piece.data(), piece.size());
    out += piece.size();
  }
}

void PayloadReader::Read(size_t size, char* out) {
  while (size > 0) {
    const absl::string_view piece = (*payload_)[piece_];
    const size_t count = std::min(size, piece.size() - offset_);
    std::memcpy(out, piece.data() + offset_, count);
    out += count;
    size -= count;
    offset_ += count;
    if (offset_ == piece.size()) {
      ++piece_;
      offset_ = 0;
    }
  }
}

absl::string_view PayloadReader::Next(size_t size, char* room) {
  if (size > 0) {
    const absl::string_view piece = (*payload_)[piece_].substr(offset_);
    if (piece.size() >= size) {
      Skip(size);
      return piece.substr(0, size);
    }
  }
  Read(size, room);
  return absl::string_view(room, size);
}

void PayloadReader::Take(size_t size, std::vector<absl::string_view>* pieces) {
  while (size > 0) {
    const absl::string_view piece =
        (*payload_)[piece_].substr(offset_).substr(0, size);
    pieces->push_back(piece);
    size -= piece.size();
    Skip(piece.size());
  }
}

void PayloadReader::Skip(size_t size) {
  offset_ += size;
  while (piece_ < payload_->size() && offset_ >= (*payload_)[piece_].size()) {
    offset_ -= (*payload_)[piece_].size();
    ++piece_;
  }
}

uint32_t ChunkCrc32c(const ChunkHeader& header,
                     absl::Span<const absl::string_view> payload) {
  const int64_t numbers[] = {
      header.run_epoch, header.fragment,    header.slot,       header.seq,
      header.codec,     header.first_block, header.block_count};
  char bytes[sizeof(numbers)];
  char* out = bytes;
  for (const int64_t number : numbers) {
    for (int i = 0; i < 8; ++i) {
      *out++ = static_cast<char>(static_cast<uint64_t>(number) >> (8 * i));
    }
  }
  uint32_t crc = codec::Crc32c(absl::string_view(bytes, sizeof(bytes)));
  for (const absl::string_view piece : payload) {
    crc = codec::ExtendCrc32c(crc, piece);
  }
  return crc;
}

absl::Status CheckCrc32c(const ReceivedChunk& chunk) {
  if (ChunkCrc32c(chunk.header, chunk.payload) == chunk.header.crc32c) {
    return absl::OkStatus();
  }
  return absl::DataLossError(
      "a chunk's checksum does not match: send it again");
}

grpc::ByteBuffer EncodeChunk(const ChunkHeader& header, grpc::Slice payload) {
  PrefixWriter inner;
  if (header.has_key) {
    PrefixWriter key;
    key.Number(kRunEpochTag, header.run_epoch);
    key.Number(kFragmentTag, header.fragment);
    key.Number(kSlotTag, header.slot);
    key.Number(kSeqTag, header.seq);
    inner.Byte(kKeyTag);
    inner.Varint(key.size());
    inner.Bytes(key);
  }
  inner.Number(kCodecTag, header.codec);
  inner.Number(kFirstBlockTag, header.first_block);
  inner.Number(kBlockCountTag, header.block_count);
  inner.Fixed32(kCrc32cTag, header.crc32c);
  PrefixWriter end;
  if (payload.size() > 0) {
    end.Byte(kPayloadTag);
    end.Varint(payload.size());
  }
  PrefixWriter prefix;
  prefix.Varint(inner.size() + end.size() + payload.size());
  inner.Padding(
      PaddingBytes(1 + prefix.size() + inner.size() + end.size(), payload));
  inner.Bytes(end);
  prefix = PrefixWriter();
  prefix.Byte(kOuterChunkTag);
  prefix.Varint(inner.size() + payload.size());
  prefix.Bytes(inner);
  const grpc::Slice slices[] = {grpc::Slice(prefix.data(), prefix.size()),
                                std::move(payload)};
  return grpc::ByteBuffer(slices, slices[1].size() > 0 ? 2 : 1);
}

grpc::Slice BorrowSlice(absl::string_view payload, void (*released)(void*),
                        void* argument) {
  return grpc::Slice(const_cast<char*>(payload.data()), payload.size(),
                     released, argument);
}

grpc::ByteBuffer EncodeMessage(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

bool DecodeMessage(const grpc::ByteBuffer& bytes,
                   google::protobuf::MessageLite* message) {
  if (!bytes.Valid()) return false;
  grpc::ByteBuffer shared(bytes);
  grpc::ProtoBufferReader reader(&shared);
  return reader.status().ok() && message->ParseFromZeroCopyStream(&reader);
}

bool DecodePlainChunk(const grpc::ByteBuffer& bytes, ReceivedChunk* chunk) {
  *chunk = ReceivedChunk();
  if (!bytes.Valid() || !bytes.Dump(&chunk->slices).ok()) return false;
  SliceCursor cursor(chunk->slices);
  if (cursor.remaining() == 0) return false;
  while (cursor.remaining() > 0) {
    uint8_t tag;
    size_t length;
    if (!cursor.Byte(&tag) || tag != kOuterChunkTag ||
        !cursor.Length(cursor.position() + cursor.remaining(), &length) ||
        !ReadChunk(cursor, cursor.position() + length, chunk)) {
      return false;
    }
  }
  return true;
}

ReceivedChunk FromProto(const v1::Chunk& chunk) {
  ReceivedChunk result;
  result.header.has_key = chunk.has_key();
  result.header.run_epoch = chunk.key().run_epoch();
  result.header.fragment = chunk.key().fragment();
  result.header.slot = chunk.key().slot();
  result.header.seq = chunk.key().seq();
  result.header.codec = static_cast<int32_t>(chunk.codec());
  result.header.first_block = chunk.first_block();
  result.header.block_count = chunk.block_count();
  result.header.crc32c = chunk.crc32c();
  result.payload_bytes = chunk.payload().size();
  if (result.payload_bytes > 0) {
    result.slices.emplace_back(chunk.payload());
    result.payload.emplace_back(
        reinterpret_cast<const char*>(result.slices[0].begin()),
        result.payload_bytes);
  }
  return result;
}

}  // namespace atl::rpc
