// Predicts the cost of a run's exchange: an island's utilization, its bytes,
// and its bottleneck.
//
// Pure: a closed formula, no simulation. Thread-safe. Over random runs,
// utilization differed from an event-driven simulation by less than 0.005 in
// the mean. It differed by at most 0.25, where fragments of a stream queue
// behind each other. tests/benchmarks/slow_link measures the difference to real
// islands.
//
//   s    seconds of an inner step           H  inner steps per round
//   P    fragments                          t  inner steps that hide an answer
//   N    islands that a round asks for      r  round trip
//   U_f  seconds of fragment f on the uplink, D_f on the downlink
//   M_f  seconds to merge and commit fragment f of N islands
//   e_f, d_f  seconds to encode and decode it on the island
//   S    seconds of a local checkpoint, without its bytes
//   h    round trips of a push before its payload moves, 0 or 1
//
// A fragment's answer arrives L_f = U_f + M_f + D_f + (2 + h) r after its push:
// one r for the push and the notice of the commit, one for the pull. M_f = p (N
// bytes / merge + C). p is the number of passes: 2 for a rule that needs a
// verdict. C is the time of syncs and messages between services per decision.
//
// U_f and D_f are bytes over the link's rate, plus the wait for windows: n
// max(0, r - s w / rate). A stream sends w bytes at once. For the rest of each
// chunk of c bytes, and the w of the next, it waits one round trip for its
// reader. With B bytes on s streams, n is (B / s - w) / (c + w), rounded up,
// and 0 if B / s <= w.
//
// t is the overlap. An elastic stream adds the steps, together fewer than H,
// that an island may take past it while the answer is late.
//
// Islands of an elastic run take whole steps and end them at different times.
// This adds half a step of the slowest island to L_f, or the grace window if it
// is shorter and a quorum is fewer than all islands.
//
// All fragments after the same step: as in the island's loop, pushes run in
// sequence, each with its answer, then merges, and after the last commit the
// pulls. That takes L; the island then idles for max(0, L - t s).
//
// Streaming (fragment f after step (f + 1) H / P of its period): each fragment
// idles the island for max(0, L_f - t s) / n. Here n = floor(t P / H) + 1
// fragments share a window, because the others progress while the island waits
// for one.
//
// A round lasts T = max(H s + S + sum(e + d) + idle + (ratio - 1) H s, sum U,
// sum M, sum D), with an S per fragment if they stream. The last three terms
// are links and servers that are always busy. (A codec that works in the
// background is such a term, too; its e, d and S are then part of L.)
//
// Utilization is H s / T times the share of rounds that ask for an island, as
// the mean over islands. An island that is not asked is idle.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/codec/codec.h"

namespace atl::worker::planner {

// The codec that CodecName calls `name`.
std::optional<codec::CodecId> FindCodecNamed(absl::string_view name);

// Bytes of `element_count` (>= 0) consecutive elements of one tensor: whole
// blocks of 4096 and a shorter last one, with scales. Excludes headers and
// checksums of chunks (some 50 bytes per MiB).
int64_t EncodedBytes(codec::CodecId codec, int64_t element_count);

struct Exchange {
  int64_t inner_step_count = 1;            // H >= 1.
  std::vector<int64_t> fragment_elements;  // Each >= 1; not empty.
  bool streaming = false;                  // Fragments at different steps.
  int64_t overlap_step_count = 0;          // In [0, H).
  // Steps past the overlap before an elastic stream waits for an answer, >= 0.
  int64_t ahead_step_count = 0;
  codec::CodecId up_codec = codec::CodecId::kF32;
  codec::CodecId down_codec = codec::CodecId::kF32;
  // h: 1 at level `island`: its shards take chunks once all islands are there.
  int header_trip_count = 0;
  // p >= 1: 2 for factors from sums over all shards (RDA, clips, Krum, MDA).
  int merge_pass_count = 1;
  // False: a merge takes one contribution, immediately.
  bool is_synchronous = true;
  // A round waits for the slowest island's steps. False in elastic runs, where
  // slower islands take fewer steps.
  bool awaits_slowest = true;
  // For synchronous rounds without awaits_slowest: the islands that close a
  // round (0: all), and how long the round then waits for the others.
  int quorum = 0;
  double grace_seconds = 0;
  // Share of the islands that a round asks for, in (0, 1].
  double sample_fraction = 1;

  bool operator==(const Exchange&) const = default;
};

// The speed of this island and of the slowest.
struct Compute {
  double step_seconds = 1;  // s > 0.
  // Step time of the slowest island over this one's, >= 1.
  double slowest_ratio = 1;
};

struct Link {
  double up_bytes_per_second = 0;    // > 0; infinity is allowed.
  double down_bytes_per_second = 0;  // > 0; infinity is allowed.
  double round_trip_seconds = 0;     // >= 0.
  // Payload over the link's bytes: TCP/IP on Ethernet leaves 0.94.
  double payload_share = 0.94;  // In (0, 1].
};

// Streams of a transfer (server/client/DESIGN.md). The default has no limits.
struct Flow {
  int stream_count = 0;         // For all shards together; 0: no limit.
  int shard_count = 1;          // >= 1; each has at least one stream.
  double stripe_bytes_min = 1;  // Bytes that an additional stream needs, > 0.
  double window_bytes = 0;      // w, >= 0.
  double up_chunk_bytes = 1;    // c, > 0.
  double down_chunk_bytes = 1;  // c of a pull, > 0.
};

// The speed of servers and codecs, and the number of islands. All throughputs
// are f32 bytes: 4 per element, for any wire format.
struct Service {
  int island_count = 1;                  // N >= 1.
  double merge_bytes_per_second = 3e9;   // One contribution's merge, > 0.
  double encode_bytes_per_second = 8e9;  // > 0.
  double decode_bytes_per_second = 8e9;  // > 0.
  // The island stops computing while it encodes and decodes. False: that time
  // is part of an answer's latency.
  bool codec_blocks = true;
  double commit_seconds = 0.005;  // C, >= 0.
  double save_seconds = 0;        // S, >= 0.
  // Each way, all servers together, shared by N islands; 0: no limit.
  double server_bytes_per_second = 0;
};

// `service` with this version's islands, which encode and decode in the
// background if the overlap is not 0.
inline Service OfIslands(Service service, const Exchange& exchange) {
  service.codec_blocks = exchange.overlap_step_count == 0;
  return service;
}

enum class Bound {
  kCompute,    // None: it computes at least 95 % of the time.
  kUplink,     //
  kDownlink,   //
  kRoundTrip,  //
  kMerge,      // The servers.
  kCodec,      // Encoding and decoding on the island.
  kSlowest,    // Another island.
  kSampling,   // Rounds that do not ask for it.
};

absl::string_view BoundName(Bound bound);

// Islands that a round asks for, of `island_count` (>= 1) ready ones.
int64_t AskedIslandCount(const Exchange& exchange, int island_count);

struct Forecast {
  double utilization = 0;      // In (0, 1].
  double round_seconds = 0;    // T.
  double compute_seconds = 0;  // H s.
  // Payload of an island in a round that asks for it.
  int64_t up_bytes = 0;
  int64_t down_bytes = 0;
  double up_bytes_per_hour = 0;  // Includes rounds that do not ask for it.
  double down_bytes_per_hour = 0;
  // Payload bytes per second, each way, at which the island computes 95 % of
  // the time; 0: no bandwidth suffices.
  double bytes_per_second_for_95 = 0;
  Bound bound = Bound::kCompute;
  std::string why;  // A sentence.
};

// INVALID_ARGUMENT, naming the field: it is out of range.
absl::StatusOr<Forecast> Predict(const Exchange& exchange,
                                 const Compute& compute, const Link& link,
                                 const Service& service, const Flow& flow = {});

}  // namespace atl::worker::planner
