#include "coordinator/client/client.h"

#include <algorithm>
#include <future>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "atoll/v1/run_service.grpc.pb.h"
#include "atoll/v1/training_state_service.grpc.pb.h"
#include "base/rpc/wait_notice.h"
#include "base/rpc/watch.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"

namespace atl::coordinator {
namespace {

using States = v1::TrainingStateService::Stub;
template <typename Item>
using Items = google::protobuf::RepeatedPtrField<Item>;

constexpr int kPageSize = 500;  // The most that the coordinator gives.

// Waits for `duration`, or until `stop` is requested.
void WaitFor(absl::Duration duration, const std::stop_token& stop) {
  std::promise<void> stopped;
  const std::stop_callback wake(stop, [&] { stopped.set_value(); });
  stopped.get_future().wait_for(absl::ToChronoNanoseconds(duration));
}

// Gives the `items` of all pages of `method` to `on_item`, until that returns
// false or an error.
template <typename Method, typename Request, typename Response, typename Item,
          typename OnItem>
absl::Status ForEach(const Client& client, Method method, Request request,
                     Items<Item>* (Response::*items)(), OnItem on_item) {
  request.set_page_size(kPageSize);
  do {
    ASSIGN_OR_RETURN(Response page, client.Call(method, request));
    for (Item& item : *(page.*items)()) {
      ASSIGN_OR_RETURN(const bool goes_on, on_item(std::move(item)));
      if (!goes_on) return absl::OkStatus();
    }
    if (!request.page_token().empty() &&
        page.next_page_token() == request.page_token()) {
      return absl::InternalError("the coordinator gives the same page again");
    }
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return absl::OkStatus();
}

// The `items` of all pages of `method`.
template <typename Method, typename Request, typename Response, typename Item>
absl::StatusOr<std::vector<Item>> ListAll(
    const Client& client, Method method, Request request,
    Items<Item>* (Response::*items)()) {
  std::vector<Item> all;
  RETURN_IF_ERROR(ForEach(client, method, std::move(request), items,
                          [&](Item&& item) -> absl::StatusOr<bool> {
                            all.push_back(std::move(item));
                            return true;
                          }));
  return all;
}

template <typename Request>
Request OfRun(const std::string& run_id) {
  Request request;
  request.set_run_id(run_id);
  return request;
}

}  // namespace

Client::Client(const ClientOptions& options,
               std::shared_ptr<rpc::Dialer> dialer)
    : options_(options), dialer_(std::move(dialer)) {}

void Client::WaitForConnection(absl::Duration timeout) {
  dialer_->channel()->WaitForConnected(
      absl::ToChronoTime(absl::Now() + timeout));
}

absl::StatusOr<v1::GetRunResponse> Client::GetRun(
    const std::string& run_id) const {
  return Call(&v1::RunService::Stub::GetRun,
              OfRun<v1::GetRunRequest>(run_id));
}

absl::StatusOr<v1::GetRunStateResponse> Client::GetRunState(
    const std::string& run_id) const {
  return Call(&States::GetRunState, OfRun<v1::GetRunStateRequest>(run_id));
}

absl::StatusOr<std::vector<v1::Run>> Client::ListRuns() const {
  return ListAll(*this, &v1::RunService::Stub::ListRuns, v1::ListRunsRequest(),
                 &v1::ListRunsResponse::mutable_runs);
}

absl::StatusOr<std::vector<v1::Island>> Client::ListIslands(
    const std::string& run_id) const {
  return ListAll(*this, &States::ListIslands,
                 OfRun<v1::ListIslandsRequest>(run_id),
                 &v1::ListIslandsResponse::mutable_islands);
}

absl::StatusOr<v1::Island> Client::FindIsland(
    const std::string& run_id, const std::string& island_id) const {
  absl::StatusOr<v1::Island> found =
      Refuse(absl::StatusCode::kNotFound, "NO_SUCH_ISLAND",
             absl::StrCat("run ", run_id, " has no island ", island_id));
  RETURN_IF_ERROR(ForEach(
      *this, &States::ListIslands, OfRun<v1::ListIslandsRequest>(run_id),
      &v1::ListIslandsResponse::mutable_islands,
      [&](v1::Island&& island) -> absl::StatusOr<bool> {
        if (island.island_id() == island_id) found = std::move(island);
        return !found.ok();
      }));
  return found;
}

absl::Status Client::ForEachRound(
    const std::string& run_id, int64_t after_commit_seq,
    absl::FunctionRef<absl::StatusOr<bool>(v1::Round&&)> on_round) const {
  auto request = OfRun<v1::ListRoundsRequest>(run_id);
  request.set_after_commit_seq(after_commit_seq);
  return ForEach(*this, &States::ListRounds, std::move(request),
                 &v1::ListRoundsResponse::mutable_rounds, on_round);
}

absl::StatusOr<std::vector<v1::Checkpoint>> Client::ListCheckpoints(
    const std::string& run_id) const {
  return ListAll(*this, &States::ListCheckpoints,
                 OfRun<v1::ListCheckpointsRequest>(run_id),
                 &v1::ListCheckpointsResponse::mutable_checkpoints);
}

absl::Status Client::WatchRun(
    v1::WatchRunRequest request, absl::Duration patience,
    const std::function<bool(const v1::RunEvent&)>& on_event,
    std::stop_token stop) {
  rpc::Backoff backoff(options_.watch_retry, std::random_device()());
  absl::Time away_since = absl::InfiniteFuture();  // Not away.
  rpc::WaitNotice notice;
  while (!stop.stop_requested()) {
    bool wanted = true, heard = false;
    const absl::Time begin = absl::Now();
    const absl::Status status =
        ReadEvents(request, heard, on_event, stop, wanted);
    if (!wanted) return absl::OkStatus();
    if (stop.stop_requested()) break;
    const absl::Time now = absl::Now();
    // The stream of an idle run is silent.
    if (heard || now - begin > options_.watch_had_after) {
      away_since = now;
      backoff.Reset();
    }
    away_since = std::min(away_since, now);
    const absl::Duration silence = now - away_since;
    if (rpc::IsFinal(status) || silence > patience) {
      return rpc::NamePeer(status, CallOptions().peer);
    }
    if (notice.IsDue(silence) && options_.on_waiting) {
      options_.on_waiting(CallOptions().peer, patience,
                          rpc::DescribeSilence(status));
    }
    WaitFor(backoff.Next(status), stop);
  }
  return absl::CancelledError("stopped");
}

std::unique_ptr<Client> Client::InBackground(std::stop_token stop,
                                             absl::Duration timeout_max) const {
  ClientOptions options = options_;
  options.timeout = std::min(options.timeout, timeout_max);
  options.on_waiting = nullptr;
  options.stop = std::move(stop);
  return std::make_unique<Client>(options, dialer_);
}

rpc::CallOptions Client::CallOptions() const {
  const std::string peer = absl::StrCat("coordinator ", options_.address);
  rpc::CallOptions options = {options_.timeout, "", peer};
  if (options_.on_waiting) {
    options.on_slow = [this, peer] {
      options_.on_waiting(peer, options_.timeout,
                          rpc::DescribeSilence(absl::OkStatus()));
    };
  }
  options.stop = options_.stop;
  options.waits_for_connection = options_.waits_for_connection;
  return options;
}

absl::Status Client::ReadEvents(
    v1::WatchRunRequest& request, bool& heard,
    const std::function<bool(const v1::RunEvent&)>& on_event,
    const std::stop_token& stop, bool& wanted) {
  grpc::ClientContext context;
  const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
  const auto reader = v1::TrainingStateService::NewStub(dialer_->channel())
                          ->WatchRun(&context, request);
  // Events of one record share its revision.
  const int64_t after_revision = request.after_revision();
  v1::WatchRunResponse response;
  while (wanted && reader->Read(&response)) {
    heard = true;
    for (const v1::RunEvent& event : response.events()) {
      if (event.revision() <= after_revision) continue;
      request.set_after_revision(event.revision());
      wanted = on_event(event);
      if (!wanted) break;
    }
  }
  if (!wanted) context.TryCancel();
  return rpc::FromGrpc(reader->Finish());
}

absl::StatusOr<std::unique_ptr<Client>> MakeClient(
    const ClientOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<rpc::Dialer> dialer,
                   rpc::Dialer::Make(options.address, options.channel));
  return std::make_unique<Client>(options, std::move(dialer));
}

}  // namespace atl::coordinator
