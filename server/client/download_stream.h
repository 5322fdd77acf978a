// One stream that pulls a shard's blocks: PullParameters.
//
//   client: request           server: header, chunks in order, OK
//
// Of a view the chunks may be those of a chain: then each group of blocks comes
// once a version, and is decoded onto what the caller holds.

#ifndef SERVER_CLIENT_DOWNLOAD_STREAM_H_
#define SERVER_CLIENT_DOWNLOAD_STREAM_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "atoll/v1/parameter_service.pb.h"
#include "base/layout/digest.h"
#include "base/layout/layout.h"
#include "grpcpp/channel.h"
#include "server/client/pacer.h"
#include "server/client/shard_driver.h"

namespace atl::server {

// What of a shard's part has come; kept from stream to stream.
struct Download {
  int32_t fragment = 0;
  int64_t version = 0;
  IndexRange blocks;  // The shard's; not empty.
  const RunLayout* layout = nullptr;
  absl::Span<float> out;  // The whole fragment.
  std::string peer;       // For messages.
  bool is_view = false;   // V is asked for, not theta.
  // Of a view: the version that `out` holds from next_block on; -1: none.
  int64_t from_version = -1;
  Pacer* pacer = nullptr;    // Of all downloads.
  // What the server may send before we ask for it (rpc::ChannelOptions); counts
  // only under a cap.
  int64_t window_bytes = 0;

  int64_t next_block = 0;  // All before it have come; starts at blocks.begin.
  Digest128 digest;        // Of these.

  // Takes nothing to have come. What `out` holds from there on must be what
  // from_version says.
  void Begin() {
    next_block = blocks.begin;
    digest = Digest128();
  }
  // Forgets what has come, and what was there before.
  void StartOver() {
    from_version = -1;
    Begin();
  }
};

// `request` has all but the range. `download` and `events` must outlive the
// stream. Ends with DATA_LOSS if the part's digest is not the header's; then
// `download` has started over.
std::unique_ptr<BulkStream> MakeDownloadStream(
    const std::shared_ptr<grpc::Channel>& channel, const std::string& session,
    v1::PullParametersRequest request, Download& download,
    StreamEvents& events);

}  // namespace atl::server

#endif  // SERVER_CLIENT_DOWNLOAD_STREAM_H_
