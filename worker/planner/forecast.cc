#include "worker/planner/forecast.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/codec/block_grid.h"
#include "base/layout/run_length.h"
#include "base/status/status_macros.h"

namespace atl::worker::planner {
namespace {

// Round trips of an answer without those of its header (forecast.h).
constexpr double kRoundTrips = 2;
constexpr double kFullShare = 0.95;

absl::Status Refuse(absl::string_view what) {
  return absl::InvalidArgumentError(what);
}

bool IsPositive(double value) { return value > 0; }  // False for NaN.
bool IsFinite(double value) { return std::isfinite(value); }

absl::Status CheckExchange(const Exchange& exchange) {
  if (exchange.inner_step_count < 1) {
    return Refuse("inner_step_count must be at least 1");
  }
  if (exchange.fragment_elements.empty()) {
    return Refuse(
        "fragment_elements is empty: a run needs at least one fragment");
  }
  for (const int64_t elements : exchange.fragment_elements) {
    if (elements < 1) return Refuse("a fragment has no elements");
  }
  if (exchange.overlap_step_count < 0 ||
      exchange.overlap_step_count >= exchange.inner_step_count) {
    return Refuse(
        "overlap must be at least 0 and shorter than a fragment's period, "
        "inner_step_count");
  }
  if (exchange.ahead_step_count < 0) {
    return Refuse("ahead_step_count must be at least 0");
  }
  if (exchange.header_trip_count < 0 || exchange.merge_pass_count < 1) {
    return Refuse(
        "header_trip_count must be at least 0 and merge_pass_count at least 1");
  }
  if (exchange.quorum < 0 || !(exchange.grace_seconds >= 0)) {
    return Refuse("quorum and grace_seconds must be at least 0");
  }
  if (!(exchange.sample_fraction > 0 && exchange.sample_fraction <= 1)) {
    return Refuse("sample_fraction must be in (0, 1]");
  }
  return absl::OkStatus();
}

absl::Status Check(const Compute& compute, const Link& link,
                   const Service& service) {
  if (!IsPositive(compute.step_seconds) || !IsFinite(compute.step_seconds)) {
    return Refuse("step_seconds must be finite and above 0");
  }
  if (!(compute.slowest_ratio >= 1) || !IsFinite(compute.slowest_ratio)) {
    return Refuse("slowest_ratio must be finite and at least 1");
  }
  if (!IsPositive(link.up_bytes_per_second) ||
      !IsPositive(link.down_bytes_per_second)) {
    return Refuse("a link's bytes per second must be above 0, each way");
  }
  if (!(link.round_trip_seconds >= 0) || !IsFinite(link.round_trip_seconds)) {
    return Refuse("round_trip_seconds must be finite and at least 0");
  }
  if (!(link.payload_share > 0 && link.payload_share <= 1)) {
    return Refuse("payload_share must be in (0, 1]");
  }
  if (service.island_count < 1) return Refuse("island_count is below 1");
  if (!IsPositive(service.merge_bytes_per_second) ||
      !IsPositive(service.encode_bytes_per_second) ||
      !IsPositive(service.decode_bytes_per_second)) {
    return Refuse(
        "bytes per second of merging, encoding and decoding must be above 0");
  }
  if (!(service.commit_seconds >= 0) || !IsFinite(service.commit_seconds)) {
    return Refuse("commit_seconds must be finite and at least 0");
  }
  if (!(service.save_seconds >= 0) || !IsFinite(service.save_seconds)) {
    return Refuse("save_seconds must be finite and at least 0");
  }
  if (!(service.server_bytes_per_second >= 0)) {
    return Refuse("server_bytes_per_second must be at least 0");
  }
  return absl::OkStatus();
}

// Seconds of a round, by cause.
struct Costs {
  std::vector<double> up, merge, down, codec;  // Per fragment.
  double up_sum = 0, merge_sum = 0, down_sum = 0, codec_sum = 0;
  double up_window = 0, down_window = 0;  // In sums, for windows.
  bool codec_blocks = true;
  double save = 0;          // Per synchronization.
  double round_trip = 0;    // One trip.
  double answer_trips = 0;  // From a push to its answer.
  double header_trips = 0;  // Part of them: before its payload.
  int64_t up_bytes = 0, down_bytes = 0;
};

// t: at least the overlap, which is below H.
int64_t HidingStepCount(const Exchange& exchange) {
  const int64_t ahead =
      std::min(exchange.ahead_step_count,
               exchange.inner_step_count - 1 - exchange.overlap_step_count);
  return exchange.overlap_step_count + ahead;
}

double Sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// Payload bytes per second of one of `asked_count` islands.
double PayloadRate(double link_rate, const Link& link, const Service& service,
                   double asked_count) {
  double rate = link_rate;
  if (service.server_bytes_per_second > 0) {
    rate = std::min(rate, service.server_bytes_per_second / asked_count);
  }
  return rate * link.payload_share;
}

absl::Status Check(const Flow& flow) {
  if (flow.stream_count < 0 || flow.shard_count < 1 ||
      !IsPositive(flow.stripe_bytes_min) || !(flow.window_bytes >= 0) ||
      !IsPositive(flow.up_chunk_bytes) || !IsPositive(flow.down_chunk_bytes)) {
    return Refuse(
        "flow: stream_count and window_bytes must be at least 0, shard_count "
        "at "
        "least 1, stripe and chunk sizes above 0");
  }
  return absl::OkStatus();
}

// Seconds that streams wait for windows while `bytes` move at `rate`.
double WindowSeconds(double bytes, double rate, double round_trip,
                     const Flow& flow, double chunk_bytes) {
  if (flow.stream_count == 0) return 0;
  const double shards = flow.shard_count;
  const double a_shard = std::max(
      1.0, std::min(std::ceil(flow.stream_count / shards),
                    std::floor(bytes / shards / flow.stripe_bytes_min)));
  const double streams = shards * a_shard;
  const double behind = bytes / streams - flow.window_bytes;
  if (behind <= 0) return 0;
  const double waits = std::ceil(behind / (chunk_bytes + flow.window_bytes));
  return waits * std::max(0.0, round_trip - streams * flow.window_bytes / rate);
}

Costs ComputeCosts(const Exchange& exchange, const Link& link,
                   const Service& service, const Flow& flow) {
  Costs costs;
  costs.round_trip = link.round_trip_seconds;
  costs.header_trips = exchange.header_trip_count;
  costs.answer_trips = kRoundTrips + costs.header_trips;
  costs.save = service.save_seconds;
  const auto asked =
      static_cast<double>(AskedIslandCount(exchange, service.island_count));
  const double up_rate =
      PayloadRate(link.up_bytes_per_second, link, service, asked);
  const double down_rate =
      PayloadRate(link.down_bytes_per_second, link, service, asked);
  const double merged = exchange.is_synchronous ? asked : 1;
  for (const int64_t elements : exchange.fragment_elements) {
    const double f32_bytes = 4.0 * static_cast<double>(elements);
    const int64_t up = EncodedBytes(exchange.up_codec, elements);
    const int64_t down = EncodedBytes(exchange.down_codec, elements);
    costs.up_bytes += up;
    costs.down_bytes += down;
    const auto up_f = static_cast<double>(up);
    const auto down_f = static_cast<double>(down);
    const double up_window = WindowSeconds(up_f, up_rate, costs.round_trip,
                                           flow, flow.up_chunk_bytes);
    const double down_window = WindowSeconds(
        down_f, down_rate, costs.round_trip, flow, flow.down_chunk_bytes);
    costs.up_window += up_window;
    costs.down_window += down_window;
    costs.up.push_back(up_f / up_rate + up_window);
    costs.down.push_back(down_f / down_rate + down_window);
    costs.merge.push_back(exchange.merge_pass_count *
                          (merged * f32_bytes / service.merge_bytes_per_second +
                           service.commit_seconds));
    costs.codec.push_back(f32_bytes / service.encode_bytes_per_second +
                          f32_bytes / service.decode_bytes_per_second);
  }
  costs.up_sum = Sum(costs.up);
  costs.merge_sum = Sum(costs.merge);
  costs.down_sum = Sum(costs.down);
  costs.codec_sum = Sum(costs.codec);
  costs.codec_blocks = service.codec_blocks;
  return costs;
}

// Seconds from the first push of all fragments to the last pull.
double LatencyTogether(const Costs& costs) {
  const double trip = costs.round_trip;
  double pushed = 0;  // When the last byte is sent.
  double committed = 0;
  for (size_t f = 0; f < costs.up.size(); ++f) {
    pushed += (costs.header_trips + (f == 0 ? 0 : 1)) * trip + costs.up[f];
    committed = std::max(pushed + trip / 2, committed) + costs.merge[f];
  }
  // All fragments are encoded before the first push.
  return committed + trip / 2 + static_cast<double>(costs.down.size()) * trip +
         costs.down_sum +
         (costs.codec_blocks ? 0 : costs.save + costs.codec_sum);
}

// Returns how much later than this island the last awaited island pushes, if
// islands of other speeds take other numbers of steps.
double Lateness(const Exchange& exchange, const Compute& compute,
                int island_count) {
  const int64_t asked = AskedIslandCount(exchange, island_count);
  if (exchange.awaits_slowest || !exchange.is_synchronous || asked == 1) {
    return 0;
  }
  const double late = compute.slowest_ratio * compute.step_seconds / 2;
  return exchange.quorum > 0 && exchange.quorum < asked
             ? std::min(late, exchange.grace_seconds)
             : late;
}

// Seconds per round that an island is idle.
double StopSeconds(const Exchange& exchange, const Compute& compute,
                   const Costs& costs, int island_count) {
  const double late = Lateness(exchange, compute, island_count);
  const int64_t hiding = HidingStepCount(exchange);
  const double hidden = static_cast<double>(hiding) * compute.step_seconds;
  if (!exchange.streaming) {
    return std::max(0.0, LatencyTogether(costs) + late - hidden);
  }
  const auto count = static_cast<int64_t>(costs.up.size());
  const double sharing =
      static_cast<double>(hiding * count / exchange.inner_step_count + 1);
  double stopped = 0;
  for (size_t f = 0; f < costs.up.size(); ++f) {
    const double latency =
        costs.up[f] + costs.merge[f] + costs.down[f] + late +
        costs.answer_trips * costs.round_trip +
        (costs.codec_blocks ? 0 : costs.save + costs.codec[f]);
    stopped += std::max(0.0, latency - hidden) / sharing;
  }
  return stopped;
}

double WaitForSlowest(const Exchange& exchange, const Compute& compute) {
  return exchange.awaits_slowest
             ? (compute.slowest_ratio - 1) * compute.step_seconds *
                   static_cast<double>(exchange.inner_step_count)
             : 0;
}

double RoundSeconds(const Exchange& exchange, const Compute& compute,
                    const Costs& costs, int island_count) {
  const double computing =
      compute.step_seconds * static_cast<double>(exchange.inner_step_count);
  const double saves =
      costs.save *
      (exchange.streaming ? static_cast<double>(costs.up.size()) : 1.0);
  const double alone = computing +
                       (costs.codec_blocks ? costs.codec_sum + saves : 0) +
                       StopSeconds(exchange, compute, costs, island_count) +
                       WaitForSlowest(exchange, compute);
  // The servers merge asynchronous contributions one after the other.
  const double merging =
      costs.merge_sum * (exchange.is_synchronous ? 1 : island_count);
  return std::max(
      {alone, costs.up_sum, merging, costs.down_sum, costs.codec_sum});
}

// Share of rounds that ask for an island, the mean over islands.
double AskedShare(const Exchange& exchange, int island_count) {
  return static_cast<double>(AskedIslandCount(exchange, island_count)) /
         island_count;
}

double Utilization(const Exchange& exchange, const Compute& compute,
                   const Link& link, const Service& service, const Flow& flow) {
  const Costs costs = ComputeCosts(exchange, link, service, flow);
  return AskedShare(exchange, service.island_count) * compute.step_seconds *
         static_cast<double>(exchange.inner_step_count) /
         RoundSeconds(exchange, compute, costs, service.island_count);
}

// Payload bytes per second for kFullShare, by bisection: utilization never
// falls as bandwidth grows.
double BandwidthForFullShare(const Exchange& exchange, const Compute& compute,
                             const Link& link, const Service& service,
                             const Flow& flow) {
  const auto reaches = [&](double rate) {
    Link other = link;
    other.payload_share = 1;
    other.up_bytes_per_second = other.down_bytes_per_second = rate;
    Service unbound = service;
    unbound.server_bytes_per_second = 0;
    return Utilization(exchange, compute, other, unbound, flow) >= kFullShare;
  };
  constexpr double kLeast = 1, kMost = 1e15;
  if (!reaches(kMost)) return 0;
  if (reaches(kLeast)) return kLeast;
  double low = std::log(kLeast), high = std::log(kMost);
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (reaches(std::exp(middle)) ? high : low) = middle;
  }
  return std::exp(high);
}

// Seconds of round trips: of answers, and waits for windows.
double TripSeconds(const Costs& costs) {
  return costs.answer_trips * costs.round_trip *
             static_cast<double>(costs.up.size()) +
         costs.up_window + costs.down_window;
}

Bound LargestBound(const Exchange& exchange, const Compute& compute,
                   const Costs& costs, int island_count, double round_seconds) {
  const double computing =
      compute.step_seconds * static_cast<double>(exchange.inner_step_count);
  const double standing = round_seconds - computing;
  const double waiting = WaitForSlowest(exchange, compute);
  if (computing / round_seconds >= kFullShare) {
    // Only sampling keeps it from computing.
    return Bound::kSampling;
  }
  if (waiting >= standing / 2) return Bound::kSlowest;
  if (costs.codec_blocks && costs.codec_sum >= standing / 2) {
    return Bound::kCodec;
  }
  const double merging =
      costs.merge_sum * (exchange.is_synchronous ? 1 : island_count);
  const std::pair<double, Bound> parts[] = {
      {costs.up_sum - costs.up_window, Bound::kUplink},
      {costs.down_sum - costs.down_window, Bound::kDownlink},
      {merging, Bound::kMerge},
      {costs.codec_sum, Bound::kCodec},
      {TripSeconds(costs), Bound::kRoundTrip}};
  return std::max_element(
             std::begin(parts), std::end(parts),
             [](const auto& a, const auto& b) { return a.first < b.first; })
      ->second;
}

std::string Seconds(double seconds) {
  if (seconds < 0.1) return absl::StrFormat("%.3g ms", 1000 * seconds);
  if (seconds < 600) return absl::StrFormat("%.3g s", seconds);
  if (seconds < 7200) return absl::StrFormat("%.0f min", seconds / 60);
  if (seconds < 48 * 3600) return absl::StrFormat("%.3g h", seconds / 3600);
  return absl::StrFormat("%.3g days", seconds / 86400);
}

std::string Why(const Exchange& exchange, const Compute& compute,
                const Costs& costs, int island_count,
                const Forecast& forecast) {
  const std::string computing =
      absl::StrCat(Seconds(forecast.compute_seconds), " of computing");
  switch (forecast.bound) {
    case Bound::kCompute: {
      const double added = forecast.round_seconds - forecast.compute_seconds;
      if (added < 1e-4 * forecast.compute_seconds) {
        return absl::StrCat("the whole exchange overlaps with ", computing,
                            " per round");
      }
      return absl::StrCat("the exchange adds ", Seconds(added), " to ",
                          computing, " per round");
    }
    case Bound::kUplink:
      return absl::StrCat("the uplink is busy for ",
                          Seconds(costs.up_sum - costs.up_window),
                          " per round, next to ", computing);
    case Bound::kDownlink:
      return absl::StrCat("the downlink is busy for ",
                          Seconds(costs.down_sum - costs.down_window),
                          " per round, next to ", computing);
    case Bound::kMerge:
      return absl::StrCat("the servers merge for ", Seconds(costs.merge_sum),
                          " per round, next to ", computing);
    case Bound::kRoundTrip:
      return absl::StrCat("round trips of ", Seconds(costs.round_trip),
                          " take ", Seconds(TripSeconds(costs)),
                          " per round, next to ", computing);
    case Bound::kCodec:
      return absl::StrCat("encoding and decoding take ",
                          Seconds(costs.codec_sum), " per round, next to ",
                          computing);
    case Bound::kSlowest:
      return absl::StrCat("every round waits ",
                          Seconds(WaitForSlowest(exchange, compute)),
                          " for the slowest island");
    case Bound::kSampling:
      return absl::StrFormat(
          "a round asks for %d of %d islands; the others are idle",
          AskedIslandCount(exchange, island_count), island_count);
  }
  return "";
}

}  // namespace

std::optional<codec::CodecId> FindCodecNamed(absl::string_view name) {
  for (const codec::CodecId id : codec::AllCodecs()) {
    if (codec::CodecName(id) == name) return id;
  }
  return std::nullopt;
}

int64_t EncodedBytes(codec::CodecId codec, int64_t element_count) {
  const codec::Codec& format = codec::GetCodec(codec);
  const int64_t blocks = element_count / codec::kBlockElements;
  const int64_t rest = element_count % codec::kBlockElements;
  return blocks *
             static_cast<int64_t>(format.EncodedBytes(codec::kBlockElements)) +
         (rest > 0 ? static_cast<int64_t>(format.EncodedBytes(rest)) : 0);
}

int64_t AskedIslandCount(const Exchange& exchange, int island_count) {
  return SampleSize(island_count, exchange.sample_fraction, exchange.quorum);
}

absl::string_view BoundName(Bound bound) {
  switch (bound) {
    case Bound::kCompute:
      return "compute";
    case Bound::kUplink:
      return "uplink";
    case Bound::kDownlink:
      return "downlink";
    case Bound::kRoundTrip:
      return "round_trip";
    case Bound::kMerge:
      return "merge";
    case Bound::kCodec:
      return "codec";
    case Bound::kSlowest:
      return "slowest";
    case Bound::kSampling:
      return "sampling";
  }
  return "";
}

absl::StatusOr<Forecast> Predict(const Exchange& exchange,
                                 const Compute& compute, const Link& link,
                                 const Service& service, const Flow& flow) {
  RETURN_IF_ERROR(CheckExchange(exchange));
  RETURN_IF_ERROR(Check(compute, link, service));
  RETURN_IF_ERROR(Check(flow));
  const Costs costs = ComputeCosts(exchange, link, service, flow);
  Forecast forecast;
  forecast.compute_seconds =
      compute.step_seconds * static_cast<double>(exchange.inner_step_count);
  forecast.round_seconds =
      RoundSeconds(exchange, compute, costs, service.island_count);
  const double asked_share = AskedShare(exchange, service.island_count);
  forecast.utilization =
      asked_share * forecast.compute_seconds / forecast.round_seconds;
  forecast.up_bytes = costs.up_bytes;
  forecast.down_bytes = costs.down_bytes;
  // An island fetches nothing in rounds that do not ask for it.
  const double rounds_per_hour = asked_share * 3600 / forecast.round_seconds;
  forecast.up_bytes_per_hour =
      static_cast<double>(costs.up_bytes) * rounds_per_hour;
  forecast.down_bytes_per_hour =
      static_cast<double>(costs.down_bytes) * rounds_per_hour;
  forecast.bytes_per_second_for_95 =
      BandwidthForFullShare(exchange, compute, link, service, flow);
  forecast.bound =
      forecast.utilization >= kFullShare
          ? Bound::kCompute
          : LargestBound(exchange, compute, costs, service.island_count,
                         forecast.round_seconds);
  forecast.why = Why(exchange, compute, costs, service.island_count, forecast);
  return forecast;
}

}  // namespace atl::worker::planner
