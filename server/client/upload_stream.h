// One stream that pushes a shard's blocks (PushOuterGradient,
// ImportParameters). Several may push one part; their ledger assigns the
// blocks.
//
//   client: header            server: missing ranges, or stored
//   client: chunks, close     server: stored, OK

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "base/codec/block_grid.h"
#include "base/layout/encoded_layout.h"
#include "base/layout/layout.h"
#include "base/rpc/chunk_codec.h"
#include "base/rpc/chunk_sizer.h"
#include "grpcpp/channel.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/client/borrow_tracker.h"
#include "server/client/pacer.h"
#include "server/client/shard_driver.h"
#include "server/client/upload_ledger.h"

namespace atl::server {

struct Upload {
  std::string method;       // "/atoll.v1.ParameterService/..."
  std::string session;      // Hex; empty for none.
  std::string peer;         // For messages.
  grpc::ByteBuffer header;  // The first message.
  // The key and codec of every chunk; its fragment is that of the upload.
  rpc::ChunkHeader chunk;
  IndexRange blocks;  // The shard's; not empty.
  const EncodedLayout* layout = nullptr;
  absl::Span<const char> encoded;  // All of `layout`, of all shards.
  BorrowTracker* tracker = nullptr;
  Pacer* pacer = nullptr;            // Shared by all uploads.
  rpc::ChunkSizer* sizer = nullptr;  // Kept from stream to stream.
  UploadLedger* ledger = nullptr;    // The part's.
  int index = 0;                     // Among the part's streams.
  // Due chunks are sent before the shard's first answer.
  bool at_once = false;
  int64_t chunk_bytes_max = codec::kChunkPayloadBytesMax;
};

// `upload`'s pointers and `events` must outlive the stream.
std::unique_ptr<BulkStream> MakeUploadStream(
    const std::shared_ptr<grpc::Channel>& channel, Upload upload,
    StreamEvents& events);

}  // namespace atl::server
