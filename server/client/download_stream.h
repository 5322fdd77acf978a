// One stream that pulls a shard's blocks: PullParameters. A large part is cut
// into stripes, each with a stream of its own.
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

#include "absl/base/thread_annotations.h"
#include "absl/types/span.h"
#include "atoll/v1/parameter_service.pb.h"
#include "base/layout/digest.h"
#include "base/layout/layout.h"
#include "base/rpc/chunk_sizer.h"
#include "base/sync/mutex.h"
#include "grpcpp/channel.h"
#include "server/client/pacer.h"
#include "server/client/shard_driver.h"

namespace atl::server {

// What the stripes of a shard's part add up to. Thread-safe.
class DownloadTotal {
 public:
  // Of a part that is all of its shard's, or not.
  DownloadTotal(int stripe_count, bool is_shard)
      : is_shard_(is_shard), left_count_(stripe_count) {}

  // A stripe has come whose blocks sum to `digest`, and the server says that
  // the shard's do to `expected`. False if it was the last one, the part is all
  // of the shard's, and they do not: then the part is expected anew, in one
  // stripe.
  bool Add(const Digest128& digest, const Digest128& expected);
  // Of the part, once all of it has come.
  Digest128 digest() const;
  // What the server said last.
  Digest128 expected() const;

 private:
  const bool is_shard_;
  mutable Mutex mutex_;
  int left_count_ ABSL_GUARDED_BY(mutex_);
  Digest128 digest_ ABSL_GUARDED_BY(mutex_);
  Digest128 expected_ ABSL_GUARDED_BY(mutex_);
};

// What of one stripe has come; kept from stream to stream.
struct Download {
  int32_t fragment = 0;
  int64_t version = 0;
  IndexRange part;    // What is wanted of the shard's blocks.
  bool is_shard = true;  // It is all of them.
  IndexRange blocks;  // The stripe's; not empty.
  DownloadTotal* total = nullptr;  // Of the part.
  const RunLayout* layout = nullptr;
  // The fragment from element `out_begin` on, as far as `part` reaches at least.
  absl::Span<float> out;
  int64_t out_begin = 0;
  std::string peer;       // For messages.
  bool is_replica = false;  // V is asked for, not theta.
  // Of a view: the version that `out` holds from next_block on; -1: none.
  int64_t from_version = -1;
  Pacer* pacer = nullptr;    // Of all downloads.
  // Of the stripe, kept from stream to stream: what the server is asked to
  // begin with.
  rpc::ChunkSizer* sizer = nullptr;
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
  // Forgets what has come of the whole part, and what was there before.
  void StartOver() {
    from_version = -1;
    blocks = part;
    Begin();
  }
};

// `request` has all but the range. `download` and `events` must outlive the
// stream. The one that brings the last of a part ends with DATA_LOSS if the
// part's digest is not the header's; then `download` has started over, and is
// all of it.
std::unique_ptr<BulkStream> MakeDownloadStream(
    const std::shared_ptr<grpc::Channel>& channel, const std::string& session,
    v1::PullParametersRequest request, Download& download,
    StreamEvents& events);

}  // namespace atl::server

#endif  // SERVER_CLIENT_DOWNLOAD_STREAM_H_
