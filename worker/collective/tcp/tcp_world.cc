#include "worker/collective/tcp/tcp_world.h"

#include <poll.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/host_port/host_port.h"
#include "base/net/socket.h"
#include "base/status/status_macros.h"
#include "base/time/clock.h"
#include "worker/collective/member.h"
#include "worker/collective/tcp/connection.h"
#include "worker/collective/tcp/message.h"

namespace atl::collective {
namespace {

constexpr absl::Duration kRetryFirst = absl::Milliseconds(20);
constexpr absl::Duration kRetryMax = absl::Seconds(1);
// All processes of a world may dial at once.
constexpr int kBacklog = 1024;

absl::Status Validate(const TcpWorldOptions& options) {
  if (options.process_count < 1 || options.process_index < 0 ||
      options.process_index >= options.process_count ||
      options.rank_count < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "there is no process ", options.process_index, " of ",
        options.process_count, " with ", options.rank_count, " ranks"));
  }
  return absl::OkStatus();
}

// UNAVAILABLE: the address is taken, which may pass, or not of this machine.
absl::StatusOr<UniqueFd> ListenAt(const HostPort& address) {
  absl::StatusOr<UniqueFd> listening = net::Listen(address, kBacklog);
  if (!absl::IsFailedPrecondition(listening.status())) return listening;
  return absl::UnavailableError(listening.status().message());
}

// Dials until a listener takes part in a handshake.
absl::StatusOr<Connection> ConnectPatiently(
    const HostPort& endpoint, const std::shared_ptr<const WorldKey>& key,
    absl::Time deadline) {
  absl::Duration wait = kRetryFirst;
  for (;;) {
    absl::StatusOr<Connection> made = Connect(endpoint, key, deadline);
    if (made.ok() || !absl::IsUnavailable(made.status())) return made;
    if (SystemClock().Now() + wait >= deadline) {
      return absl::DeadlineExceededError(made.status().message());
    }
    absl::SleepFor(wait);
    wait = std::min(2 * wait, kRetryMax);
  }
}

absl::StatusOr<Message> ReadMessage(Connection& connection,
                                    absl::Time deadline) {
  std::string buffer;
  for (;;) {
    ASSIGN_OR_RETURN(std::optional<Message> message, TakeMessage(buffer));
    if (message.has_value()) return *std::move(message);
    ASSIGN_OR_RETURN(const size_t needed, MessageBytes(buffer));
    const size_t have = buffer.size();
    buffer.resize(needed);
    const iovec room = {&buffer[have], needed - have};
    const ssize_t count = connection.Receive({&room, 1});
    buffer.resize(have + std::max<ssize_t>(count, 0));
    if (count < 0) {
      return absl::UnavailableError("process 0 closed the connection");
    }
    if (count == 0 &&
        !net::WaitForSocket(connection.fd(), POLLIN, {deadline}).ok()) {
      return absl::DeadlineExceededError("not all processes came in time");
    }
  }
}

// The text on which all processes must agree.
std::string MakeLayout(const TcpWorldOptions& options) {
  return absl::StrCat(options.layout, options.calls_in_the_clear
                                          ? " in the clear"
                                          : " encrypted");
}

Message JoinMessage(const TcpWorldOptions& options, int port) {
  Message hello;
  hello.type = MessageType::kJoin;
  hello.process_index = options.process_index;
  hello.process_count = options.process_count;
  hello.rank_count = options.rank_count;
  hello.layout = MakeLayout(options);
  hello.port = port;
  return hello;
}

// Joins process 0 and listens where the other processes will dial.
absl::StatusOr<std::vector<ProcessEntry>> JoinFirst(
    const TcpWorldOptions& options, const HostPort& rendezvous,
    const ProcessHub::Identity& identity, absl::Time deadline,
    std::unique_ptr<ProcessHub>& hub) {
  ASSIGN_OR_RETURN(Connection control,
                   ConnectPatiently(rendezvous, identity.key, deadline));
  // Others can reach the address that leads to process 0.
  ASSIGN_OR_RETURN(HostPort own, net::LocalAddress(control.fd()));
  own.port = 0;
  ASSIGN_OR_RETURN(UniqueFd listener, ListenAt(own));
  ASSIGN_OR_RETURN(own, net::LocalAddress(listener.get()));
  ASSIGN_OR_RETURN(hub, ProcessHub::Create(identity, std::move(listener)));
  RETURN_IF_ERROR(SendAll(
      control, EncodeMessage(JoinMessage(options, own.port)), deadline));
  ASSIGN_OR_RETURN(Message answer, ReadMessage(control, deadline));
  if (answer.type == MessageType::kRefusal) {
    return absl::Status(static_cast<absl::StatusCode>(answer.code),
                        absl::StrCat("process 0 refused: ", answer.text));
  }
  if (answer.type != MessageType::kRoster ||
      static_cast<int>(answer.processes.size()) != options.process_count) {
    return absl::UnavailableError("process 0 sent an invalid answer");
  }
  // Process 0 does not know the name by which others reach it.
  answer.processes[0].host = rendezvous.host;
  answer.processes[0].port = rendezvous.port;
  hub->AdoptRoster(std::move(control), answer.processes);
  return answer.processes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TcpWorld>> TcpWorld::Join(
    TcpWorldOptions options) {
  RETURN_IF_ERROR(Validate(options));
  ASSIGN_OR_RETURN(const HostPort rendezvous,
                   ParseHostPort(options.rendezvous));
  const absl::Time deadline = SystemClock().Now() + options.join_timeout;
  ASSIGN_OR_RETURN(std::shared_ptr<const WorldKey> key,
                   WorldKey::Create(options.secret));
  const ProcessHub::Identity identity = {
      options.process_index, options.process_count,      options.rank_count,
      MakeLayout(options),   options.calls_in_the_clear, options.strangers_max,
      std::move(key)};
  auto world = std::unique_ptr<TcpWorld>(new TcpWorld());
  std::vector<ProcessEntry> roster;
  if (options.process_index == 0) {
    if (!options.listener.valid()) {
      ASSIGN_OR_RETURN(options.listener, ListenAt(rendezvous));
    }
    ASSIGN_OR_RETURN(world->hub_,
                     ProcessHub::Create(identity, std::move(options.listener)));
    ASSIGN_OR_RETURN(
        roster,
        world->hub_->CollectRoster(
            {rendezvous.host, rendezvous.port, options.rank_count}, deadline));
  } else {
    ASSIGN_OR_RETURN(roster, JoinFirst(options, rendezvous, identity, deadline,
                                       world->hub_));
  }
  std::vector<int> processes;
  for (int p = 0; p < static_cast<int>(roster.size()); ++p) {
    processes.insert(processes.end(), roster[p].rank_count, p);
  }
  std::vector<int> world_ranks(processes.size());
  std::iota(world_ranks.begin(), world_ranks.end(), 0);
  world->world_ =
      std::make_unique<World>(processes, options.process_index, options.world);
  world->world_->SetRemote(world->hub_.get());
  RETURN_IF_ERROR(world->hub_->ConnectAll(world->world_.get(), deadline));
  auto group =
      std::make_shared<Group>(world->world_.get(), "world", world_ranks);
  for (int rank : group->local_ranks()) {
    ASSIGN_OR_RETURN(std::unique_ptr<Collective> member,
                     Member::Create(group, rank));
    world->ranks_.push_back(std::move(member));
  }
  return world;
}

TcpWorld::~TcpWorld() {
  ranks_.clear();
  // The hub's thread uses the world, so it ends first. The groups are gone.
  if (hub_ != nullptr) hub_->Stop();
}

std::vector<std::unique_ptr<Collective>> TcpWorld::TakeRanks() {
  return std::move(ranks_);
}

}  // namespace atl::collective
