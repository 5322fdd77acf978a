// Predicts what a run's exchange costs: the share of time that an island
// computes, bytes, and what it is bound by.
//
// Pure: a closed formula, no simulation. Thread-safe. An event-driven
// simulation of the same run gives a utilization that differs by less than
// 0.005 in the mean over random runs, and by 0.25 at most, where fragments of a
// stream queue behind each other
// (tests/benchmarks/utilization_simulator_test.cc).
//
//   s    seconds of an inner step           H  inner steps a round
//   P    fragments                          t  inner steps that hide an answer
//   N    islands that a round asks for      r  round trip
//   U_f  seconds of fragment f on the uplink, D_f on the downlink
//   M_f  seconds to merge and commit fragment f of N islands
//   e_f, d_f  seconds to encode and decode it on the island
//   S    seconds of a SAVE beside its bytes
//   h    round trips of a push before its payload moves, 0 or 1
//
// A fragment's answer is there L_f = U_f + M_f + D_f + (2 + h) r after its
// push: one r for the push and the notice of the commit, one for the pull.
// M_f = p (N bytes / merge + C): p passes, 2 for a rule that needs a verdict,
// and C, what services sync and hand over for a decision.
//
// U_f and D_f are bytes over the link's rate, and what its lanes stand for
// windows: n max(0, r - s w / rate). A stream sends w bytes unasked; for the
// rest of each chunk of c bytes, and the w of the next one, it waits for its
// reader, a round trip. So with B bytes on s streams n is
// (B / s - w) / (c + w), rounded up, and 0 if all fits into the first w.
//
// t is the overlap, and in an elastic stream the steps that an island goes on
// past it while the answer is late, but less than H.
//
// Islands of an elastic run end their steps at different times, for steps are
// whole: L_f has half a step of the slowest more, or the grace window if that
// is shorter and fewer islands than all are a quorum.
//
// Together (all fragments after the same step): one push after the other, each
// with its answer, one merge after the other, and, when the last is committed,
// one pull after the other, as the island's loop has it. That takes L; the
// island then stands for max(0, L - t s).
//
// Streaming (fragment f after step (f + 1) H / P of its period): each fragment
// stands for max(0, L_f - t s) / n, where n = floor(t P / H) + 1 fragments
// share a window, for a stop that waits for one lets the others go on, too.
//
// A round lasts T = max(H s + S + sum(e + d) + stops + (ratio - 1) H s, sum U,
// sum M, sum D), with an S a fragment where they stream; the last three are
// lanes that are never free. (A codec that works beside the computing is such a
// lane, too, and its e, d and S are part of L instead.)
//
// Utilization is H s / T, times the share of rounds that ask for an island: of
// the run's time, the mean over its islands. One that is not asked stands, and
// that counts as time in which it does not compute.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/planner/codec_size.h"

namespace atl::worker::planner {

// How a run exchanges.
struct Exchange {
  int64_t inner_step_count = 1;            // H >= 1.
  std::vector<int64_t> fragment_elements;  // Of each fragment, >= 1; not empty.
  bool streaming = false;                  // Fragments at different steps.
  int64_t overlap_step_count = 0;          // In [0, H).
  // Steps past the overlap before it waits for an answer that is late, >= 0: of
  // elastic streams.
  int64_t ahead_step_count = 0;
  codec::CodecId up_codec = codec::CodecId::kF32;
  codec::CodecId down_codec = codec::CodecId::kF32;
  // h: 1 at level ISLAND, whose shards take chunks once all islands are there.
  int header_trip_count = 0;
  // p >= 1: 2 where factors need sums over all shards before the merge (RDA,
  // clips, Krum, MDA).
  int merge_pass_count = 1;
  // False: a merge takes one contribution, whenever it comes.
  bool is_synchronous = true;
  // A round waits for the slowest island's steps. Not where slower islands take
  // fewer (elastic runs).
  bool awaits_slowest = true;
  // Where it does not, and is synchronous: islands that close a round, 0 for
  // all of them, and how long it then waits for the others.
  int quorum = 0;
  double grace_seconds = 0;
  // Share of the islands that a round asks for, (0, 1].
  double sample_fraction = 1;

  bool operator==(const Exchange&) const = default;
};

// The island's own speed, and that of the others.
struct Compute {
  double step_seconds = 1;  // s > 0.
  // Time of the slowest island's step over this one's, >= 1.
  double slowest_ratio = 1;
};

// The island's link.
struct Link {
  double up_bytes_per_second = 0;    // > 0; infinity is allowed.
  double down_bytes_per_second = 0;  // > 0; infinity is allowed.
  double round_trip_seconds = 0;     // >= 0.
  // Payload over what the link carries: TCP/IP on Ethernet leaves 0.94.
  double payload_share = 0.94;  // In (0, 1].
};

// Over which streams a transfer goes, and what they have under way
// (server/client/DESIGN.md). The default: any number, any window.
struct Flow {
  int stream_count = 0;         // Of all shards together; 0: no bound.
  int shard_count = 1;          // >= 1; each has a stream at least.
  double stripe_bytes_min = 1;  // What a stream of several has, > 0.
  double window_bytes = 0;      // w, >= 0.
  double up_chunk_bytes = 1;    // c, > 0.
  double down_chunk_bytes = 1;  // The same of a pull.
};

// What the servers and the codecs do, and how many islands share them. All
// throughputs are f32 bytes: 4 an element, whatever is on the wire.
struct Service {
  int island_count = 1;                  // N >= 1.
  double merge_bytes_per_second = 3e9;   // Of one contribution, > 0.
  double encode_bytes_per_second = 8e9;  // > 0.
  double decode_bytes_per_second = 8e9;  // > 0.
  // Whether the island computes nothing while it encodes and decodes. If not,
  // that is part of an answer's latency.
  bool codec_blocks = true;
  double commit_seconds = 0.005;  // C, >= 0.
  double save_seconds = 0;        // S, >= 0.
  // All servers' links together, each way, shared by N islands; 0: no bound.
  double server_bytes_per_second = 0;
};

// `service` of islands of ours: they encode and decode beside their steps where
// an answer overlaps with some.
inline Service OfIslands(Service service, const Exchange& exchange) {
  service.codec_blocks = exchange.overlap_step_count == 0;
  return service;
}

// What holds an island up.
enum class Bound {
  kCompute,    // Nothing: it computes 95 % of the time or more.
  kUplink,     //
  kDownlink,   //
  kRoundTrip,  //
  kMerge,      // The servers.
  kCodec,      // Encoding and decoding on the island.
  kSlowest,    // Another island.
  kSampling,   // Rounds that do not ask for it.
};

// "compute", "uplink", "downlink", "round_trip", "merge", "codec", "slowest",
// "sampling".
absl::string_view BoundName(Bound bound);

// Islands that a round asks for, of `island_count` (>= 1) that are ready.
int64_t AskedIslandCount(const Exchange& exchange, int island_count);

struct Forecast {
  double utilization = 0;      // Of the run's time, in (0, 1].
  double round_seconds = 0;    // T.
  double compute_seconds = 0;  // H s.
  // Payload that an island sends and receives in a round that asks for it.
  int64_t up_bytes = 0;
  int64_t down_bytes = 0;
  double up_bytes_per_hour = 0;  // With the rounds that do not ask for it.
  double down_bytes_per_hour = 0;
  // Payload bytes a second, each way alike, at which the island computes 95 %
  // of the time; 0: no bandwidth is enough.
  double bytes_per_second_for_95 = 0;
  Bound bound = Bound::kCompute;
  std::string why;  // A sentence.
};

// INVALID_ARGUMENT: a field is out of its range; the message names it.
absl::StatusOr<Forecast> Predict(const Exchange& exchange,
                                 const Compute& compute, const Link& link,
                                 const Service& service, const Flow& flow = {});

}  // namespace atl::worker::planner
