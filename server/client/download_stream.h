// One stream that pulls a shard's blocks (PullParameters). A large part is cut
// into stripes, each with its own stream.
//
//   client: request           server: header, chunks in order, OK
//
// Chunks of a replica may be a chain of deltas. Each group of blocks then comes
// once a version, and is added to what the caller holds.

#pragma once

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

// The sums over the stripes of a part. Thread-safe.
class DownloadTotal {
 public:
  // `is_shard`: the part is all of its shard's blocks.
  DownloadTotal(int stripe_count, bool is_shard)
      : is_shard_(is_shard), left_count_(stripe_count) {}

  // Adds a complete stripe: its blocks' digest, and the shard's as sent by the
  // server. False if the last stripe of a whole shard completes a wrong sum:
  // then the part must come again, in one stripe.
  bool Add(const Digest128& digest, const Digest128& expected);
  // The part's digest, once it is complete.
  Digest128 digest() const;
  // The shard's digest as the server last sent it.
  Digest128 expected() const;

 private:
  const bool is_shard_;
  mutable Mutex mutex_;
  int left_count_ ABSL_GUARDED_BY(mutex_);
  Digest128 digest_ ABSL_GUARDED_BY(mutex_);
  Digest128 expected_ ABSL_GUARDED_BY(mutex_);
};

// The progress of one stripe, kept from stream to stream.
struct Download {
  int32_t fragment = 0;
  int64_t version = 0;
  IndexRange part;    // The wanted blocks of the shard.
  bool is_shard = true;  // `part` is all of the shard's blocks.
  IndexRange blocks;  // The stripe's; not empty.
  DownloadTotal* total = nullptr;  // The part's.
  const RunLayout* layout = nullptr;
  // The fragment from element `out_begin` on; covers at least `part`.
  absl::Span<float> out;
  int64_t out_begin = 0;
  std::string peer;       // For messages.
  bool is_replica = false;  // The replica is wanted, not theta.
  // Version of the replica that `out` holds from next_block on; -1: none.
  int64_t from_version = -1;
  Pacer* pacer = nullptr;    // Shared by all downloads.
  // The chunk size that the server is asked to begin with; the stripe's own.
  rpc::ChunkSizer* sizer = nullptr;
  // Bytes that the server may send ahead (rpc::ChannelOptions); for caps.
  int64_t window_bytes = 0;

  int64_t next_block = 0;  // All before it have arrived.
  Digest128 digest;        // The arrived blocks'.

  // Starts the stripe. From here on `out` must hold from_version.
  void Begin() {
    next_block = blocks.begin;
    digest = Digest128();
  }
  void StartOver() {
    from_version = -1;
    blocks = part;
    Begin();
  }
};

// `request` has all fields but the range. `download` and `events` must outlive
// the stream. DATA_LOSS from the part's last stream: the digest is not the
// header's. Then `download` has started over and covers the whole part.
std::unique_ptr<BulkStream> MakeDownloadStream(
    const std::shared_ptr<grpc::Channel>& channel, const std::string& session,
    v1::PullParametersRequest request, Download& download,
    StreamEvents& events);

}  // namespace atl::server
