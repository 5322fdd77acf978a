// Simulates rounds of training in virtual time. Returns the share of the time
// that an island computes.
//
// SimulateReduction is the schedule of arXiv 2501.18512 (section 3.1), for its
// published table. Equal peers reduce (outer) gradients layer by layer after
// the backward pass, and need each layer when the next forward pass reaches it.
// SimulateServers is ours: islands push to servers and pull from them, event by
// event, with the inputs of the planner's formula (worker/planner/forecast.h).
//
// Pure. Thread-safe.

#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "worker/planner/forecast.h"

namespace atl::benchmarks {

// A step is one third forward pass and two thirds backward pass; all layers
// take the same time. Layers that sync after a step are reduced one after the
// other, each when its backward pass is done.
struct Reduction {
  int64_t layer_count = 1;
  double layer_bytes = 0;  // On the wire, each way.
  double step_seconds = 1;
  int64_t inner_step_count = 1;  // H; data-parallel: 1.
  // Layer l belongs to fragment l mod P; fragment p syncs after step
  // (p + 1) H / P of every H.
  int64_t fragment_count = 1;
  int64_t overlap_step_count = 0;
};

// The share of computing time at `bytes_per_second` each way.
double SimulateReduction(const Reduction& reduction, double bytes_per_second);

// The model of SimulateServers:
//
// After a step an island encodes the fragments that are due. Before its next
// step it waits for the answers that are due and decodes them. An answer is due
// after the overlap and the steps that the island may go ahead, which is less
// than a round. A push sends its payload on the island's uplink, one push after
// the other, after a round trip if the shards answer its header first. When the
// last island's bytes have arrived, the merge queues on the servers. Half a
// round trip later the islands learn of the commit and pull: a round trip, then
// the payload on the downlink. With streaming, each fragment moves
// independently. Otherwise a push begins when the previous one was answered,
// and a pull when all fragments are committed and the previous pull is done.
// Asynchronous contributions are merged on arrival.
//
// `step_seconds` has each island's step; compute.slowest_ratio is not read. The
// share is that of the first island. Sampling is not simulated.
double SimulateServers(const worker::planner::Exchange& exchange,
                       const std::vector<double>& step_seconds,
                       const worker::planner::Link& link,
                       const worker::planner::Service& service);

// The least bytes a second, within 0.2 %, at which `utilization` reaches
// `target`; 0: 1e15 are not enough. `utilization` must not decrease.
double LeastBandwidth(const std::function<double(double)>& utilization,
                      double target);

}  // namespace atl::benchmarks
