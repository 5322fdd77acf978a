#include "tests/benchmarks/control/floods.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "atoll/v1/enrolment_service.grpc.pb.h"
#include "atoll/v1/island_service.grpc.pb.h"
#include "atoll/v1/run_service.grpc.pb.h"
#include "atoll/v1/training_state_service.grpc.pb.h"
#include "base/features/features.h"
#include "base/status/status_macros.h"
#include "grpcpp/channel.h"

namespace atl::benchmarks {
namespace {

using Channel = std::shared_ptr<grpc::Channel>;

constexpr absl::Duration kTimeout = absl::Seconds(60);
constexpr absl::Duration kErrorWait = absl::Milliseconds(100);
constexpr int kPageSize = 500;
constexpr int kTensorCount = 30'000;
constexpr int kStreamCount = 4096;
constexpr int kHandshakeCount = 64;
// As many as one certificate may have open (base/rpc/call_quota.h).
constexpr int kCertificateStreamsMax = 256;

// Calls that a flood keeps outstanding.
int CountOutstanding(const CaseOptions& options) {
  return options.certificate_count == 1 ? 200 : 1000;
}

// Begins one call of the caller with this number. `done` is called once, within
// the loop.
using FloodCall = std::function<void(
    CallLoop& loop, int caller,
    std::function<void(const absl::Status& status)> done)>;

// Callers that want too much. They have a thread and a loop of their own, at a
// lower priority, so that the islands' latencies are not their own.
class Flood {
 public:
  // Keeps `outstanding` calls under way, from all callers in turn.
  Flood(FloodCall call, int caller_count, int outstanding)
      : call_(std::move(call)),
        caller_count_(caller_count),
        outstanding_(outstanding) {}

  void Begin() {
    thread_ = std::jthread([this](std::stop_token stop) {
      setpriority(PRIO_PROCESS, gettid(), 10);
      CallLoop loop;
      for (int i = 0; i < outstanding_; ++i) {
        CallAgain(loop, i % caller_count_);
      }
      while (!stop.stop_requested()) {
        loop.RunUntil(absl::Now() + absl::Milliseconds(50));
      }
    });
  }
  // Ends all its calls.
  void End() { thread_ = {}; }

  std::atomic<int64_t> count = 0;  // Answers.
  std::atomic<int64_t> refused_count = 0;

 private:
  // Calls that are refused come again a little later, whatever delay the
  // answer asks for.
  void CallAgain(CallLoop& loop, int caller) {
    call_(loop, caller, [this, &loop, caller](const absl::Status& status) {
      ++count;
      const bool is_refused = absl::IsResourceExhausted(status) ||
                              absl::IsUnavailable(status) ||
                              absl::IsDeadlineExceeded(status);
      refused_count += is_refused ? 1 : 0;
      loop.At(absl::Now() + (is_refused ? kErrorWait : absl::ZeroDuration()),
              [this, &loop, caller] { CallAgain(loop, caller); });
    });
  }

  const FloodCall call_;
  const int caller_count_;
  const int outstanding_;
  std::jthread thread_;
};

// Connects one after the other: handshakes have a case of their own.
absl::StatusOr<std::vector<Channel>> DialAll(ControlLoad& load,
                                             const std::string& role, int count,
                                             bool is_bare = false) {
  std::vector<Channel> channels;
  for (int i = 0; i < count; ++i) {
    const std::string name = absl::StrCat(role, ":flood-", i);
    ASSIGN_OR_RETURN(channels.emplace_back(),
                     is_bare ? load.control().DialBare(name)
                             : load.control().Dial(name));
    bool is_done = false;
    load.loop().Connect(channels.back(), kTimeout,
                        [&](bool /*connected*/) { is_done = true; });
    load.loop().Run([&] { return is_done; }, absl::InfiniteFuture());
  }
  return channels;
}

template <typename Stub, typename Request, typename Response>
FloodCall MakeCall(std::vector<Channel> channels,
                   std::unique_ptr<grpc::ClientAsyncResponseReader<Response>> (
                       Stub::*method)(grpc::ClientContext*, const Request&,
                                      grpc::CompletionQueue*),
                   const Request& request) {
  return [channels = std::move(channels), method, request](
             CallLoop& loop, int caller,
             std::function<void(const absl::Status&)> done) {
    loop.Call<Stub, Request, Response>(
        channels[caller], method, request, kTimeout, "",
        [done = std::move(done)](const absl::Status& status, Response&,
                                 absl::Duration) { done(status); });
  };
}

FloodCall MakeJoins(std::vector<Channel> channels, const std::string& run_id) {
  using Stub = v1::IslandService::Stub;
  return [channels = std::move(channels), run_id](
             CallLoop& loop, int caller,
             std::function<void(const absl::Status&)> done) {
    v1::JoinRequest request;
    request.set_run_id(run_id);
    request.set_island_id(absl::StrCat("flood-", caller));
    v1::IslandCapabilities& capabilities = *request.mutable_capabilities();
    capabilities.add_devices()->set_kind("cpu");
    capabilities.set_features(ProgramFeatures());
    loop.Call<Stub, v1::JoinRequest, v1::JoinResponse>(
        channels[caller], &Stub::AsyncJoin, request, absl::Seconds(10), "",
        [done = std::move(done)](const absl::Status& status, v1::JoinResponse&,
                                 absl::Duration) { done(status); });
  };
}

absl::StatusOr<Row> RunFlood(const std::string& name,
                             const CaseOptions& options, ControlLoad& load,
                             const LoadOptions& size, Flood& flood) {
  Row row = BeginRow(name, size);
  row.Add("certificates", options.certificate_count);
  int64_t log_bytes = 0;
  RETURN_IF_ERROR(MeasureFlood(
      options, load, row,
      [&] {
        log_bytes = load.control().LogBytes();
        flood.Begin();
      },
      [&] { return flood.count > flood.refused_count; },
      [&] {
        flood.End();
        log_bytes = load.control().LogBytes() - log_bytes;
      }));
  row.Add("flood_calls", flood.count.load())
      .Add("flood_refused", flood.refused_count.load())
      .Add("log_bytes", log_bytes);
  return row;
}

// Floods with calls of `method`, each caller with a certificate of `role`.
// `load` has started.
template <typename Method, typename Request>
absl::StatusOr<Row> RunCallFlood(const std::string& name,
                                 const CaseOptions& options, ControlLoad& load,
                                 const LoadOptions& size,
                                 const std::string& role, Method method,
                                 const Request& request) {
  ASSIGN_OR_RETURN(std::vector<Channel> channels,
                   DialAll(load, role, options.certificate_count));
  Flood flood(MakeCall(std::move(channels), method, request),
              options.certificate_count, CountOutstanding(options));
  return RunFlood(name, options, load, size, flood);
}

}  // namespace

absl::StatusOr<Row> RunGetRunFlood(const CaseOptions& options) {
  const LoadOptions size = MakeOptions(options, {50, 8});
  ControlLoad load(size);
  RETURN_IF_ERROR(load.Start());
  v1::RunSpec spec = load.MakeSpec(1);
  spec.mutable_layout()->clear_tensors();
  const v1::RunSpec small = load.MakeSpec(1);
  for (int i = 0; i < kTensorCount; ++i) {
    v1::TensorSpec& tensor = *spec.mutable_layout()->add_tensors();
    tensor = small.layout().tensors(i % size.fragment_count);
    tensor.set_name(absl::StrCat("t", i));
  }
  RETURN_IF_ERROR(load.CreateRun("many-tensors", spec));
  v1::GetRunRequest request;
  request.set_run_id("many-tensors");
  return RunCallFlood("getrun_flood", options, load, size, "reader",
                      &v1::RunService::Stub::AsyncGetRun, request);
}

absl::StatusOr<Row> RunListRoundsFlood(const CaseOptions& options) {
  CaseSize own = {50, 8};
  own.filled_rounds = 16;
  const LoadOptions size = MakeOptions(options, own);
  ControlLoad load(size);
  RETURN_IF_ERROR(load.Start());
  v1::ListRoundsRequest request;
  request.set_run_id(load.run_id(0));
  request.set_page_size(kPageSize);
  return RunCallFlood("listrounds_flood", options, load, size, "reader",
                      &v1::TrainingStateService::Stub::AsyncListRounds, request);
}

absl::StatusOr<Row> RunListIslandsFlood(const CaseOptions& options) {
  const LoadOptions size = MakeOptions(options, {300, 1});
  ControlLoad load(size);
  RETURN_IF_ERROR(load.Start());
  v1::ListIslandsRequest request;
  request.set_run_id(load.run_id(0));
  request.set_page_size(kPageSize);
  return RunCallFlood("listislands_flood", options, load, size, "reader",
                      &v1::TrainingStateService::Stub::AsyncListIslands, request);
}

absl::StatusOr<Row> RunEnrolmentFlood(const CaseOptions& options) {
  const LoadOptions size = MakeOptions(options, {50, 8});
  ControlLoad load(size);
  RETURN_IF_ERROR(load.Start());
  v1::ConsumeTokenRequest request;
  request.set_token_id("t-0000000000000000");
  request.set_token_secret(std::string(32, 's'));
  request.set_run_id(load.run_id(0));
  request.set_role(v1::ENROLLED_ROLE_ISLAND);
  request.set_key_sha256(std::string(32, 'k'));
  request.mutable_lifetime()->set_seconds(3600);
  return RunCallFlood("enrolment_flood", options, load, size, "gate",
                      &v1::EnrolmentService::Stub::AsyncConsumeToken, request);
}

absl::StatusOr<Row> RunWatchRunFlood(const CaseOptions& options) {
  const LoadOptions size = MakeOptions(options, {50, 8});
  ControlLoad load(size);
  RETURN_IF_ERROR(load.Start());
  const int certificate_count =
      std::max(options.certificate_count == 1 ? 1 : 16,
               options.certificate_count);
  ASSIGN_OR_RETURN(const std::vector<Channel> channels,
                   DialAll(load, "reader", certificate_count));
  v1::WatchRunRequest request;
  request.set_run_id(load.run_id(0));
  std::atomic<int64_t> event_count = 0;
  std::atomic<int64_t> event_bytes = 0;
  Flood flood(
      [&](CallLoop& loop, int caller,
          std::function<void(const absl::Status&)> done) {
        loop.Open(channels[caller], "/atoll.v1.TrainingStateService/WatchRun",
                  request, "",
                  {.on_message =
                       [&](grpc::ByteBuffer& message) {
                         ++event_count;
                         event_bytes += static_cast<int64_t>(message.Length());
                       },
                   .on_end = std::move(done)});
      },
      certificate_count,
      std::min(kStreamCount, certificate_count * kCertificateStreamsMax));
  Row row = BeginRow("watchrun_flood", size);
  row.Add("certificates", options.certificate_count);
  RETURN_IF_ERROR(MeasureFlood(
      options, load, row, [&] { flood.Begin(); },
      [&] { return event_count > 0; }, [&] { flood.End(); }));
  row.Add("flood_ended", flood.count.load())
      .Add("flood_refused", flood.refused_count.load())
      .Add("flood_events", event_count.load())
      .Add("flood_event_bytes", event_bytes.load());
  return row;
}

absl::StatusOr<Row> RunJoinFlood(const CaseOptions& options) {
  const LoadOptions size = MakeOptions(options, {300, 1});
  ControlLoad load(size);
  RETURN_IF_ERROR(load.Start());
  ASSIGN_OR_RETURN(std::vector<Channel> channels,
                   DialAll(load, "island", options.certificate_count));
  Flood flood(MakeJoins(std::move(channels), load.run_id(0)),
              options.certificate_count, options.certificate_count);
  return RunFlood("join_flood", options, load, size, flood);
}

absl::StatusOr<Row> RunHandshakeFlood(const CaseOptions& options) {
  const LoadOptions size = MakeOptions(options, {50, 8});
  ControlLoad load(size);
  RETURN_IF_ERROR(load.Start());
  // The certificates are made here: the flood's thread only reads them.
  RETURN_IF_ERROR(
      DialAll(load, "reader", options.certificate_count).status());
  Flood flood(
      [&](CallLoop& loop, int caller,
          std::function<void(const absl::Status&)> done) {
        auto channel =
            load.control().Dial(absl::StrCat("reader:flood-", caller));
        if (!channel.ok()) return done(channel.status());
        loop.Connect(*std::move(channel), absl::Seconds(5),
                     [done = std::move(done)](bool connected) {
                       done(connected ? absl::OkStatus()
                                      : absl::UnavailableError("not in time"));
                     });
      },
      options.certificate_count, kHandshakeCount);
  return RunFlood("handshake_flood", options, load, size, flood);
}

absl::StatusOr<Row> RunBareFlood(const CaseOptions& options) {
  constexpr absl::Duration kHeartbeatEvery = absl::Seconds(2);
  CaseSize own = {50, 1};
  own.filled_rounds = 0;
  const LoadOptions size = MakeOptions(options, own);
  ControlLoad load(size);
  RETURN_IF_ERROR(load.Start());
  RETURN_IF_ERROR(load.control().StartBare());
  ASSIGN_OR_RETURN(
      const std::vector<Channel> islands,
      DialAll(load, "island", size.island_count, /*is_bare=*/true));
  ASSIGN_OR_RETURN(
      const std::vector<Channel> readers,
      DialAll(load, "reader", options.certificate_count, /*is_bare=*/true));
  std::vector<double> heartbeat_ms;
  std::function<void(int)> beat = [&](int island) {
    load.loop().Call<v1::IslandService::Stub, v1::HeartbeatRequest,
                     v1::HeartbeatResponse>(
        islands[island], &v1::IslandService::Stub::AsyncHeartbeat,
        v1::HeartbeatRequest(), kTimeout, "",
        [&heartbeat_ms](const absl::Status& /*status*/, v1::HeartbeatResponse&,
                        absl::Duration took) {
          heartbeat_ms.push_back(absl::ToDoubleMilliseconds(took));
        });
    load.loop().At(absl::Now() + kHeartbeatEvery,
                   [&beat, island] { beat(island); });
  };
  for (int i = 0; i < size.island_count; ++i) {
    load.loop().At(absl::Now() + i * kHeartbeatEvery / size.island_count,
                   [&beat, i] { beat(i); });
  }
  Flood flood(MakeCall(readers, &v1::IslandService::Stub::AsyncHeartbeat,
                       v1::HeartbeatRequest()),
              options.certificate_count, CountOutstanding(options));
  load.loop().RunUntil(absl::Now() + kHeartbeatEvery);
  heartbeat_ms.clear();
  load.BeginMeasuring();
  flood.Begin();
  load.loop().RunUntil(absl::Now() + options.flood);
  const Measures measures = load.Measure();
  const double p99 = Quantile(heartbeat_ms, 0.99);
  Row row = BeginRow("bare_flood", size);
  row.Add("certificates", options.certificate_count)
      .Add("heartbeat_ms_p50", Quantile(heartbeat_ms, 0.5))
      .Add("heartbeat_ms_p99", p99)
      .Add("probe_ms_p50", Quantile(measures.probe_ms, 0.5))
      .Add("probe_ms_p99", Quantile(measures.probe_ms, 0.99))
      .Add("heartbeats", static_cast<int64_t>(heartbeat_ms.size()))
      .Add("heartbeat_ratio_p99", p99 / Quantile(measures.probe_ms, 0.99))
      .Add("flood_calls", flood.count.load());
  flood.End();
  return row;
}

absl::StatusOr<Row> RunFiveRuns(const CaseOptions& options) {
  CaseSize own = {1000, 1};
  own.runs = 5;
  const LoadOptions size = MakeOptions(options, own);
  ControlLoad load(size);
  RETURN_IF_ERROR(load.Start());
  const int certificate_count = options.certificate_count;
  ASSIGN_OR_RETURN(const std::vector<Channel> readers,
                   DialAll(load, "reader", certificate_count));
  ASSIGN_OR_RETURN(std::vector<Channel> islands,
                   DialAll(load, "island", certificate_count));
  v1::GetRunRequest get;
  get.set_run_id(load.run_id(0));
  v1::ListRoundsRequest rounds;
  rounds.set_run_id(load.run_id(0));
  v1::ListIslandsRequest members;
  members.set_run_id(load.run_id(0));
  members.set_page_size(kPageSize);
  using State = v1::TrainingStateService::Stub;
  const std::vector<FloodCall> calls = {
      MakeCall(readers, &v1::RunService::Stub::AsyncGetRun, get),
      MakeCall(readers, &State::AsyncListRounds, rounds),
      MakeCall(readers, &State::AsyncListIslands, members),
      MakeJoins(std::move(islands), load.run_id(0))};
  size_t turn = 0;
  Flood flood(
      [&](CallLoop& loop, int caller,
          std::function<void(const absl::Status&)> done) {
        calls[turn++ % calls.size()](loop, caller, std::move(done));
      },
      certificate_count, CountOutstanding(options));
  return RunFlood("five_runs", options, load, size, flood);
}

}  // namespace atl::benchmarks
