// Reads and writes chunks on the wire without copying the payload.
//
// PushOuterGradientRequest, ImportParametersRequest, PullParametersResponse and
// PullKeptResponse have one shape: a oneof of a header (field 1) and a Chunk
// (field 15). A chunk is at most 1 MiB of payload after some forty bytes.
// Parsing it as protobuf copies the payload. Here those few bytes are read and
// written by hand. The payload stays in place: in borrowed memory when sent, in
// gRPC's slices when received.
//
// The bytes are exactly protobuf's. They include the field `padding` if the
// payload would otherwise be copied slowly (base/rpc/DESIGN.md, Chunks).
// Messages that the fast reader does not expect (unknown fields, a header,
// anything unusual) go to the protobuf library. So both accept the same
// messages with the same meaning.
//
// Pure. Thread-safe, except for objects marked thread-compatible.

#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "atoll/v1/parameter_service.pb.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"

namespace atl::rpc {

// The fields of a v1::Chunk except its payload.
struct ChunkHeader {
  bool has_key = false;   // False in a pull: the four key fields are 0.
  int64_t run_epoch = 0;  // Chunk.key
  int32_t fragment = 0;   // Chunk.key
  int32_t slot = 0;       // Chunk.key
  int64_t seq = 0;        // Chunk.key
  int32_t codec = 0;      // A v1::Codec number, maybe an unknown one.
  int64_t first_block = 0;
  int32_t block_count = 0;
  uint32_t crc32c = 0;

  friend bool operator==(const ChunkHeader&, const ChunkHeader&) = default;
};

// A received chunk. Move-only, because the pieces point into the slices.
// Thread-compatible.
struct ReceivedChunk {
  ChunkHeader header;
  std::vector<absl::string_view> payload;  // The payload's pieces, in order.
  size_t payload_bytes = 0;                // Sum over the pieces.
  std::vector<grpc::Slice> slices;         // Own the memory of the pieces.

  ReceivedChunk() = default;
  ReceivedChunk(ReceivedChunk&&) = default;
  ReceivedChunk& operator=(ReceivedChunk&&) = default;
  ReceivedChunk(const ReceivedChunk&) = delete;
  ReceivedChunk& operator=(const ReceivedChunk&) = delete;

  // Copies the payload to `out`, of payload_bytes bytes.
  void CopyPayload(char* out) const;
};

// Reads a chunk's payload from the front. The chunk must outlive this and its
// copies. Every method requires: `size` bytes are left.
class PayloadReader {
 public:
  explicit PayloadReader(const ReceivedChunk& chunk)
      : payload_(&chunk.payload) {}

  // Copies the next `size` bytes to `out`.
  void Read(size_t size, char* out);
  // Returns the next `size` bytes in place if they are in one piece, else
  // copied to `room`.
  absl::string_view Next(size_t size, char* room);
  // Appends the next `size` bytes to `pieces`, in place.
  void Take(size_t size, std::vector<absl::string_view>* pieces);
  void Skip(size_t size);

 private:
  const std::vector<absl::string_view>* payload_;
  size_t piece_ = 0;   // The piece of the next byte.
  size_t offset_ = 0;  // Within that piece.
};

// The checksum of a chunk: CRC-32C over run_epoch, fragment, slot, seq, codec,
// first_block and block_count as little-endian int64 (header.crc32c is not
// read), then over the payload.
uint32_t ChunkCrc32c(const ChunkHeader& header,
                     absl::Span<const absl::string_view> payload);

// DATA_LOSS: the chunk's checksum does not match.
absl::Status CheckCrc32c(const ReceivedChunk& chunk);

// Encodes one message with a chunk, field 15 in all four types. The slice keeps
// or borrows the payload, which is not copied. Adds padding, at most 256 bytes,
// if the kernel would copy the payload slowly.
grpc::ByteBuffer EncodeChunk(const ChunkHeader& header, grpc::Slice payload);

// Wraps `payload` in a slice that borrows it. gRPC calls `released(argument)`
// once when it drops the slice: from any thread, perhaps after the call has
// ended.
grpc::Slice BorrowSlice(absl::string_view payload, void (*released)(void*),
                        void* argument);

grpc::ByteBuffer EncodeMessage(const google::protobuf::MessageLite& message);

// False if `bytes` are not a message of this type.
bool DecodeMessage(const grpc::ByteBuffer& bytes,
                   google::protobuf::MessageLite* message);

// Reads `bytes` as a message with one chunk and nothing else. If it is not,
// returns false with `chunk` in any valid state; call DecodeMessage then.
bool DecodePlainChunk(const grpc::ByteBuffer& bytes, ReceivedChunk* chunk);

// Converts a v1::Chunk; copies the payload once.
ReceivedChunk FromProto(const v1::Chunk& chunk);

// A received bulk message; `Message` is one of the four.
template <typename Message>
struct BulkMessage {
  // True: `chunk` is set. False: `message` is, with a header or with nothing.
  bool is_chunk = false;
  ReceivedChunk chunk;
  Message message;
};

// Decodes any bytes.
// INVALID_ARGUMENT: they are not a `Message`.
template <typename Message>
absl::StatusOr<BulkMessage<Message>> DecodeBulk(const grpc::ByteBuffer& bytes) {
  BulkMessage<Message> result;
  if (DecodePlainChunk(bytes, &result.chunk)) {
    result.is_chunk = true;
    return result;
  }
  result.chunk = ReceivedChunk();
  if (!DecodeMessage(bytes, &result.message)) {
    return absl::InvalidArgumentError("a message that cannot be parsed");
  }
  if (result.message.has_chunk()) {
    result.is_chunk = true;
    result.chunk = FromProto(result.message.chunk());
    result.message.Clear();
  }
  return result;
}

}  // namespace atl::rpc
