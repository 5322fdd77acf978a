#include "worker/planner/forecast.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "gtest/gtest.h"

namespace atl::worker::planner {
namespace {

using codec::CodecId;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A million elements, 100 steps of 0.1 s, one fragment, f32 both ways.
Exchange PlainExchange() {
  Exchange exchange;
  exchange.inner_step_count = 100;
  exchange.fragment_elements = {1000000};
  return exchange;
}

Compute PlainCompute() {
  Compute compute;
  compute.step_seconds = 0.1;
  return compute;
}

// 1 MB/s each way, all of it payload.
Link PlainLink() {
  Link link;
  link.up_bytes_per_second = link.down_bytes_per_second = 1e6;
  link.payload_share = 1;
  return link;
}

Service FreeService() {
  Service service;
  service.merge_bytes_per_second = kInfinity;
  service.encode_bytes_per_second = kInfinity;
  service.decode_bytes_per_second = kInfinity;
  service.commit_seconds = 0;
  return service;
}

Forecast MustPredict(const Exchange& exchange, const Compute& compute,
                     const Link& link, const Service& service) {
  const absl::StatusOr<Forecast> forecast =
      Predict(exchange, compute, link, service);
  EXPECT_TRUE(forecast.ok()) << forecast.status();
  return forecast.value_or(Forecast());
}

TEST(ForecastTest, WithoutOverlapARoundIsComputingPushingAndPulling) {
  const Forecast forecast =
      MustPredict(PlainExchange(), PlainCompute(), PlainLink(), FreeService());
  EXPECT_DOUBLE_EQ(forecast.compute_seconds, 10);
  EXPECT_DOUBLE_EQ(forecast.round_seconds, 10 + 4 + 4);
  EXPECT_DOUBLE_EQ(forecast.utilization, 10.0 / 18);
  EXPECT_EQ(forecast.up_bytes, 4000000);
  EXPECT_EQ(forecast.down_bytes, 4000000);
  EXPECT_DOUBLE_EQ(forecast.up_bytes_per_hour, 4e6 * 3600 / 18);
}

TEST(ForecastTest, EveryPartOfARoundTakesItsTime) {
  Link link = PlainLink();
  link.round_trip_seconds = 0.5;
  link.payload_share = 0.5;
  Service service = FreeService();
  service.island_count = 3;
  service.merge_bytes_per_second = 12e6;
  service.encode_bytes_per_second = 4e6;
  service.decode_bytes_per_second = 8e6;
  service.commit_seconds = 0.25;
  service.save_seconds = 0.125;
  Compute compute = PlainCompute();
  compute.slowest_ratio = 1.5;
  const auto seconds = [&](const Exchange& exchange) {
    return MustPredict(exchange, compute, link, service).round_seconds;
  };
  const double expected = 10 + 5 /* slowest */ + 8 + 8 + 2 * 0.5 +
                          1 /* merge */ + 0.25 + 1 /* encode */ +
                          0.5 /* decode */ + 0.125 /* save */;
  Exchange exchange = PlainExchange();
  EXPECT_DOUBLE_EQ(seconds(exchange), expected);
  // Shards answer a header first.
  exchange.header_trip_count = 1;
  EXPECT_DOUBLE_EQ(seconds(exchange), expected + 0.5);
  // With a verdict, contributions are read and decided twice.
  exchange.header_trip_count = 0;
  exchange.merge_pass_count = 2;
  EXPECT_DOUBLE_EQ(seconds(exchange), expected + 1 + 0.25);
}

TEST(ForecastTest, FragmentsMeetTheirTripsAndSavesAsTheyGo) {
  Exchange exchange = PlainExchange();
  exchange.fragment_elements.assign(4, 250000);
  Link link = PlainLink();
  link.round_trip_seconds = 0.5;
  Service service = FreeService();
  service.save_seconds = 0.125;
  const auto seconds = [&] {
    return MustPredict(exchange, PlainCompute(), link, service).round_seconds;
  };
  // Together: one local checkpoint, four pushes with their answers, four pulls.
  EXPECT_DOUBLE_EQ(seconds(), 10 + 0.125 + 4 * (1 + 0.5) + 4 * (1 + 0.5));
  // One after another, each waited for.
  exchange.streaming = true;
  EXPECT_DOUBLE_EQ(seconds(), 10 + 4 * (0.125 + 1 + 1 + 2 * 0.5));
  // With an overlap, this version's islands save in the background.
  exchange.overlap_step_count = 15;
  service = OfIslands(service, exchange);
  EXPECT_DOUBLE_EQ(seconds(), 10 + 4 * (0.125 + 1 + 1 + 2 * 0.5 - 1.5));
}

TEST(ForecastTest, StreamsStandForTheirWindows) {
  Link link = PlainLink();
  link.round_trip_seconds = 0.5;
  Flow flow;
  flow.stream_count = 4;
  flow.shard_count = 2;
  flow.stripe_bytes_min = 1e6;
  flow.window_bytes = 1e5;
  flow.up_chunk_bytes = 1e6;
  flow.down_chunk_bytes = 3e5;
  const auto seconds = [&] {
    const absl::StatusOr<Forecast> forecast =
        Predict(PlainExchange(), PlainCompute(), link, FreeService(), flow);
    EXPECT_TRUE(forecast.ok()) << forecast.status();
    return forecast.value_or(Forecast()).round_seconds;
  };
  // 1 MB per stream: the 0.9 MB past the window are one chunk up, three down.
  // 0.4 MB in flight cover 0.4 s of each round trip.
  EXPECT_NEAR(seconds(), 10 + 2 * 0.5 + 8 + (1 + 3) * (0.5 - 0.4), 1e-9);
  // Slower links are never idle for windows.
  link.up_bytes_per_second = link.down_bytes_per_second = 5e5;
  EXPECT_NEAR(seconds(), 10 + 2 * 0.5 + 16, 1e-9);
  // Faster links always are; a stream per shard then has twice the bytes.
  link.up_bytes_per_second = link.down_bytes_per_second = kInfinity;
  EXPECT_NEAR(seconds(), 10 + 2 * 0.5 + (1 + 3) * 0.5, 1e-9);
  flow.stripe_bytes_min = 1.5e6;
  EXPECT_NEAR(seconds(), 10 + 2 * 0.5 + (2 + 5) * 0.5, 1e-9);
  flow.window_bytes = 2e6;
  EXPECT_NEAR(seconds(), 10 + 2 * 0.5, 1e-9);
}

TEST(ForecastTest, ACodecBesideTheComputingIsLatencyThatOverlapHides) {
  Exchange exchange = PlainExchange();
  Service service = FreeService();
  service.encode_bytes_per_second = 4e6;
  service.decode_bytes_per_second = 4e6;
  service.codec_blocks = false;
  const auto seconds = [&] {
    return MustPredict(exchange, PlainCompute(), PlainLink(), service)
        .round_seconds;
  };
  EXPECT_DOUBLE_EQ(seconds(), 10 + 4 + 4 + 1 + 1);
  exchange.overlap_step_count = 99;
  EXPECT_NEAR(seconds(), 10 + 0.1, 1e-9);
  service.codec_blocks = true;
  EXPECT_DOUBLE_EQ(seconds(), 10 + 2);
  // This version's islands encode in the background if there is an overlap.
  service = OfIslands(service, exchange);
  EXPECT_NEAR(seconds(), 10 + 0.1, 1e-9);
  exchange.overlap_step_count = 0;
  service = OfIslands(service, exchange);
  EXPECT_TRUE(service.codec_blocks);
}

TEST(ForecastTest, ServersShareTheirLinkAmongIslands) {
  Service service = FreeService();
  service.island_count = 4;
  service.server_bytes_per_second = 2e6;  // Half a MB/s each.
  const Forecast forecast =
      MustPredict(PlainExchange(), PlainCompute(), PlainLink(), service);
  EXPECT_DOUBLE_EQ(forecast.round_seconds, 10 + 8 + 8);
}

TEST(ForecastTest, ASampledIslandStandsInTheOtherRounds) {
  Exchange exchange = PlainExchange();
  Link link = PlainLink();
  link.up_bytes_per_second = link.down_bytes_per_second = kInfinity;
  exchange.sample_fraction = 0.25;
  Service service = FreeService();
  service.island_count = 4;
  const Forecast forecast =
      MustPredict(exchange, PlainCompute(), link, service);
  EXPECT_DOUBLE_EQ(forecast.utilization, 0.25);
  EXPECT_EQ(forecast.bound, Bound::kSampling);
  // It fetches only in rounds that it takes part in.
  EXPECT_DOUBLE_EQ(forecast.up_bytes_per_hour, 4e6 * 360 * 0.25);
  EXPECT_DOUBLE_EQ(forecast.down_bytes_per_hour, 4e6 * 360 * 0.25);
}

TEST(ForecastTest, ASampledRoundIsThatOfTheIslandsThatItAsksFor) {
  Exchange exchange = PlainExchange();
  exchange.sample_fraction = 0.5;
  exchange.awaits_slowest = false;
  Service service = FreeService();
  service.merge_bytes_per_second = 4e6;  // One second each.
  service.server_bytes_per_second = 4e6;
  const auto forecast = [&](int island_count) {
    service.island_count = island_count;
    return MustPredict(exchange, PlainCompute(), PlainLink(), service);
  };
  // One of two: it waits for no other island and has the whole link.
  EXPECT_DOUBLE_EQ(forecast(2).round_seconds, 10 + 8 + 1);
  EXPECT_DOUBLE_EQ(forecast(2).utilization, 0.5 * 10 / (10 + 8 + 1));
  // Four of eight: half a step for the last of them.
  EXPECT_DOUBLE_EQ(forecast(8).round_seconds, 10 + 8 + 4 + 0.05);
  // At least a quorum.
  exchange.quorum = 6;
  EXPECT_EQ(AskedIslandCount(exchange, 8), 6);
  EXPECT_EQ(AskedIslandCount(exchange, 4), 4);
  EXPECT_DOUBLE_EQ(forecast(4).utilization, 10 / (10 + 8 + 4 + 0.05));
}

TEST(ForecastTest, OverlapHidesAnExchangeThatIsShortEnough) {
  Exchange exchange = PlainExchange();
  exchange.overlap_step_count = 80;  // 8 s: hides everything.
  EXPECT_DOUBLE_EQ(
      MustPredict(exchange, PlainCompute(), PlainLink(), FreeService())
          .utilization,
      1);
  exchange.overlap_step_count = 60;  // Hides all but 2 s.
  EXPECT_DOUBLE_EQ(
      MustPredict(exchange, PlainCompute(), PlainLink(), FreeService())
          .round_seconds,
      12);
}

// An elastic stream continues past the overlap.
TEST(ForecastTest, StepsAheadHideAnAnswerThatIsLate) {
  Exchange exchange = PlainExchange();
  exchange.streaming = true;
  exchange.overlap_step_count = 20;
  const auto seconds = [&](int64_t ahead_step_count) {
    exchange.ahead_step_count = ahead_step_count;
    return MustPredict(exchange, PlainCompute(), PlainLink(), FreeService())
        .round_seconds;
  };
  EXPECT_DOUBLE_EQ(seconds(0), 10 + 8 - 2);
  EXPECT_DOUBLE_EQ(seconds(30), 10 + 8 - 5);
  EXPECT_DOUBLE_EQ(seconds(60), 10);
  // At most a round's steps less one, for any limit.
  exchange.fragment_elements = {1000000, 500000};
  EXPECT_DOUBLE_EQ(seconds(1000), seconds(79));
  EXPECT_GT(seconds(0), seconds(79));
}

TEST(ForecastTest, NoOverlapHidesABusyLink) {
  Exchange exchange = PlainExchange();
  exchange.streaming = true;
  exchange.fragment_elements.assign(10, 500000);  // 20 s of uplink.
  exchange.overlap_step_count = 99;
  const Forecast forecast =
      MustPredict(exchange, PlainCompute(), PlainLink(), FreeService());
  EXPECT_DOUBLE_EQ(forecast.round_seconds, 20);
  EXPECT_EQ(forecast.bound, Bound::kUplink);
}

TEST(ForecastTest, NamesWhatARoundIsBoundBy) {
  Compute compute = PlainCompute();
  Link link = PlainLink();
  Service service = FreeService();
  const auto bound = [&] {
    const Forecast forecast =
        MustPredict(PlainExchange(), compute, link, service);
    EXPECT_FALSE(forecast.why.empty());
    return forecast.bound;
  };
  link.up_bytes_per_second = 5e5;
  EXPECT_EQ(bound(), Bound::kUplink);
  link.down_bytes_per_second = 1e5;
  EXPECT_EQ(bound(), Bound::kDownlink);
  link = PlainLink();
  link.up_bytes_per_second = link.down_bytes_per_second = 1e12;
  EXPECT_EQ(bound(), Bound::kCompute);
  link.round_trip_seconds = 1;
  EXPECT_EQ(bound(), Bound::kRoundTrip);
  link.round_trip_seconds = 0;
  service.merge_bytes_per_second = 1e6;
  EXPECT_EQ(bound(), Bound::kMerge);
  service = FreeService();
  service.decode_bytes_per_second = 1e6;
  EXPECT_EQ(bound(), Bound::kCodec);
  service = FreeService();
  compute.slowest_ratio = 2;
  EXPECT_EQ(bound(), Bound::kSlowest);
}

TEST(ForecastTest, TheBandwidthFor95IsWhereUtilizationReachesIt) {
  const Forecast forecast =
      MustPredict(PlainExchange(), PlainCompute(), PlainLink(), FreeService());
  // 8 MB in 10 s / 0.95 - 10 s.
  EXPECT_NEAR(forecast.bytes_per_second_for_95, 8e6 / (10 / 0.95 - 10), 20);
  Service service = FreeService();
  service.commit_seconds = 1;
  EXPECT_EQ(MustPredict(PlainExchange(), PlainCompute(), PlainLink(), service)
                .bytes_per_second_for_95,
            0);
}

TEST(ForecastTest, AnAsynchronousIslandWaitsForItsOwnMergeAlone) {
  Exchange exchange = PlainExchange();
  exchange.is_synchronous = false;
  exchange.awaits_slowest = false;
  Service service = FreeService();
  service.island_count = 5;
  service.merge_bytes_per_second = 4e6;
  Compute compute = PlainCompute();
  compute.slowest_ratio = 10;
  EXPECT_DOUBLE_EQ(
      MustPredict(exchange, compute, PlainLink(), service).round_seconds,
      10 + 4 + 4 + 1);
  // All merges still share the servers.
  service.island_count = 50;
  EXPECT_DOUBLE_EQ(
      MustPredict(exchange, compute, PlainLink(), service).round_seconds, 50);
}

TEST(ForecastTest, AnElasticRoundWaitsForAQuorumAndItsGraceWindow) {
  Exchange exchange = PlainExchange();
  exchange.awaits_slowest = false;
  Service service = FreeService();
  service.island_count = 3;
  Compute compute = PlainCompute();
  compute.slowest_ratio = 4;  // Steps of 0.4 s.
  const auto seconds = [&] {
    return MustPredict(exchange, compute, PlainLink(), service).round_seconds;
  };
  EXPECT_DOUBLE_EQ(seconds(), 10 + 8 + 0.2);
  exchange.quorum = 3;
  exchange.grace_seconds = 0.1;
  EXPECT_DOUBLE_EQ(seconds(), 10 + 8 + 0.2);
  exchange.quorum = 2;
  EXPECT_DOUBLE_EQ(seconds(), 10 + 8 + 0.1);
  exchange.grace_seconds = 1;
  EXPECT_DOUBLE_EQ(seconds(), 10 + 8 + 0.2);
  exchange.is_synchronous = false;
  EXPECT_DOUBLE_EQ(seconds(), 10 + 8);
}

TEST(ForecastTest, RefusesWhatIsOutOfRange) {
  const auto refused = [](auto change) {
    Exchange exchange = PlainExchange();
    Compute compute = PlainCompute();
    Link link = PlainLink();
    Service service = FreeService();
    change(exchange, compute, link, service);
    return absl::IsInvalidArgument(
        Predict(exchange, compute, link, service).status());
  };
  const double nan = std::nan("");
  EXPECT_FALSE(refused([](auto&, auto&, auto&, auto&) {}));
  EXPECT_TRUE(
      refused([](auto& e, auto&, auto&, auto&) { e.inner_step_count = 0; }));
  EXPECT_TRUE(refused(
      [](auto& e, auto&, auto&, auto&) { e.fragment_elements.clear(); }));
  EXPECT_TRUE(refused([](auto& e, auto&, auto&, auto&) {
    e.fragment_elements = {1, 0};
  }));
  EXPECT_TRUE(refused(
      [](auto& e, auto&, auto&, auto&) { e.overlap_step_count = 100; }));
  EXPECT_TRUE(
      refused([](auto& e, auto&, auto&, auto&) { e.ahead_step_count = -1; }));
  EXPECT_TRUE(
      refused([](auto& e, auto&, auto&, auto&) { e.sample_fraction = 0; }));
  EXPECT_TRUE(
      refused([&](auto&, auto& c, auto&, auto&) { c.step_seconds = nan; }));
  EXPECT_TRUE(
      refused([](auto&, auto& c, auto&, auto&) { c.slowest_ratio = 0.5; }));
  EXPECT_TRUE(
      refused([](auto&, auto&, auto& l, auto&) { l.up_bytes_per_second = 0; }));
  EXPECT_TRUE(refused(
      [&](auto&, auto&, auto& l, auto&) { l.round_trip_seconds = nan; }));
  EXPECT_TRUE(
      refused([](auto&, auto&, auto& l, auto&) { l.payload_share = 1.5; }));
  EXPECT_TRUE(
      refused([](auto&, auto&, auto&, auto& s) { s.island_count = 0; }));
  EXPECT_TRUE(
      refused([&](auto&, auto&, auto&, auto& s) { s.save_seconds = nan; }));
  EXPECT_TRUE(
      refused([](auto& e, auto&, auto&, auto&) { e.merge_pass_count = 0; }));
  EXPECT_TRUE(refused(
      [](auto&, auto&, auto&, auto& s) { s.merge_bytes_per_second = 0; }));
  EXPECT_TRUE(
      refused([](auto&, auto&, auto&, auto& s) { s.commit_seconds = -1; }));
}

TEST(ForecastTest, RefusesStreamsThatAreNone) {
  const auto refused = [](auto change) {
    Flow flow;
    change(flow);
    return absl::IsInvalidArgument(Predict(PlainExchange(), PlainCompute(),
                                           PlainLink(), FreeService(), flow)
                                       .status());
  };
  EXPECT_FALSE(refused([](Flow&) {}));
  EXPECT_TRUE(refused([](Flow& f) { f.stream_count = -1; }));
  EXPECT_TRUE(refused([](Flow& f) { f.shard_count = 0; }));
  EXPECT_TRUE(refused([](Flow& f) { f.window_bytes = std::nan(""); }));
  EXPECT_TRUE(refused([](Flow& f) { f.down_chunk_bytes = 0; }));
}

// The expected shares are those of an event-driven simulation of islands, links
// and servers with a billion parameters: 24 layers, steps of 0.1 s, rounds of 100 steps, two
// islands, 1 Gb/s and 20 ms, the codecs and the merge of an AMD EPYC guest
// (Zen 5).
TEST(ForecastTest, AgreesWithASimulationEventByEvent) {
  struct Case {
    int64_t fragment_count;  // 1: all at once; else they stream.
    int64_t overlap_step_count;
    CodecId up, down;
    double encode_bytes_per_second, decode_bytes_per_second;
    bool codec_blocks;
    double simulated;
  };
  const Case cases[] = {
      {1, 0, CodecId::kF32, CodecId::kF32, 7.849e9, 15.286e9, false, 0.125},
      {1, 0, CodecId::kInt8, CodecId::kBf16, 7.564e9, 19.367e9, true, 0.268},
      {8, 5, CodecId::kE3m0, CodecId::kE3m0, 6.71e9, 21.423e9, false, 0.602},
      {24, 5, CodecId::kE3m0, CodecId::kE3m0, 6.71e9, 21.423e9, false, 1},
      {24, 10, CodecId::kE3m0, CodecId::kE3m0, 6.71e9, 21.423e9, true, 0.927},
      {8, 99, CodecId::kE3m0, CodecId::kE3m0, 6.71e9, 21.423e9, true, 0.927},
      {1, 0, CodecId::kTopK, CodecId::kTwoBit, 2.499e9, 22.483e9, true, 0.664},
      {8, 5, CodecId::kTopK, CodecId::kTwoBit, 2.499e9, 22.483e9, false, 0.879},
      {8, 5, CodecId::kTopK, CodecId::kTwoBit, 2.499e9, 22.483e9, true, 0.849},
  };
  for (const Case& c : cases) {
    Exchange exchange = PlainExchange();
    exchange.fragment_elements.assign(c.fragment_count,
                                      1000000000 / c.fragment_count);
    exchange.streaming = c.fragment_count > 1;
    exchange.overlap_step_count = c.overlap_step_count;
    exchange.up_codec = c.up;
    exchange.down_codec = c.down;
    Link link;
    link.up_bytes_per_second = link.down_bytes_per_second = 1e9 / 8;
    link.round_trip_seconds = 0.02;
    Service service;
    service.island_count = 2;
    service.merge_bytes_per_second = 8.91e9;
    service.encode_bytes_per_second = c.encode_bytes_per_second;
    service.decode_bytes_per_second = c.decode_bytes_per_second;
    service.codec_blocks = c.codec_blocks;
    EXPECT_NEAR(
        MustPredict(exchange, PlainCompute(), link, service).utilization,
        c.simulated, 0.001)
        << c.fragment_count << " fragments, overlap " << c.overlap_step_count
        << ", codec " << codec::CodecName(c.up);
  }
}

TEST(ForecastTest, MoreOfAnythingNeverMakesItSlower) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const auto log_uniform = [&](double low, double high) {
    return std::exp(std::uniform_real_distribution<double>(
        std::log(low), std::log(high))(random));
  };
  for (int i = 0; i < 2000; ++i) {
    Exchange exchange;
    exchange.inner_step_count = 1 + random() % 200;
    exchange.streaming = random() % 2 == 0;
    exchange.overlap_step_count = random() % exchange.inner_step_count;
    exchange.fragment_elements.resize(1 + random() % 20);
    for (int64_t& elements : exchange.fragment_elements) {
      elements = static_cast<int64_t>(log_uniform(1, 1e9));
    }
    Compute compute;
    compute.step_seconds = log_uniform(1e-3, 10);
    Link link = PlainLink();
    link.up_bytes_per_second = log_uniform(1e3, 1e10);
    link.down_bytes_per_second = log_uniform(1e3, 1e10);
    link.round_trip_seconds = log_uniform(1e-4, 1);
    Service service;
    service.island_count = 1 + random() % 10;
    const Forecast before = MustPredict(exchange, compute, link, service);
    EXPECT_GT(before.utilization, 0);
    EXPECT_LE(before.utilization, 1);
    Link faster = link;
    faster.up_bytes_per_second *= log_uniform(1, 10);
    faster.round_trip_seconds /= log_uniform(1, 10);
    EXPECT_GE(MustPredict(exchange, compute, faster, service).utilization,
              before.utilization * (1 - 1e-12));
    Service stronger = service;
    stronger.merge_bytes_per_second *= 2;
    EXPECT_GE(MustPredict(exchange, compute, link, stronger).utilization,
              before.utilization * (1 - 1e-12));
  }
}

TEST(CodecSizeTest, EveryCodecHasANameThatFindsIt) {
  for (const CodecId codec : codec::AllCodecs()) {
    EXPECT_EQ(FindCodecNamed(codec::CodecName(codec)), codec);
  }
  EXPECT_FALSE(FindCodecNamed("f16").has_value());
  EXPECT_FALSE(FindCodecNamed("").has_value());
}

TEST(CodecSizeTest, ABlockTakesWhatItsFormatSays) {
  EXPECT_EQ(EncodedBytes(CodecId::kF32, 3 * 4096), 3 * 16384);
  EXPECT_EQ(EncodedBytes(CodecId::kBf16, 4096), 8192);
  EXPECT_EQ(EncodedBytes(CodecId::kF32, 4097), 16384 + 4);
  EXPECT_EQ(EncodedBytes(CodecId::kBf16, 3), 6);
  EXPECT_EQ(EncodedBytes(CodecId::kTopK, 0), 0);
}

TEST(CodecSizeTest, TopKIsAtLeast205TimesSmallerThanF32) {
  const int64_t elements = int64_t{4096} * 1000000;
  EXPECT_GE(EncodedBytes(CodecId::kF32, elements),
            205 * EncodedBytes(CodecId::kTopK, elements));
}

TEST(CodecSizeTest, EveryElementIsInOneBlock) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 1000; ++i) {
    const int64_t n = static_cast<int64_t>(random() % 2000000000) + 4096;
    for (const CodecId codec : codec::AllCodecs()) {
      const int64_t block =
          static_cast<int64_t>(codec::GetCodec(codec).EncodedBytes(4096));
      EXPECT_EQ(EncodedBytes(codec, n), EncodedBytes(codec, n - 4096) + block);
      EXPECT_LE(EncodedBytes(codec, n), (n + 4095) / 4096 * block) << n;
    }
  }
}

}  // namespace
}  // namespace atl::worker::planner
