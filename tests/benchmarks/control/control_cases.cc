#include "tests/benchmarks/control/control_cases.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "atoll/v1/island_service.pb.h"
#include "base/status/status_macros.h"
#include "grpcpp/channel.h"
#include "tests/benchmarks/usage.h"

namespace atl::benchmarks {
namespace {

constexpr double kLostPart = 0.2;
constexpr double kOverload = 3;
constexpr absl::Duration kPatience = absl::Minutes(5);

}  // namespace

absl::StatusOr<Row> RunLost(const CaseOptions& options) {
  const LoadOptions size = MakeOptions(options, {1000, 24});
  ControlLoad load(size);
  RETURN_IF_ERROR(load.Start());
  std::vector<v1::ContributionInfo> lost;
  load.islands().SetPlanHandler([&](int /*island*/,
                                    const v1::IslandPlan& plan) {
    ShardServer& server = load.server(0);
    if (plan.shards(0).incarnation() != server.incarnation()) return;
    // An island pushes again to a shard that has begun anew.
    std::erase_if(lost, [&](const v1::ContributionInfo& info) {
      if (info.key().slot() != plan.slot()) return false;
      server.Store(plan.run_id(), info);
      return true;
    });
  });
  load.BeginRounds(1, options.pace);
  // Three quarters of the islands have pushed by then.
  load.loop().RunUntil(absl::Now() + 0.75 * options.pace);
  load.BeginMeasuring();
  const absl::Time begin = absl::Now();
  lost = load.server(0).RestartWithout(kLostPart);
  const auto lost_count = static_cast<int64_t>(lost.size());
  RETURN_IF_ERROR(load.FinishRounds());
  Row row = BeginRow("lost", size);
  row.Add("lost", lost_count)
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
  CaseSize own = {300, 1};
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

absl::StatusOr<Row> RunConnections(const CaseOptions& options) {
  CaseSize own = {500, 1};
  own.filled_rounds = 0;
  const LoadOptions size = MakeOptions(options, own);
  ControlLoad load(size);
  RETURN_IF_ERROR(load.Start());
  RETURN_IF_ERROR(load.control().StartBare());
  const auto resident = [&] {
    return static_cast<double>(ResidentBytes(load.control().bare_pid())) / 1024;
  };
  double before = 0;
  int connected = 0;
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (int i = 0; i < size.island_count; ++i) {
    ASSIGN_OR_RETURN(
        channels.emplace_back(),
        load.control().DialBare(absl::StrCat("island:island-", i)));
    load.loop().Open(
        channels.back(), "/atoll.v1.IslandService/WatchPlan",
        v1::WatchPlanRequest(), "",
        {.on_message = [&](grpc::ByteBuffer&) { ++connected; }, .on_end = {}});
    // One after the other: many handshakes at once would all time out.
    if (!load.loop().Run([&] { return connected > i; },
                         absl::Now() + kPatience)) {
      return absl::DeadlineExceededError("the bare server does not answer");
    }
    // The first connection also starts the server's threads.
    if (i == 0) before = resident();
  }
  const double bare_kib =
      (resident() - before) / std::max(1, size.island_count - 1);
  Row row = BeginRow("connections", size);
  row.Add("island_kib", load.island_kib())
      .Add("bare_kib", bare_kib)
      .Add("beside_bare_kib", load.island_kib() - bare_kib);
  return row;
}

}  // namespace atl::benchmarks
