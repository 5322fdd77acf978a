#include "tests/benchmarks/control/control_cases.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "atoll/v1/island_service.grpc.pb.h"
#include "atoll/v1/run_service.grpc.pb.h"
#include "atoll/v1/training_state_service.pb.h"
#include "base/features/features.h"
#include "base/status/status_macros.h"
#include "grpcpp/channel.h"

namespace atl::benchmarks {
namespace {

constexpr int kOutstandingMax = 200;
constexpr int kTensorCount = 30'000;
constexpr int kStreamCount = 4096;
// As many as one certificate may have open (base/rpc/call_quota.h).
constexpr int kConnectionStreamsMax = 256;
constexpr double kLostPart = 0.2;
constexpr double kOverload = 3;
constexpr absl::Duration kPatience = absl::Minutes(5);

struct Size {
  int islands;
  int fragments;
  int servers = 2;
  bool elastic = false;
};

LoadOptions MakeOptions(const CaseOptions& options, const Size& size) {
  LoadOptions load;
  load.directory = options.directory;
  load.coordinator_binary = options.coordinator_binary;
  load.island_count =
      options.island_count > 0 ? options.island_count : size.islands;
  load.fragment_count = size.fragments;
  load.server_count = size.servers;
  load.tls = options.tls;
  load.filled_round_count = 1;
  load.elastic = size.elastic;
  return load;
}

Row BeginRow(const std::string& name, const LoadOptions& load) {
  Row row;
  row.Add("case", name)
      .Add("islands", load.island_count)
      .Add("fragments", load.fragment_count)
      .Add("servers", load.server_count)
      .Add("tls", load.tls);
  return row;
}

// Fields of one span; `prefix` is "idle_" or "".
void AddMeasures(const Measures& measures, const std::string& prefix,
                 Row& row) {
  row.Add(prefix + "heartbeat_ms_p50", Quantile(measures.heartbeat_ms, 0.5))
      .Add(prefix + "heartbeat_ms_p99", Quantile(measures.heartbeat_ms, 0.99))
      .Add(prefix + "probe_ms_p50", Quantile(measures.probe_ms, 0.5))
      .Add(prefix + "probe_ms_p99", Quantile(measures.probe_ms, 0.99))
      .Add(prefix + "coordinator_cores",
           measures.coordinator_cpu_s / measures.wall_s)
      .Add(prefix + "island_plans", measures.island_plans)
      .Add(prefix + "errors", measures.errors)
      .Add(prefix + "rss_mib", measures.rss_mib);
}

// Rounds that begin within `span`.
int CountRounds(absl::Duration span, absl::Duration pace) {
  return std::max(1, static_cast<int>(span / pace));
}

// Measures rounds without the flood, and then rounds with it, until it has had
// an effect.
absl::Status MeasureFlood(const CaseOptions& options, ControlLoad& load,
                          Row& row, const std::function<void()>& begin_flood,
                          const std::function<bool()>& has_effect,
                          const std::function<void()>& end_flood) {
  RETURN_IF_ERROR(load.PlayRounds(1, options.pace));
  load.BeginMeasuring();
  RETURN_IF_ERROR(load.PlayRounds(CountRounds(options.flood, options.pace),
                                  options.pace));
  AddMeasures(load.Measure(), "idle_", row);
  load.BeginMeasuring();
  begin_flood();
  const absl::Time end = absl::Now() + options.flood;
  load.BeginRounds(CountRounds(options.flood, options.pace), options.pace);
  load.loop().Run([&] { return absl::Now() >= end && has_effect(); },
                  end + kPatience);
  AddMeasures(load.Measure(), "", row);
  end_flood();
  return load.FinishRounds();
}

// A caller that wants too much. It has a thread and a loop of its own, at a
// lower priority, so that the islands' latencies are not its own.
class Flood {
 public:
  // `begin` makes the first calls.
  explicit Flood(std::function<void(CallLoop& loop)> begin)
      : begin_(std::move(begin)) {}

  void Begin() {
    thread_ = std::jthread([this](std::stop_token stop) {
      setpriority(PRIO_PROCESS, gettid(), 10);
      CallLoop loop;
      begin_(loop);
      while (!stop.stop_requested()) {
        loop.RunUntil(absl::Now() + absl::Milliseconds(50));
      }
    });
  }
  // Ends all its calls.
  void End() { thread_ = {}; }

  // Counts an answer, and calls again: after an error not at once.
  void Repeat(CallLoop& loop, const absl::Status& status,
              std::function<void()> call) {
    ++count;
    if (status.ok()) return call();
    ++error_count;
    loop.At(absl::Now() + absl::Milliseconds(100), std::move(call));
  }

  std::atomic<int64_t> count = 0;  // Answers, or messages of streams.
  std::atomic<int64_t> error_count = 0;

 private:
  const std::function<void(CallLoop& loop)> begin_;
  std::jthread thread_;
};

}  // namespace

absl::StatusOr<Row> RunGetRunFlood(const CaseOptions& options) {
  using Stub = v1::RunService::Stub;
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
  ASSIGN_OR_RETURN(const auto channel, load.control().Dial("reader:flood"));
  v1::GetRunRequest request;
  request.set_run_id("many-tensors");
  std::function<void(CallLoop&)> call;
  Flood flood([&](CallLoop& loop) {
    for (int i = 0; i < kOutstandingMax; ++i) call(loop);
  });
  call = [&](CallLoop& loop) {
    loop.Call<Stub, v1::GetRunRequest, v1::GetRunResponse>(
        channel, &Stub::AsyncGetRun, request, absl::Seconds(60), "",
        [&](const absl::Status& status, v1::GetRunResponse&, absl::Duration) {
          flood.Repeat(loop, status, [&] { call(loop); });
        });
  };
  Row row = BeginRow("getrun_flood", size);
  RETURN_IF_ERROR(MeasureFlood(
      options, load, row, [&] { flood.Begin(); },
      [&] { return flood.count > 0; }, [&] { flood.End(); }));
  row.Add("flood_calls", flood.count.load())
      .Add("flood_errors", flood.error_count.load());
  return row;
}

absl::StatusOr<Row> RunWatchRunFlood(const CaseOptions& options) {
  const LoadOptions size = MakeOptions(options, {50, 8});
  ControlLoad load(size);
  RETURN_IF_ERROR(load.Start());
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (int i = 0; i < kStreamCount / kConnectionStreamsMax; ++i) {
    ASSIGN_OR_RETURN(channels.emplace_back(),
                     load.control().Dial(absl::StrCat("reader:flood-", i)));
  }
  v1::WatchRunRequest request;
  request.set_run_id(load.run_id(0));
  int64_t event_bytes = 0;  // Of the flood's thread.
  Flood flood([&](CallLoop& loop) {
    for (int i = 0; i < kStreamCount; ++i) {
      loop.Open(channels[i / kConnectionStreamsMax],
                "/atoll.v1.TrainingStateService/WatchRun", request, "",
                {.on_message =
                     [&](grpc::ByteBuffer& message) {
                       ++flood.count;
                       event_bytes += static_cast<int64_t>(message.Length());
                     },
                 .on_end =
                     [&](const absl::Status&) { ++flood.error_count; }});
    }
  });
  Row row = BeginRow("watchrun_flood", size);
  RETURN_IF_ERROR(MeasureFlood(
      options, load, row, [&] { flood.Begin(); },
      [&] { return flood.count > 0; }, [&] { flood.End(); }));
  row.Add("flood_streams", kStreamCount)
      .Add("flood_refused", flood.error_count.load())
      .Add("flood_events", flood.count.load())
      .Add("flood_event_bytes", event_bytes);
  return row;
}

absl::StatusOr<Row> RunJoinFlood(const CaseOptions& options) {
  using Stub = v1::IslandService::Stub;
  const LoadOptions size = MakeOptions(options, {300, 1});
  ControlLoad load(size);
  RETURN_IF_ERROR(load.Start());
  ASSIGN_OR_RETURN(const auto channel, load.control().Dial("island:flooder"));
  v1::JoinRequest request;
  request.set_run_id(load.run_id(0));
  request.set_island_id("flooder");
  v1::IslandCapabilities& capabilities = *request.mutable_capabilities();
  capabilities.add_devices()->set_kind("cpu");
  capabilities.set_features(ProgramFeatures());
  std::function<void(CallLoop&)> call;
  Flood flood([&](CallLoop& loop) { call(loop); });
  call = [&](CallLoop& loop) {
    loop.Call<Stub, v1::JoinRequest, v1::JoinResponse>(
        channel, &Stub::AsyncJoin, request, absl::Seconds(10), "",
        [&](const absl::Status& status, v1::JoinResponse&, absl::Duration) {
          flood.Repeat(loop, status, [&] { call(loop); });
        });
  };
  Row row = BeginRow("join_flood", size);
  int64_t log_bytes = 0;
  RETURN_IF_ERROR(MeasureFlood(
      options, load, row,
      [&] {
        log_bytes = load.control().LogBytes();
        flood.Begin();
      },
      [&] { return flood.count > 0; },
      [&] {
        flood.End();
        log_bytes = load.control().LogBytes() - log_bytes;
      }));
  row.Add("flood_calls", flood.count.load())
      .Add("flood_errors", flood.error_count.load())
      .Add("log_bytes", log_bytes);
  return row;
}

absl::StatusOr<Row> RunLost(const CaseOptions& options) {
  const LoadOptions size = MakeOptions(options, {1000, 24});
  ControlLoad load(size);
  RETURN_IF_ERROR(load.Start());
  const int64_t version = load.server(0).FindVersion(load.run_id(0));
  load.islands().SetPlanHandler([&](int island, const v1::IslandPlan& plan) {
    for (const v1::ContributionKey& key : plan.needs_repush()) {
      v1::OpenRound round;
      round.set_fragment(key.fragment());
      round.set_version(version);
      const v1::ContributionInfo info =
          load.islands().MakeContribution(island, round);
      if (info.key().seq() != key.seq()) continue;
      for (int i = 0; i < size.server_count; ++i) {
        load.server(i).Store(plan.run_id(), info);
      }
    }
  });
  load.BeginRounds(1, options.pace);
  // Three quarters of the islands have pushed by then.
  load.loop().RunUntil(absl::Now() + 0.75 * options.pace);
  load.BeginMeasuring();
  const absl::Time begin = absl::Now();
  const int lost = load.server(0).RestartWithout(kLostPart);
  RETURN_IF_ERROR(load.FinishRounds());
  Row row = BeginRow("lost", size);
  row.Add("lost", lost)
      .Add("seconds", absl::ToDoubleSeconds(absl::Now() - begin))
      .Add("report_ms_max", load.server(0).counts().report_ms_max);
  AddMeasures(load.Measure(), "", row);
  return row;
}

absl::StatusOr<Row> RunRejoin(const CaseOptions& options) {
  const LoadOptions size = MakeOptions(options, {1000, 1});
  ControlLoad load(size);
  RETURN_IF_ERROR(load.Start());
  load.islands().ForgetPlans();
  load.BeginMeasuring();
  const absl::Time begin = absl::Now();
  for (int i = 0; i < size.island_count; ++i) load.islands().Rejoin(i);
  if (!load.loop().Run(
          [&] {
            return load.islands().planned_count() == size.island_count &&
                   load.islands().counts().joins >= size.island_count;
          },
          begin + kPatience)) {
    return load.islands().last_error();
  }
  Row row = BeginRow("rejoin", size);
  row.Add("seconds", absl::ToDoubleSeconds(absl::Now() - begin));
  AddMeasures(load.Measure(), "", row);
  return row;
}

absl::StatusOr<Row> RunFlap(const CaseOptions& options) {
  Size own = {300, 1};
  own.elastic = true;
  const LoadOptions size = MakeOptions(options, own);
  bool is_on = true;
  std::function<void(int)> flap;
  ControlLoad load(size);
  RETURN_IF_ERROR(load.Start());
  flap = [&](int turn) {
    for (int i = 0; i < size.island_count; ++i) {
      if (i % 10 == turn % 10 && is_on) load.islands().Leave(i);
      if (i % 10 == (turn + 9) % 10) load.islands().Rejoin(i);
    }
    if (!is_on) return;
    load.loop().At(absl::Now() + options.flood / 15,
                   [&flap, turn] { flap(turn + 1); });
  };
  Row row = BeginRow("flap", size);
  RETURN_IF_ERROR(MeasureFlood(
      options, load, row, [&] { flap(0); },
      [&] { return load.islands().counts().joins > 0; },
      [&] { is_on = false; }));
  row.Add("joins", load.islands().counts().joins);
  return row;
}

absl::StatusOr<Row> RunRestart(const CaseOptions& options) {
  const LoadOptions size = MakeOptions(options, {1000, 1});
  ControlLoad load(size);
  RETURN_IF_ERROR(load.Start());
  const auto enough =
      static_cast<int>(std::ceil(0.99 * size.island_count));
  load.islands().ForgetPlans();
  const absl::Time begin = absl::Now();
  load.control().Kill();
  RETURN_IF_ERROR(load.control().Restart());
  load.BeginMeasuring();
  // Plans that were on their way when the coordinator died do not count.
  load.islands().ForgetPlans();
  if (!load.loop().Run(
          [&] { return load.islands().planned_count() >= enough; },
          begin + kPatience)) {
    return load.islands().last_error();
  }
  Row row = BeginRow("restart", size);
  row.Add("seconds", absl::ToDoubleSeconds(absl::Now() - begin));
  AddMeasures(load.Measure(), "", row);
  row.Add("joins", load.islands().counts().joins);
  return row;
}

absl::StatusOr<Row> RunOverload(const CaseOptions& options) {
  const LoadOptions size = MakeOptions(options, {1000, 1});
  ControlLoad load(size);
  RETURN_IF_ERROR(load.Start());
  RETURN_IF_ERROR(load.PlayRounds(1, options.pace));
  load.BeginMeasuring();
  RETURN_IF_ERROR(load.PlayRounds(CountRounds(options.flood, options.pace),
                                  options.pace));
  const Measures idle = load.Measure();
  const double normal = 2 * Quantile(idle.heartbeat_ms, 0.99);
  Row row = BeginRow("overload", size);
  AddMeasures(idle, "idle_", row);
  load.BeginMeasuring();
  load.islands().SetLoad(kOverload);
  const absl::Duration span = 8 * options.flood;
  RETURN_IF_ERROR(
      load.PlayRounds(CountRounds(span, options.pace), options.pace));
  AddMeasures(load.Measure(), "", row);
  load.islands().SetLoad(1);
  const absl::Time end = absl::Now();
  // The messages on their way came of the overload.
  load.BeginMeasuring();
  while (absl::Now() < end + kPatience) {
    load.loop().RunUntil(absl::Now() + absl::Seconds(1));
    const Measures second = load.Measure();
    if (!second.heartbeat_ms.empty() &&
        Quantile(second.heartbeat_ms, 0.99) <= normal) {
      break;
    }
    load.BeginMeasuring();
  }
  row.Add("seconds", absl::ToDoubleSeconds(absl::Now() - end));
  return row;
}

}  // namespace atl::benchmarks
