#include "tests/benchmarks/utilization_simulator.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <queue>
#include <utility>

#include "worker/planner/codec_size.h"

namespace atl::benchmarks {
namespace {

using worker::planner::EncodedBytes;
using worker::planner::Exchange;
using worker::planner::Link;
using worker::planner::Service;

// Rounds before and during the measurement: the first ones fill the lanes.
constexpr int64_t kWarmUpRounds = 4;
constexpr int64_t kRounds = 4;

// The step of a round, in [1, H], after which fragment `f` of `count` syncs.
int64_t SyncStep(int64_t f, int64_t count, int64_t inner_step_count) {
  return std::max<int64_t>(1, (f + 1) * inner_step_count / count);
}

// A resource that does one job at a time, in order of request.
class Lane {
 public:
  // Requests `seconds` of work at `now`; returns its end time.
  double Take(double now, double seconds) {
    free_ = std::max(free_, now) + seconds;
    return free_;
  }

 private:
  double free_ = 0;
};

// Callbacks by time; at equal times in the order of insertion.
class Events {
 public:
  double now() const { return now_; }

  void At(double time, std::function<void()> call) {
    queue_.push({time, count_++, std::move(call)});
  }

  void Run(const bool& done) {
    while (!queue_.empty() && !done) {
      Event event = queue_.top();
      queue_.pop();
      now_ = event.time;
      event.call();
    }
  }

 private:
  struct Event {
    double time;
    int64_t number;
    std::function<void()> call;
    bool operator<(const Event& other) const {
      return std::make_pair(time, number) >
             std::make_pair(other.time, other.number);
    }
  };
  std::priority_queue<Event> queue_;
  double now_ = 0;
  int64_t count_ = 0;
};

class ServerSimulation {
 public:
  ServerSimulation(const Exchange& exchange,
                   const std::vector<double>& step_seconds, const Link& link,
                   const Service& service)
      : exchange_(exchange),
        service_(service),
        trip_(link.round_trip_seconds),
        wait_after_(std::min(
            exchange.overlap_step_count + exchange.ahead_step_count,
            exchange.inner_step_count - 1)),
        islands_(step_seconds.size()),
        up_rate_(Rate(link.up_bytes_per_second, link)),
        down_rate_(Rate(link.down_bytes_per_second, link)) {
    for (size_t i = 0; i < islands_.size(); ++i) {
      islands_[i].step_seconds = step_seconds[i];
    }
  }

  double Run() {
    for (size_t i = 0; i < islands_.size(); ++i) {
      events_.At(0, [this, i] { Train(i); });
    }
    events_.Run(done_);
    return static_cast<double>(kRounds * exchange_.inner_step_count) *
           islands_[0].step_seconds / (end_ - begin_);
  }

 private:
  // One island's synchronisation of a fragment in a round.
  using Sync = std::pair<int64_t, int64_t>;  // Fragment, round.

  struct Island {
    double step_seconds = 0;
    int64_t step = 0;  // Steps done.
    Lane up, down, codec;
    std::map<int64_t, std::vector<Sync>> due;  // By the step they are applied.
    std::map<Sync, bool> arrived;
    bool waits = false;
    // Without streaming: pushes to make, in order, and committed fragments to
    // pull once all are committed.
    std::vector<Sync> to_push, committed;
    size_t pushed = 0;
  };

  double Rate(double link_rate, const Link& link) const {
    double rate = link_rate;
    if (service_.server_bytes_per_second > 0) {
      rate = std::min(rate, service_.server_bytes_per_second /
                                static_cast<double>(islands_.size()));
    }
    return rate * link.payload_share;
  }

  double F32Bytes(const Sync& sync) const {
    return 4.0 * static_cast<double>(exchange_.fragment_elements[sync.first]);
  }
  double UpSeconds(const Sync& sync) const {
    return static_cast<double>(EncodedBytes(
               exchange_.up_codec, exchange_.fragment_elements[sync.first])) /
           up_rate_;
  }
  double DownSeconds(const Sync& sync) const {
    return static_cast<double>(EncodedBytes(
               exchange_.down_codec, exchange_.fragment_elements[sync.first])) /
           down_rate_;
  }
  double EncodeSeconds(const Sync& sync) const {
    return F32Bytes(sync) / service_.encode_bytes_per_second;
  }
  double DecodeSeconds(const Sync& sync) const {
    return F32Bytes(sync) / service_.decode_bytes_per_second;
  }
  double MergeSeconds(const Sync& sync, size_t contributions) const {
    return static_cast<double>(contributions) * F32Bytes(sync) /
               service_.merge_bytes_per_second +
           service_.commit_seconds;
  }

  void Train(size_t i) {
    events_.At(events_.now() + islands_[i].step_seconds,
               [this, i] { StepDone(i); });
  }

  void StepDone(size_t i) {
    Island& island = islands_[i];
    ++island.step;
    Measure(i);
    const int64_t period = exchange_.inner_step_count;
    const auto count = static_cast<int64_t>(exchange_.fragment_elements.size());
    double encoded = events_.now();
    std::vector<Sync> syncs;
    for (int64_t f = 0; f < count; ++f) {
      const int64_t at =
          exchange_.streaming ? SyncStep(f, count, period) : period;
      if (island.step % period != at % period) continue;
      const Sync sync(f, (island.step - at) / period);
      syncs.push_back(sync);
      island.due[island.step + wait_after_].push_back(sync);
      if (service_.codec_blocks) {
        encoded += EncodeSeconds(sync);
      } else {
        encoded = island.codec.Take(encoded, EncodeSeconds(sync));
      }
      if (exchange_.streaming) {
        events_.At(encoded, [this, i, sync] { Push(i, sync); });
      }
    }
    if (!exchange_.streaming && !syncs.empty()) {
      events_.At(encoded, [this, i, syncs] {
        islands_[i].to_push = syncs;
        islands_[i].pushed = 0;
        Push(i, syncs[0]);
      });
    }
    const double next = service_.codec_blocks ? encoded : events_.now();
    events_.At(next, [this, i] { Await(i); });
  }

  void Measure(size_t i) {
    if (i != 0) return;
    const int64_t begin = kWarmUpRounds * exchange_.inner_step_count;
    if (islands_[0].step == begin) begin_ = events_.now();
    if (islands_[0].step == begin + kRounds * exchange_.inner_step_count) {
      end_ = events_.now();
      done_ = true;
    }
  }

  void Await(size_t i) {
    Island& island = islands_[i];
    const auto due = island.due.find(island.step);
    island.waits = false;
    if (due == island.due.end()) return Train(i);
    for (const Sync& sync : due->second) {
      if (!island.arrived[sync]) {
        island.waits = true;
        return;
      }
    }
    double decoded = events_.now();
    for (const Sync& sync : due->second) {
      island.arrived.erase(sync);
      if (service_.codec_blocks) decoded += DecodeSeconds(sync);
    }
    island.due.erase(due);
    events_.At(decoded, [this, i] { Train(i); });
  }

  void Push(size_t i, Sync sync) {
    events_.At(events_.now() + exchange_.header_trip_count * trip_,
               [this, i, sync] {
      const double sent = islands_[i].up.Take(events_.now(), UpSeconds(sync));
      events_.At(sent + trip_ / 2, [this, i, sync] { Received(i, sync); });
      if (!exchange_.streaming) {
        events_.At(sent + trip_, [this, i] {
          Island& island = islands_[i];
          if (++island.pushed < island.to_push.size()) {
            Push(i, island.to_push[island.pushed]);
          }
        });
      }
    });
  }

  void Received(size_t i, Sync sync) {
    if (!exchange_.is_synchronous) {
      const double merged = servers_.Take(events_.now(), MergeSeconds(sync, 1));
      events_.At(merged + trip_ / 2, [this, i, sync] { Committed(i, sync); });
      return;
    }
    if (++received_[sync] < islands_.size()) return;
    received_.erase(sync);
    const double merged =
        servers_.Take(events_.now(), MergeSeconds(sync, islands_.size()));
    events_.At(merged + trip_ / 2, [this, sync] {
      for (size_t j = 0; j < islands_.size(); ++j) Committed(j, sync);
    });
  }

  void Committed(size_t i, Sync sync) {
    if (exchange_.streaming) return Pull(i, {sync});
    std::vector<Sync>& committed = islands_[i].committed;
    committed.push_back(sync);
    if (committed.size() < exchange_.fragment_elements.size()) return;
    Pull(i, std::exchange(committed, {}));
  }

  void Pull(size_t i, std::vector<Sync> syncs) {
    events_.At(events_.now() + trip_, [this, i, syncs] {
      const double done =
          islands_[i].down.Take(events_.now(), DownSeconds(syncs[0]));
      events_.At(done, [this, i, syncs] {
        Arrived(i, syncs[0]);
        if (syncs.size() > 1) Pull(i, {syncs.begin() + 1, syncs.end()});
      });
    });
  }

  void Arrived(size_t i, Sync sync) {
    double ready = events_.now();
    if (!service_.codec_blocks) {
      ready = islands_[i].codec.Take(ready, DecodeSeconds(sync));
    }
    events_.At(ready, [this, i, sync] {
      islands_[i].arrived[sync] = true;
      if (islands_[i].waits) Await(i);
    });
  }

  const Exchange exchange_;
  const Service service_;
  const double trip_;
  const int64_t wait_after_;  // Steps past a push, if its answer is late.
  std::vector<Island> islands_;
  const double up_rate_, down_rate_;
  Events events_;
  Lane servers_;
  std::map<Sync, size_t> received_;  // Contributions of a round's fragment.
  double begin_ = 0, end_ = 0;
  bool done_ = false;
};

}  // namespace

double SimulateReduction(const Reduction& reduction, double bytes_per_second) {
  const int64_t layers = reduction.layer_count;
  const double layer_step =
      reduction.step_seconds / (3 * static_cast<double>(layers));
  const double layer_reduction = reduction.layer_bytes / bytes_per_second;
  const int64_t period = reduction.inner_step_count;
  const int64_t begin = kWarmUpRounds * period;
  const int64_t end = begin + kRounds * period;
  // When a layer's result is ready, by the step whose forward pass needs it.
  std::map<int64_t, std::vector<std::pair<int64_t, double>>> needed;
  Lane link;
  double now = 0, begin_time = 0;
  for (int64_t step = 0; step < end; ++step) {
    if (step == begin) begin_time = now;
    std::vector<double> ready(layers, 0);
    const auto found = needed.find(step);
    if (found != needed.end()) {
      for (const auto& [layer, time] : found->second) ready[layer] = time;
      needed.erase(found);
    }
    for (int64_t l = 0; l < layers; ++l) {
      now = std::max(now, ready[l]) + layer_step;
    }
    auto& results = needed[step + 1 + reduction.overlap_step_count];
    for (int64_t l = layers - 1; l >= 0; --l) {
      now += 2 * layer_step;
      const int64_t at = SyncStep(l % reduction.fragment_count,
                                  reduction.fragment_count, period);
      if ((step + 1) % period != at % period) continue;
      results.emplace_back(l, link.Take(now, layer_reduction));
    }
  }
  return static_cast<double>(kRounds * period) * reduction.step_seconds /
         (now - begin_time);
}

double SimulateServers(const Exchange& exchange,
                       const std::vector<double>& step_seconds,
                       const Link& link, const Service& service) {
  return ServerSimulation(exchange, step_seconds, link, service).Run();
}

double LeastBandwidth(const std::function<double(double)>& utilization,
                      double target) {
  double low = std::log(1.0), high = std::log(1e15);
  if (utilization(std::exp(high)) < target) return 0;
  while (high - low > 0.002) {
    const double middle = (low + high) / 2;
    (utilization(std::exp(middle)) >= target ? high : low) = middle;
  }
  return std::exp(high);
}

}  // namespace atl::benchmarks
