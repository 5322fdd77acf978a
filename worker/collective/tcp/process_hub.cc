#include "worker/collective/tcp/process_hub.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/net/socket.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "worker/collective/tcp/socket_links.h"

namespace atl::collective {
namespace {

constexpr int kPollMs = 500;
// Connections accepted between two looks at the others.
constexpr int kAcceptsMax = 64;
constexpr size_t kParkedMax = 16384;

// Sends all of `bytes` without blocking.
absl::Status SendNow(Connection& connection, absl::string_view bytes) {
  return SendAll(connection, bytes, absl::InfinitePast());
}

Message StatusMessage(MessageType type, const absl::Status& status) {
  Message message;
  message.type = type;
  message.code = static_cast<int64_t>(status.code());
  message.text = std::string(status.message());
  return message;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessHub>> ProcessHub::Create(
    Identity identity, UniqueFd listener) {
  ASSIGN_OR_RETURN(UniqueFd waker, MakeWaker());
  return std::unique_ptr<ProcessHub>(new ProcessHub(
      std::move(identity), std::move(listener), std::move(waker)));
}

ProcessHub::ProcessHub(Identity identity, UniqueFd listener, UniqueFd waker)
    : identity_(std::move(identity)),
      listener_(std::move(listener)),
      waker_(std::move(waker)),
      joined_(identity_.process_count) {
  thread_ = std::thread([this] { Loop(); });
}

ProcessHub::~ProcessHub() { Stop(); }

void ProcessHub::Stop() {
  if (!thread_.joinable()) return;
  Message bye;
  bye.type = MessageType::kBye;
  TellAll(bye);
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    condition_.SignalAll();
  }
  SetWaker(waker_.get());
  thread_.join();
  MutexLock lock(&mutex_);
  world_ = nullptr;
}

void ProcessHub::Loop() {
  std::vector<pollfd> polled;
  std::vector<int> processes;
  for (;;) {
    polled = {{waker_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    processes.clear();
    int timeout_ms = kPollMs;
    {
      MutexLock lock(&mutex_);
      if (stopping_) return;
      if (wanted_round_ >= ++begun_) timeout_ms = 0;
      for (const auto& [process, control] : controls_) {
        polled.push_back({control.connection.fd(), POLLIN, 0});
        processes.push_back(process);
      }
    }
    for (const Stranger& stranger : strangers_) {
      polled.push_back(
          {stranger.connection.fd(), stranger.connection.events(), 0});
    }
    if (poll(polled.data(), polled.size(), timeout_ms) < 0 && errno != EINTR) {
      return Fail(absl::ErrnoToStatus(
          errno, absl::StrCat("cannot poll ", polled.size(), " connections")));
    }
    if (polled[0].revents != 0) ClearWaker(waker_.get());
    for (size_t i = 0; i < processes.size(); ++i) {
      if (polled[2 + i].revents != 0) ReadControl(processes[i]);
    }
    size_t at = 2 + processes.size();
    const absl::Time now = identity_.clock->Now();
    for (auto it = strangers_.begin(); it != strangers_.end();) {
      const bool speaks = polled[at++].revents != 0;
      bool keep = !speaks || ReadStranger(*it);
      if (keep && now >= it->deadline) {
        keep = false;
        NoteRefusal(*it, absl::DeadlineExceededError(absl::StrCat(
                             "no complete first message within ",
                             absl::FormatDuration(identity_.timeouts.hello),
                             " of connecting")));
      }
      it = keep ? std::next(it) : strangers_.erase(it);
    }
    if (polled[1].revents != 0) AcceptAll();
    MutexLock lock(&mutex_);
    ended_round_ = begun_;
    condition_.SignalAll();
  }
}

void ProcessHub::Fail(const absl::Status& why) {
  const absl::Status failure = absl::UnavailableError(
      absl::StrCat("process ", identity_.process_index,
                   " lost the other processes: ", why.message()));
  World* world;
  {
    MutexLock lock(&mutex_);
    failure_ = failure;
    world = world_;
    condition_.SignalAll();
  }
  if (world != nullptr) world->Break(failure).IgnoreError();
}

void ProcessHub::AcceptAll() {
  for (int count = 0; count < kAcceptsMax; ++count) {
    absl::StatusOr<UniqueFd> fd = net::Accept(listener_.get());
    const bool no_descriptor = absl::IsResourceExhausted(fd.status());
    if (!fd.ok() && (!no_descriptor || strangers_.empty())) return;
    // The waiting ones may be there to keep others out.
    if (!fd.ok() ||
        static_cast<int>(strangers_.size()) >= identity_.strangers_max) {
      strangers_.pop_front();
    }
    if (!fd.ok()) continue;
    absl::StatusOr<Connection> connection =
        Connection::Accepted(*std::move(fd), identity_.key);
    if (!connection.ok()) continue;
    strangers_.push_back(
        {*std::move(connection),
         identity_.clock->Now() + identity_.timeouts.hello});
  }
}

absl::StatusOr<std::optional<Message>> ProcessHub::ReadHello(
    Stranger& stranger) {
  if (!stranger.knows_secret) {
    ASSIGN_OR_RETURN(stranger.knows_secret, stranger.connection.Handshake());
    if (!stranger.knows_secret) return std::optional<Message>();
  }
  for (;;) {
    ASSIGN_OR_RETURN(const size_t needed, MessageBytes(stranger.buffer));
    if (stranger.buffer.size() >= needed &&
        stranger.buffer.size() > kMessageHeadBytes) {
      return TakeMessage(stranger.buffer);
    }
    // Reads no byte past the message: the rest belongs to a call.
    const size_t have = stranger.buffer.size();
    stranger.buffer.resize(needed);
    const iovec room = {&stranger.buffer[have], needed - have};
    const ssize_t count = stranger.connection.Receive({&room, 1});
    stranger.buffer.resize(have + std::max<ssize_t>(count, 0));
    if (count == 0) return std::optional<Message>();
    if (count < 0) {
      return absl::UnavailableError("it closed the connection");
    }
  }
}

bool ProcessHub::ReadStranger(Stranger& stranger) {
  const absl::StatusOr<std::optional<Message>> hello = ReadHello(stranger);
  absl::Status refusal = hello.status();
  if (hello.ok()) {
    if (!hello->has_value()) return true;
    refusal = Admit(**hello, stranger);
  }
  if (refusal.ok()) return false;
  NoteRefusal(stranger, refusal);
  // If it does not fit the socket's buffer, the peer reads nothing anyway.
  if (stranger.knows_secret) {
    SendNow(stranger.connection,
            EncodeMessage(StatusMessage(MessageType::kRefusal, refusal)))
        .IgnoreError();
  }
  return false;
}

void ProcessHub::NoteRefusal(const Stranger& stranger,
                             const absl::Status& why) {
  const absl::StatusOr<HostPort> from =
      net::PeerAddress(stranger.connection.fd());
  MutexLock lock(&mutex_);
  last_refusal_ = absl::StrCat(
      from.ok() ? JoinHostPort(from->host, from->port) : "a connection", ": ",
      why.message());
}

absl::Status ProcessHub::Admit(const Message& hello, Stranger& stranger) {
  MutexLock lock(&mutex_);
  if (hello.type == MessageType::kJoin) {
    RETURN_IF_ERROR(AdmitJoin(hello, stranger));
  } else if (hello.type == MessageType::kControl) {
    const int process = static_cast<int>(hello.process_index);
    if (hello.process_index <= identity_.process_index ||
        hello.process_index >= identity_.process_count ||
        controls_.count(process) > 0) {
      return absl::AlreadyExistsError(
          absl::StrCat("connected already, or may not dial here: process ",
                       hello.process_index));
    }
    controls_[process] = {std::move(stranger.connection)};
  } else if (hello.type == MessageType::kLink) {
    if (parked_.size() >= kParkedMax) {
      return absl::ResourceExhaustedError("too many connections are parked");
    }
    const LinkKey key(hello.group, static_cast<int>(hello.rank),
                      static_cast<int>(hello.peer));
    if (parked_.count(key) > 0) {
      return absl::AlreadyExistsError("this connection exists already");
    }
    if (identity_.calls_in_the_clear) stranger.connection.GoInTheClear();
    parked_.emplace(key, std::move(stranger.connection));
  } else {
    return absl::InvalidArgumentError(
        "a connection cannot begin with this message");
  }
  condition_.SignalAll();
  return absl::OkStatus();
}

absl::Status ProcessHub::AdmitJoin(const Message& hello, Stranger& stranger) {
  if (identity_.process_index != 0) {
    return absl::FailedPreconditionError("only process 0 accepts joins");
  }
  if (hello.process_count != identity_.process_count ||
      hello.layout != identity_.layout) {
    return absl::FailedPreconditionError(
        absl::StrCat("process ", hello.process_index, " wants a world of ",
                     hello.process_count, " processes and \"", hello.layout,
                     "\", but process 0 one of ", identity_.process_count,
                     " and \"", identity_.layout, "\""));
  }
  const int64_t index = hello.process_index;
  if (index < 1 || index >= identity_.process_count || hello.rank_count < 1 ||
      hello.rank_count > 4096 || hello.port < 1 || hello.port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no process ", index, " with ", hello.rank_count,
                     " ranks in a world of ", identity_.process_count));
  }
  if (complete_) {
    return absl::FailedPreconditionError("the world is complete");
  }
  if (joined_[index].has_value()) {
    return absl::AlreadyExistsError(absl::StrCat(
        "process ", index, " has joined already, from ", joined_[index]->host));
  }
  ASSIGN_OR_RETURN(const HostPort from,
                   net::PeerAddress(stranger.connection.fd()));
  joined_[index] = {from.host, hello.port, hello.rank_count};
  controls_[static_cast<int>(index)] = {std::move(stranger.connection)};
  return absl::OkStatus();
}

void ProcessHub::ReadControl(int process) {
  for (;;) {
    char bytes[4096];
    ssize_t count;
    std::vector<Message> messages;
    bool ended = false;
    {
      MutexLock lock(&mutex_);
      const auto it = controls_.find(process);
      if (it == controls_.end()) return;
      Control& control = it->second;
      const iovec room = {bytes, sizeof(bytes)};
      count = control.connection.Receive({&room, 1});
      if (count == 0) return;
      ended = count < 0;
      if (count > 0) control.buffer.append(bytes, count);
      while (!ended) {
        absl::StatusOr<std::optional<Message>> message =
            TakeMessage(control.buffer);
        if (!message.ok()) ended = true;
        if (!message.ok() || !message->has_value()) break;
        messages.push_back(**std::move(message));
      }
    }
    for (const Message& message : messages) HandleControl(process, message);
    if (ended) return ControlEnded(process);
  }
}

void ProcessHub::HandleControl(int process, const Message& message) {
  World* world;
  {
    MutexLock lock(&mutex_);
    if (message.type == MessageType::kBye) {
      controls_[process].said_bye = true;
    }
    world = world_;
  }
  if (world == nullptr) return;
  if (message.type == MessageType::kBroken) {
    world
        ->Break(absl::Status(static_cast<absl::StatusCode>(message.code),
                             message.text),
                /*tell=*/false)
        .IgnoreError();
    MutexLock lock(&mutex_);
    condition_.SignalAll();
  } else if (message.type == MessageType::kLeft) {
    world->MarkLeft(message.group, static_cast<int>(message.rank),
                    message.call_count);
  }
}

void ProcessHub::ControlEnded(int process) {
  World* world = nullptr;
  std::string name;
  {
    MutexLock lock(&mutex_);
    name = MakeName(process);
    const bool said_bye = controls_[process].said_bye;
    controls_.erase(process);
    if (!complete_ && identity_.process_index == 0) {
      joined_[process].reset();  // Another process may take its place.
    } else {
      ended_.insert(process);
      // A goodbye harms only the waits that still need the process.
      if (!said_bye) world = world_;
    }
    condition_.SignalAll();
  }
  if (world == nullptr) return;
  world
      ->Break(absl::UnavailableError(absl::StrCat(name, " ended")),
              /*tell=*/true)
      .IgnoreError();
  MutexLock lock(&mutex_);
  condition_.SignalAll();
}

std::string ProcessHub::MakeName(int process) const {
  std::string name = absl::StrCat("process ", process);
  if (process >= static_cast<int>(roster_.size())) return name;
  int64_t first = 0;
  for (int p = 0; p < process; ++p) first += roster_[p].rank_count;
  const int64_t last = first + roster_[process].rank_count - 1;
  absl::StrAppend(&name, first == last ? " (rank " : " (ranks ", first);
  if (first != last) absl::StrAppend(&name, " to ", last);
  return absl::StrCat(name, ")");
}

std::string ProcessHub::Missing() const {
  std::vector<int> missing;
  for (int process = 0; process < identity_.process_count; ++process) {
    if (process != identity_.process_index && controls_.count(process) == 0) {
      missing.push_back(process);
    }
  }
  return absl::StrJoin(missing, ", ");
}

absl::Status ProcessHub::Await(absl::Time deadline,
                               absl::FunctionRef<bool()> ready,
                               absl::FunctionRef<std::string()> what) {
  for (;;) {
    RETURN_IF_ERROR(failure_);
    if (ready()) return absl::OkStatus();
    if (world_ != nullptr && world_->broken()) {
      return absl::UnavailableError("the world ended");
    }
    const absl::Duration left = deadline - SystemClock().Now();
    if (left <= absl::ZeroDuration()) {
      std::string text = absl::StrCat("process ", identity_.process_index,
                                      " waited too long for ", what());
      if (!last_refusal_.empty()) {
        absl::StrAppend(&text, "; it refused ", last_refusal_);
      }
      return absl::DeadlineExceededError(text);
    }
    condition_.WaitWithTimeout(&mutex_, left);
  }
}

absl::Status ProcessHub::AwaitAll(absl::Time deadline) {
  const size_t others = identity_.process_count - 1;
  RETURN_IF_ERROR(Await(
      deadline, [&] { return controls_.size() == others || !ended_.empty(); },
      [&] { return absl::StrCat("processes ", Missing()); }));
  if (ended_.empty()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(MakeName(*ended_.begin()), " ended"));
}

absl::StatusOr<std::vector<ProcessEntry>> ProcessHub::CollectRoster(
    ProcessEntry own, absl::Time deadline) {
  MutexLock lock(&mutex_);
  RETURN_IF_ERROR(AwaitAll(deadline));
  complete_ = true;
  joined_[0] = std::move(own);
  Message roster;
  roster.type = MessageType::kRoster;
  for (const auto& entry : joined_) roster.processes.push_back(*entry);
  roster_ = roster.processes;
  const std::string bytes = EncodeMessage(roster);
  for (auto& [process, control] : controls_) {
    const absl::Status sent =
        SendAll(control.connection, bytes,
                SystemClock().Now() + identity_.timeouts.roster_send);
    if (!sent.ok()) return Annotate(sent, MakeName(process));
  }
  return roster_;
}

void ProcessHub::AdoptRoster(Connection control,
                             std::vector<ProcessEntry> roster) {
  {
    MutexLock lock(&mutex_);
    complete_ = true;
    roster_ = std::move(roster);
    controls_[0] = {std::move(control)};
  }
  SetWaker(waker_.get());
}

Message ProcessHub::Hello(MessageType type) const {
  Message hello;
  hello.type = type;
  hello.process_index = identity_.process_index;
  return hello;
}

absl::Status ProcessHub::ConnectAll(World* world, absl::Time deadline) {
  std::vector<ProcessEntry> roster;
  {
    MutexLock lock(&mutex_);
    world_ = world;
    roster = roster_;
  }
  const std::string hello = EncodeMessage(Hello(MessageType::kControl));
  for (int process = 1; process < identity_.process_index; ++process) {
    const HostPort endpoint = {roster[process].host,
                               static_cast<int>(roster[process].port)};
    ASSIGN_OR_RETURN(Connection connection,
                     collective::Connect(endpoint, identity_.key, deadline));
    RETURN_IF_ERROR(SendAll(connection, hello, deadline));
    MutexLock lock(&mutex_);
    controls_[process] = {std::move(connection)};
    SetWaker(waker_.get());
  }
  MutexLock lock(&mutex_);
  return AwaitAll(deadline);
}

absl::StatusOr<std::unique_ptr<RemoteLinks>> ProcessHub::Connect(
    const std::string& group, int rank, const std::vector<int>& world_ranks,
    absl::Time deadline) {
  std::vector<ProcessEntry> roster;
  std::vector<int> processes;
  {
    MutexLock lock(&mutex_);
    roster = roster_;
    processes = world_->processes();
  }
  std::vector<Connection> connections(world_ranks.size());
  std::vector<int> awaited;
  for (int peer = 0; peer < static_cast<int>(world_ranks.size()); ++peer) {
    const int process = processes[world_ranks[peer]];
    if (process == identity_.process_index) continue;
    if (peer < rank) {
      awaited.push_back(peer);
      continue;
    }
    const HostPort endpoint = {roster[process].host,
                               static_cast<int>(roster[process].port)};
    const absl::Time dial_deadline =
        std::min(deadline, SystemClock().Now() + identity_.timeouts.dial);
    ASSIGN_OR_RETURN(
        connections[peer],
        collective::Connect(endpoint, identity_.key, dial_deadline));
    Message hello = Hello(MessageType::kLink);
    hello.group = group;
    hello.rank = rank;
    hello.peer = peer;
    RETURN_IF_ERROR(
        SendAll(connections[peer], EncodeMessage(hello), dial_deadline));
    if (identity_.calls_in_the_clear) connections[peer].GoInTheClear();
  }
  for (int peer : awaited) {
    MutexLock lock(&mutex_);
    const LinkKey key(group, peer, rank);
    const int process = processes[world_ranks[peer]];
    RETURN_IF_ERROR(Await(
        deadline,
        [&] { return parked_.count(key) > 0 || ended_.count(process) > 0; },
        [&] {
          return absl::StrCat("rank ", peer, " of ", group, " to dial rank ",
                              rank);
        }));
    if (parked_.count(key) == 0) {
      return absl::UnavailableError(absl::StrCat(MakeName(process), " ended"));
    }
    connections[peer] = std::move(parked_[key]);
    parked_.erase(key);
  }
  return SocketLinks::Create(group, rank, std::move(connections));
}

void ProcessHub::ReadNews() {
  MutexLock lock(&mutex_);
  const int64_t round = begun_ + 1;
  wanted_round_ = std::max(wanted_round_, round);
  SetWaker(waker_.get());
  condition_.AwaitWithTimeout(&mutex_, identity_.timeouts.news, [&] {
    return ended_round_ >= round || stopping_ || !failure_.ok();
  });
}

void ProcessHub::TellAll(const Message& message) {
  const std::string bytes = EncodeMessage(message);
  MutexLock lock(&mutex_);
  condition_.SignalAll();
  for (auto& [process, control] : controls_) {
    // The peer reads nothing, or a message was cut; closing tells it enough.
    if (!SendNow(control.connection, bytes).ok()) {
      (void)shutdown(control.connection.fd(), SHUT_RDWR);
    }
  }
}

void ProcessHub::TellBroken(const absl::Status& status) {
  TellAll(StatusMessage(MessageType::kBroken, status));
}

void ProcessHub::TellLeft(const std::string& group, int rank,
                          int64_t call_count) {
  Message left;
  left.type = MessageType::kLeft;
  left.group = group;
  left.rank = rank;
  left.call_count = call_count;
  TellAll(left);
}

}  // namespace atl::collective
