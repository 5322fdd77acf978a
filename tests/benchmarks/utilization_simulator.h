// Simulates rounds of training in virtual time and says which share of it an
// island computes.
//
// Two simulations. SimulateReduction is the schedule of arXiv 2501.18512
// (section 3.1), for its published table: equals that reduce (outer) gradients
// layer by layer, behind the backward pass, and need a layer again when the
// next forward pass comes to it. SimulateServers is ours: islands push to
// servers and pull from them, event by event, with the inputs that the
// planner's formula has (worker/planner/forecast.h).
//
// Pure. Thread-safe.

#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "worker/planner/forecast.h"

namespace atl::benchmarks {

// A step is the forward pass, a third of it, and the backward pass; every layer
// takes as long as another. Layers that sync after a step are reduced one after
// the other, each from when its backward pass is done.
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

// Share of time that is computing, at `bytes_per_second` each way.
double SimulateReduction(const Reduction& reduction, double bytes_per_second);

// How SimulateServers goes:
//
// After a step an island encodes the fragments that are due, then, before its
// next step, waits for the answers that are due and decodes them: after the
// overlap and the steps that it may go ahead, less than a round. A push is the
// payload on the island's uplink, one after the other, behind a round trip if
// the shards answer its header first. When the last island's bytes are in, the
// merge waits for its turn on the servers; half a trip later the islands know of
// the commit and pull: a round trip, then the payload on the downlink.
// Streaming, each fragment goes its way by itself; together, a push begins when the one
// before was answered, a pull when all are committed and the pull before is
// done. Asynchronous contributions are merged as they come.
//
// `step_seconds` has the step of every island, compute.slowest_ratio is not
// read; the share is that of the first island. Sampling is not simulated.
double SimulateServers(const worker::planner::Exchange& exchange,
                       const std::vector<double>& step_seconds,
                       const worker::planner::Link& link,
                       const worker::planner::Service& service);

// The least bytes a second, within 0.2 %, at which `utilization` reaches
// `target`; 0 if 1e15 are not enough. `utilization` does not fall as its
// argument grows.
double LeastBandwidth(const std::function<double(double)>& utilization,
                      double target);

}  // namespace atl::benchmarks
