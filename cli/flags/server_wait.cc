#include "cli/flags/server_wait.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/rpc/watch.h"

namespace atl::cli {
namespace {

constexpr absl::Duration kQueryInterval = absl::Milliseconds(300);
// Longer than the time between two OnWaiting calls: after it the wait is over.
constexpr absl::Duration kWaitingMax = absl::Seconds(3);

}  // namespace

void AddPatience(flags::Command& command, std::string& patience) {
  command
      .Add("--patience", patience,
           "Longest time without a byte from the servers before giving "
           "up: 30s, 5m")
      .ShowDefault();
}

std::string DescribeWaiting(const server::TransferWait& waiting,
                            const server::ShardRoutes& routes,
                            absl::Duration patience) {
  std::string who = absl::StrCat("the server of shard ", waiting.shard);
  bool is_away = false;
  for (const v1::ShardPlacement& shard : routes.shards) {
    if (shard.shard() != waiting.shard) continue;
    is_away = shard.address().empty();
    if (!shard.server_id().empty()) {
      who = absl::StrCat("server ", shard.server_id());
    }
    if (!is_away) absl::StrAppend(&who, " at ", shard.address());
  }
  const std::string why = is_away ? "it is away"
                          : rpc::DescribeSilence(waiting.last_error);
  return absl::StrCat("waiting for ", who, ", at most ",
                      absl::FormatDuration(patience), ": ", why,
                      " (--patience; Ctrl-C stops it)");
}

server::ShardRoutes RoutesOfState(const v1::GetRunStateResponse& state) {
  server::ShardRoutes routes;
  for (const v1::ServerState& server : state.servers()) {
    routes.shards.push_back(server.placement());
  }
  return routes;
}

ServerWait::ServerWait(coordinator::Client& client, std::string run_id,
                       server::ShardRoutes routes, absl::Duration patience,
                       SetRoutes set_routes, Show show)
    : client_(client),
      run_id_(std::move(run_id)),
      patience_(patience),
      set_routes_(std::move(set_routes)),
      show_(std::move(show)),
      routes_(std::move(routes)) {}

void ServerWait::OnWaiting(const server::TransferWait& waiting) {
  std::string line;
  {
    MutexLock lock(&mutex_);
    waiting_time_ = absl::Now();
    changed_.SignalAll();
    line = DescribeWaiting(waiting, routes_, patience_);
  }
  if (!thread_.has_value()) {
    thread_.emplace([this](std::stop_token stop) { Follow(stop); });
  }
  if (show_ && notice_.IsDue(waiting.span)) show_(line);
}

void ServerWait::Follow(std::stop_token stop) {
  const auto client = client_.InBackground(stop, absl::InfiniteDuration());
  int64_t placement_epoch = 0;
  {
    MutexLock lock(&mutex_);
    placement_epoch = routes_.placement_epoch;
  }
  const std::stop_callback wake(stop, [this] {
    MutexLock lock(&mutex_);
    changed_.SignalAll();
  });
  while (true) {
    {
      MutexLock lock(&mutex_);
      while (!stop.stop_requested() &&
             absl::Now() - waiting_time_ > kWaitingMax) {
        changed_.Wait(&mutex_);
      }
    }
    if (stop.stop_requested()) return;
    const absl::StatusOr<v1::GetRunStateResponse> answer =
        client->GetRunState(run_id_);
    if (answer.ok()) {
      server::ShardRoutes routes = RoutesOfState(*answer);
      routes.placement_epoch = placement_epoch;
      set_routes_(routes);
      MutexLock lock(&mutex_);
      routes_ = std::move(routes);
    } else if (rpc::IsFinal(answer.status())) {
      return;
    }
    MutexLock lock(&mutex_);
    changed_.AwaitWithTimeout(&mutex_, kQueryInterval,
                              [&] { return stop.stop_requested(); });
  }
}

}  // namespace atl::cli
