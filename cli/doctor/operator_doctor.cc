#include "cli/doctor/operator_doctor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "atoll/v1/run_service.grpc.pb.h"
#include "atoll/v1/training_state_service.grpc.pb.h"
#include "base/host_port/host_port.h"
#include "base/net/http_proxy.h"
#include "base/net/socket.h"
#include "base/obs/version.h"
#include "base/rpc/certificates/authority.h"
#include "base/rpc/tls_stream/tls_stream.h"
#include "base/status/status_macros.h"
#include "base/sync/for_each.h"
#include "base/time/clock.h"
#include "base/time/proto_time.h"
#include "coordinator/client/gate_client.h"

namespace atl::cli {
namespace {

constexpr absl::Duration kLookMax = absl::Seconds(2);
constexpr int kLookThreadCount = 8;
// Only this many runs that have not ended are checked.
constexpr int kRunsMax = 100;

ServiceFacts ToFacts(const v1::ClusterServer& server,
                     absl::Duration coordinator_ahead) {
  ServiceFacts facts;
  facts.name = absl::StrCat("server ", server.server_id());
  facts.address = server.address();
  facts.alive = server.alive();
  facts.program_version = server.program_version();
  if (server.has_health()) {
    facts.health = server.health();
    facts.clock_ahead =
        coordinator_ahead + FromProto(server.clock_ahead_duration());
  }
  return facts;
}

// Returns how far `theirs` is ahead of our clock, at least: it was read between
// `asked` and `answered`.
absl::Duration FindAhead(absl::Time asked, absl::Time answered,
                         absl::Time theirs) {
  if (theirs < asked) return theirs - asked;
  return std::max(absl::ZeroDuration(), theirs - answered);
}

}  // namespace

OperatorDoctor::OperatorDoctor(const Spec& spec, Checks& checks)
    : spec_(spec),
      checks_(checks),
      deadline_(SystemClock().Now() + spec.patience) {}

absl::Time OperatorDoctor::Within(absl::Duration span) const {
  return std::min(deadline_, SystemClock().Now() + span);
}

void OperatorDoctor::Run() {
  const absl::Time asked = absl::Now();
  const auto cluster =
      spec_.client->Call(&v1::TrainingStateService::Stub::GetCluster, {});
  const absl::Time answered = absl::Now();
  if (!cluster.ok()) {
    checks_.Add(Failed("coordinator", cluster.status().message(),
                       "Check --coordinator and the --tls-* files, and that "
                       "atoll-coordinator runs."));
    checks_.Skip({"peers", "servers", "gates", "island_ca", "certificates",
                  "clocks", "version", "disks", "log_secret", "runs"},
                 "the coordinator does not answer");
    return;
  }
  checks_.Add(Passed("coordinator",
                     absl::StrCat(spec_.coordinator_address, " answers")));
  const absl::Time coordinator_time = FromProto(cluster->time());
  ServiceFacts coordinator;
  coordinator.name = "the coordinator";
  coordinator.address = spec_.coordinator_address;
  coordinator.program_version = cluster->program_version();
  coordinator.clock_ahead =
      FindAhead(asked, answered, coordinator_time);
  std::vector<ServiceFacts> servers;
  for (const v1::ClusterServer& server : cluster->servers()) {
    servers.push_back(ToFacts(server, *coordinator.clock_ahead));
  }
  std::vector<ServiceFacts> gates;
  for (const v1::ClusterGate& gate : cluster->gates()) {
    ServiceFacts facts;
    facts.name = "the gate";
    facts.address = gate.address();
    gates.push_back(std::move(facts));
  }
  LookAtAll(*cluster, coordinator, servers, gates);
  checks_.Add(JudgePeers(*cluster));
  checks_.Add(JudgeServers(*cluster, servers));
  checks_.Add(JudgeReached("gates", gates));
  std::vector<ServiceFacts> all = {coordinator};
  all.insert(all.end(), servers.begin(), servers.end());
  checks_.Add(JudgeIslandCa(all, !gates.empty()));
  all.insert(all.end(), gates.begin(), gates.end());
  checks_.Add(JudgeCertificates(all, absl::Now()));
  checks_.Add(JudgeClocks(all));
  checks_.Add(JudgeVersions(all, kProgramVersion));
  checks_.Add(JudgeDisks(servers));
  checks_.Add(JudgeSecret(*cluster));
  int64_t unseen_count = 0;
  const absl::StatusOr<std::vector<v1::GetRunStateResponse>> runs =
      ListRuns(unseen_count);
  checks_.Add(runs.ok() ? JudgeRuns(*runs, unseen_count, coordinator_time)
                        : Failed("runs", runs.status().message(),
                                 "Look at the coordinator's log."));
}

void OperatorDoctor::LookAtAll(const v1::GetClusterResponse& cluster,
                               ServiceFacts& coordinator,
                               std::vector<ServiceFacts>& servers,
                               std::vector<ServiceFacts>& gates) const {
  std::vector<std::function<void()>> looks;
  looks.push_back([&] { Look(coordinator); });
  for (ServiceFacts& server : servers) {
    looks.push_back([this, &server] { Look(server); });
  }
  for (size_t i = 0; i < gates.size(); ++i) {
    looks.push_back([this, &gate = gates[i], &pin = cluster.gates(i).pin()] {
      Look(gate);
      if (gate.reached.ok()) LookAtGate(pin, gate);
    });
  }
  ForEachAtOnce(static_cast<int>(looks.size()), kLookThreadCount,
                [&](int i) { looks[i](); });
}

void OperatorDoctor::Look(ServiceFacts& service) const {
  const absl::StatusOr<HostPort> address = ParseHostPort(service.address);
  if (!address.ok()) {
    service.reached = address.status();
    return;
  }
  const net::WaitLimits limits = {Within(kLookMax), spec_.stop_fd};
  absl::StatusOr<UniqueFd> fd =
      net::Dial(*address, spec_.security.proxy, limits);
  service.reached = fd.status();
  if (!fd.ok() || spec_.security.tls.empty()) return;
  // An expired certificate must not keep us from looking at theirs.
  const auto own = rpc::ReadTlsFiles(spec_.security.tls);
  const auto context = rpc::TlsContext::MakeClient(
      own.ok() ? own->cert_pem : "", own.ok() ? own->key_pem : "");
  if (!context.ok()) return;
  // The handshake's end does not matter: the certificate is shown before.
  const auto stream = rpc::TlsStream::Connect(
      **context, *std::move(fd), address->host,
      [&service](const std::string& chain_pem) {
        if (const auto facts = rpc::ReadFacts(chain_pem); facts.ok()) {
          service.certificate_begin = facts->begin;
          service.certificate_end = facts->end;
        }
        return absl::OkStatus();
      },
      limits);
  if (stream.ok()) service.admits_islands = (*stream)->AcceptsAnotherCa();
}

void OperatorDoctor::LookAtGate(const std::string& pin,
                                ServiceFacts& gate) const {
  coordinator::GateClientOptions options;
  options.address = gate.address;
  options.pin = pin;
  options.proxy = spec_.security.proxy;
  options.stop_fd = spec_.stop_fd;
  options.timeout = Within(kLookMax) - SystemClock().Now();
  const auto client = coordinator::GateClient::Make(options);
  const absl::Time asked = absl::Now();
  // It refuses to do nothing, and says its time.
  const absl::StatusOr<v1::GateResponse> answer =
      client.ok() ? (*client)->Ask({}) : client.status();
  const absl::Time answered = absl::Now();
  gate.reached = answer.status();
  if (answer.ok()) {
    gate.clock_ahead = FindAhead(asked, answered, FromProto(answer->time()));
  }
}

absl::StatusOr<std::vector<v1::GetRunStateResponse>> OperatorDoctor::ListRuns(
    int64_t& unseen_count) const {
  std::vector<v1::GetRunStateResponse> states;
  v1::ListRunsRequest request;
  request.set_page_size(500);
  do {
    ASSIGN_OR_RETURN(
        const v1::ListRunsResponse page,
        spec_.client->Call(&v1::RunService::Stub::ListRuns, request));
    for (const v1::Run& run : page.runs()) {
      const bool has_ended = run.state() == v1::RUN_STATE_COMPLETED ||
                             run.state() == v1::RUN_STATE_CANCELLED;
      if (has_ended) continue;
      ++unseen_count;
      if (states.size() == kRunsMax || SystemClock().Now() > deadline_) {
        continue;
      }
      v1::GetRunStateRequest of_run;
      of_run.set_run_id(run.run_id());
      const auto state = spec_.client->Call(
          &v1::TrainingStateService::Stub::GetRunState, of_run);
      if (!state.ok()) continue;
      states.push_back(*state);
      --unseen_count;
    }
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty() && !spec_.stopped());
  return states;
}

}  // namespace atl::cli
