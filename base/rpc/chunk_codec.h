// Chunks on the wire without a copy.
//
// PushOuterGradientRequest, ImportParametersRequest, PullParametersResponse and
// PullKeptResponse have one shape: a oneof of a header (field 1) and a Chunk
// (field 15). A chunk is at most 1 MiB of payload behind some forty bytes. To
// parse it as protobuf copies the payload; here the few bytes before it are read
// and written by hand, and the payload stays where it lies: borrowed memory on
// its way out, gRPC's slices on its way in.
//
// The bytes are exactly protobuf's. Where the payload would be copied slowly
// (DESIGN.md, "Chunks"), the field `padding` is among them. What the fast
// reader does not expect (unknown fields, a header, anything odd) goes to the
// protobuf library, so that both accept the same messages with the same
// meaning.
//
// Pure. Thread-safe but for the objects named thread-compatible.

#ifndef BASE_RPC_CHUNK_CODEC_H_
#define BASE_RPC_CHUNK_CODEC_H_

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

// The fields of a v1::Chunk but for its payload.
struct ChunkHeader {
  bool has_key = false;   // False in a pull: the four numbers are 0.
  int64_t run_epoch = 0;  // Chunk.key
  int32_t fragment = 0;   // Chunk.key
  int32_t slot = 0;       // Chunk.key
  int64_t seq = 0;        // Chunk.key
  int32_t codec = 0;      // A v1::Codec, or a number that is none.
  int64_t first_block = 0;
  int32_t block_count = 0;
  uint32_t crc32c = 0;

  friend bool operator==(const ChunkHeader&, const ChunkHeader&) = default;
};

// A chunk that was received. Move-only: the pieces point into the slices.
// Thread-compatible.
struct ReceivedChunk {
  ChunkHeader header;
  std::vector<absl::string_view> payload;  // In order; their concatenation.
  size_t payload_bytes = 0;                // Of all pieces.
  std::vector<grpc::Slice> slices;         // What the pieces point into.

  ReceivedChunk() = default;
  ReceivedChunk(ReceivedChunk&&) = default;
  ReceivedChunk& operator=(ReceivedChunk&&) = default;
  ReceivedChunk(const ReceivedChunk&) = delete;
  ReceivedChunk& operator=(const ReceivedChunk&) = delete;

  // Copies the payload to `out`, which has room for payload_bytes.
  void CopyPayload(char* out) const;
};

// Reads a chunk's payload from the front. The chunk's pieces must outlive it and
// its copies.
class PayloadReader {
 public:
  explicit PayloadReader(const ReceivedChunk& chunk)
      : payload_(&chunk.payload) {}

  // Copies the next `size` bytes to `out`. Requires: there are so many left.
  void Read(size_t size, char* out);
  // The next `size` bytes: where they lie, or, if they are in several pieces,
  // copied to `room`.
  absl::string_view Next(size_t size, char* room);
  // Lists where they lie.
  void Take(size_t size, std::vector<absl::string_view>* pieces);
  // Moves past them.
  void Skip(size_t size);

 private:
  const std::vector<absl::string_view>* payload_;
  size_t piece_ = 0;   // Of the next byte.
  size_t offset_ = 0;  // In it.
};

// The checksum of a chunk: CRC-32C over run_epoch, fragment, slot, seq, codec,
// first_block and block_count as little-endian int64 (header.crc32c is not
// read), then over the payload.
uint32_t ChunkCrc32c(const ChunkHeader& header,
                     absl::Span<const absl::string_view> payload);

// OK if the chunk's checksum is right.
//
// DATA_LOSS: it is not.
absl::Status CheckCrc32c(const ReceivedChunk& chunk);

// One message with a chunk; field 15 of any of the four. The payload's bytes
// are not copied: the slice keeps, or borrows, them. It has padding, 256 bytes
// at most, if the payload lies where the kernel would copy it slowly.
grpc::ByteBuffer EncodeChunk(const ChunkHeader& header, grpc::Slice payload);

// `payload` as a slice that borrows it. `released(argument)` is called once
// when gRPC lets go of it, from any thread, perhaps after the call has ended.
grpc::Slice BorrowSlice(absl::string_view payload, void (*released)(void*),
                        void* argument);

// Any message, by the protobuf library.
grpc::ByteBuffer EncodeMessage(const google::protobuf::MessageLite& message);

// False if the bytes are no such message.
bool DecodeMessage(const grpc::ByteBuffer& bytes,
                   google::protobuf::MessageLite* message);

// Reads `bytes` as a message that holds one chunk and nothing else. False, with
// `chunk` in any valid state, if it is not: then DecodeMessage decides.
bool DecodePlainChunk(const grpc::ByteBuffer& bytes, ReceivedChunk* chunk);

// A v1::Chunk as a received one: copies the payload once.
ReceivedChunk FromProto(const v1::Chunk& chunk);

// A bulk message that was received; `Message` is one of the four.
template <typename Message>
struct BulkMessage {
  // True: `chunk` holds it. False: `message` does, with a header or with
  // nothing set.
  bool is_chunk = false;
  ReceivedChunk chunk;
  Message message;
};

// Reads any bytes.
//
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

#endif  // BASE_RPC_CHUNK_CODEC_H_
