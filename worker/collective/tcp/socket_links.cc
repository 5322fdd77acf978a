#include "worker/collective/tcp/socket_links.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "base/time/clock.h"

namespace atl::collective {
namespace {

constexpr int64_t kHeaderBytes = sizeof(CallHeader);

template <typename Progress>
void Advance(int64_t count, Progress& progress) {
  const int64_t header = std::min(count, progress.header_left);
  progress.header_left -= header;
  progress.data_left -= count - header;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RemoteLinks>> SocketLinks::Create(
    std::string group, int rank, std::vector<Connection> connections) {
  ASSIGN_OR_RETURN(UniqueFd waker, MakeWaker());
  return std::unique_ptr<RemoteLinks>(new SocketLinks(
      std::move(group), rank, std::move(connections), std::move(waker)));
}

absl::Status SocketLinks::Closed(int peer) const {
  return absl::UnavailableError(absl::StrCat(
      "rank ", peer, " of ", group_, " closed its connection to rank ", rank_));
}

absl::StatusOr<bool> SocketLinks::Push(absl::Span<const Send> sends) {
  bool moved = false;
  std::fill(busy_.begin(), busy_.end(), false);
  for (size_t i = 0; i < sends.size(); ++i) {
    const Send& send = sends[i];
    Progress& progress = sending_[i];
    if (progress.done() || busy_[send.peer]) continue;
    iovec parts[2];
    int part_count = 0;
    if (progress.header_left > 0) {
      parts[part_count++] = {
          const_cast<char*>(reinterpret_cast<const char*>(send.header)) +
              (kHeaderBytes - progress.header_left),
          static_cast<size_t>(progress.header_left)};
    }
    if (progress.data_left > 0) {
      parts[part_count++] = {
          const_cast<char*>(static_cast<const char*>(send.data)) +
              (send.byte_count - progress.data_left),
          static_cast<size_t>(progress.data_left)};
    }
    const ssize_t count = connections_[send.peer].Send(
        absl::MakeConstSpan(parts, part_count));
    if (count < 0) return Closed(send.peer);
    if (count > 0) {
      moved = true;
      Advance(count, progress);
    }
    busy_[send.peer] = !progress.done();
  }
  return moved;
}

absl::StatusOr<bool> SocketLinks::PullOne(const Receive& receive,
                                          Progress& progress, Check check) {
  CallHeader& header = headers_[receive.peer];
  const bool had_header = progress.header_left == 0;
  iovec parts[2];
  int part_count = 0;
  if (!had_header) {
    parts[part_count++] = {reinterpret_cast<char*>(&header) +
                               (kHeaderBytes - progress.header_left),
                           static_cast<size_t>(progress.header_left)};
  }
  if (progress.data_left > 0) {
    parts[part_count++] = {static_cast<char*>(receive.data) +
                               (receive.byte_count - progress.data_left),
                           static_cast<size_t>(progress.data_left)};
  }
  const ssize_t count = connections_[receive.peer].Receive(
      absl::MakeConstSpan(parts, part_count));
  if (count < 0) return Closed(receive.peer);
  if (count == 0) return false;
  Advance(count, progress);
  if (!had_header && progress.header_left == 0) {
    RETURN_IF_ERROR(check(receive.peer, header, receive.byte_count));
  }
  return true;
}

absl::StatusOr<bool> SocketLinks::Pull(absl::Span<const Receive> receives,
                                       Check check) {
  bool moved = false;
  std::fill(busy_.begin(), busy_.end(), false);
  for (size_t i = 0; i < receives.size(); ++i) {
    const int peer = receives[i].peer;
    if (receiving_[i].done() || busy_[peer]) continue;
    ASSIGN_OR_RETURN(const bool some,
                     PullOne(receives[i], receiving_[i], check));
    moved = moved || some;
    busy_[peer] = !receiving_[i].done();
  }
  return moved;
}

void SocketLinks::ListenFor(int peer, short events) {
  for (pollfd& entry : polled_) {
    if (entry.fd == connections_[peer].fd()) {
      entry.events |= events;
      return;
    }
  }
  polled_.push_back({connections_[peer].fd(), events, 0});
}

absl::Status SocketLinks::Await(absl::Span<const Send> sends,
                                absl::Span<const Receive> receives,
                                absl::FunctionRef<absl::Status()> interrupted,
                                absl::Time deadline) {
  polled_.clear();
  polled_.push_back({waker_.get(), POLLIN, 0});
  for (size_t i = 0; i < sends.size(); ++i) {
    if (sending_[i].done()) continue;
    ListenFor(sends[i].peer, POLLOUT);
  }
  for (size_t i = 0; i < receives.size(); ++i) {
    if (receiving_[i].done()) continue;
    ListenFor(receives[i].peer, POLLIN);
  }
  const int64_t left_ms =
      absl::ToInt64Milliseconds(deadline - SystemClock().Now());
  if (left_ms <= 0) {
    // Names all missing peers: a peer that came may wait for one that did not.
    std::string awaited;
    for (int peer = 0; peer < static_cast<int>(connections_.size()); ++peer) {
      for (size_t i = 1; i < polled_.size(); ++i) {
        if (polled_[i].fd != connections_[peer].fd()) continue;
        absl::StrAppend(&awaited, awaited.empty() ? "" : " and ", "rank ",
                        peer);
      }
    }
    return absl::DeadlineExceededError(absl::StrCat(
        "rank ", rank_, " of ", group_, " waited too long for ", awaited));
  }
  const int ready = poll(polled_.data(), polled_.size(),
                         static_cast<int>(std::min<int64_t>(left_ms, 60'000)));
  if (ready < 0 && errno != EINTR) return ErrnoToStatus(errno, "poll");
  if (ready > 0 && polled_[0].revents != 0) {
    ClearWaker(waker_.get());
    return interrupted();
  }
  return absl::OkStatus();
}

absl::Status SocketLinks::Run(absl::Span<const Send> sends,
                              absl::Span<const Receive> receives, Check check,
                              absl::FunctionRef<absl::Status()> interrupted,
                              absl::Time deadline) {
  busy_.resize(connections_.size());
  sending_.clear();
  for (const Send& send : sends) {
    sending_.push_back(
        {send.header != nullptr ? kHeaderBytes : 0, send.byte_count});
  }
  receiving_.clear();
  for (const Receive& receive : receives) {
    receiving_.push_back(
        {receive.has_header ? kHeaderBytes : 0, receive.byte_count});
  }
  const auto done = [](const Progress& progress) { return progress.done(); };
  for (;;) {
    absl::StatusOr<bool> pushed = Push(sends);
    // Reads first: the bytes may say why the peer has gone.
    ASSIGN_OR_RETURN(const bool pulled, Pull(receives, check));
    RETURN_IF_ERROR(pushed.status());
    if (std::all_of(sending_.begin(), sending_.end(), done) &&
        std::all_of(receiving_.begin(), receiving_.end(), done)) {
      return absl::OkStatus();
    }
    if (*pushed || pulled) continue;
    RETURN_IF_ERROR(Await(sends, receives, interrupted, deadline));
  }
}

}  // namespace atl::collective
