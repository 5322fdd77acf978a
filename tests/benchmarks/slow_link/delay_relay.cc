// A TCP relay that forwards every byte after a fixed delay, both ways.
//
//   delay_relay --delay-ms 10 127.0.0.1:7400=10.77.0.1:7400 ...
//
// Each argument is LISTEN=TARGET. Prints "ready" once all listen, and runs
// until it is killed. Closes a connection if its target does not answer. The
// queue of delayed bytes is bounded: a faster sender is not read meanwhile.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kReadMax = 64 << 10;
// Queued bytes of one direction: 1 Gb/s for 60 ms.
constexpr size_t kWaitingMax = 8 << 20;

struct Route {
  sockaddr_in listen = {};
  sockaddr_in target = {};
};

bool ParseAddress(const std::string& text, sockaddr_in* address) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  int port = 0;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[1], &port) || port < 1 ||
      port > 65535) {
    return false;
  }
  address->sin_family = AF_INET;
  address->sin_port = htons(static_cast<uint16_t>(port));
  return inet_pton(AF_INET, parts[0].c_str(), &address->sin_addr) == 1;
}

// Both ends of a connection. The last direction closes them.
class Pair {
 public:
  Pair(int a, int b) : a_(a), b_(b) {}
  ~Pair() {
    close(a_);
    close(b_);
  }
  int a() const { return a_; }
  int b() const { return b_; }
  void Break() {
    shutdown(a_, SHUT_RDWR);
    shutdown(b_, SHUT_RDWR);
  }

 private:
  const int a_;
  const int b_;
};

// One direction: the received bytes with their release times.
class Direction {
 public:
  Direction(std::shared_ptr<Pair> pair, int from, int to, Clock::duration delay)
      : pair_(std::move(pair)), from_(from), to_(to), delay_(delay) {}

  void Read() {
    while (true) {
      std::string bytes(kReadMax, 0);
      const ssize_t count = recv(from_, bytes.data(), bytes.size(), 0);
      bytes.resize(count > 0 ? static_cast<size_t>(count) : 0);
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [&] { return waiting_ < kWaitingMax || broken_; });
      waiting_ += bytes.size();
      // An empty entry marks the end of the stream.
      queue_.push_back({Clock::now() + delay_, std::move(bytes)});
      changed_.notify_all();
      if (count <= 0 || broken_) return;
    }
  }

  void Write() {
    while (true) {
      Piece piece;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return !queue_.empty(); });
        piece = std::move(queue_.front());
        queue_.pop_front();
        waiting_ -= piece.bytes.size();
        changed_.notify_all();
      }
      std::this_thread::sleep_until(piece.due);
      if (piece.bytes.empty()) {
        shutdown(to_, SHUT_WR);
        return;
      }
      if (!SendAll(piece.bytes)) {
        pair_->Break();
        std::lock_guard<std::mutex> lock(mutex_);
        broken_ = true;
        changed_.notify_all();
        return;
      }
    }
  }

 private:
  struct Piece {
    Clock::time_point due;
    std::string bytes;
  };

  bool SendAll(const std::string& bytes) {
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t count =
          send(to_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
      if (count <= 0) return false;
      done += static_cast<size_t>(count);
    }
    return true;
  }

  const std::shared_ptr<Pair> pair_;
  const int from_;
  const int to_;
  const Clock::duration delay_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> queue_;
  size_t waiting_ = 0;  // Bytes in `queue_`.
  bool broken_ = false;
};

void Relay(int accepted, const sockaddr_in& target, Clock::duration delay) {
  const int connected = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connected < 0 ||
      connect(connected, reinterpret_cast<const sockaddr*>(&target),
              sizeof(target)) != 0) {
    if (connected >= 0) close(connected);
    close(accepted);
    return;
  }
  const int on = 1;
  setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(connected, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  auto pair = std::make_shared<Pair>(accepted, connected);
  for (bool up : {true, false}) {
    auto direction = std::make_shared<Direction>(
        pair, up ? pair->a() : pair->b(), up ? pair->b() : pair->a(), delay);
    std::thread([direction] { direction->Read(); }).detach();
    std::thread([direction] { direction->Write(); }).detach();
  }
}

int Listen(const sockaddr_in& address) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (listener < 0 ||
      bind(listener, reinterpret_cast<const sockaddr*>(&address),
           sizeof(address)) != 0 ||
      listen(listener, 64) != 0) {
    std::perror("listen");
    return -1;
  }
  return listener;
}

int Run(const std::vector<Route>& routes, Clock::duration delay) {
  std::vector<std::thread> threads;
  for (const Route& route : routes) {
    const int listener = Listen(route.listen);
    if (listener < 0) return 1;
    threads.emplace_back([listener, route, delay] {
      while (true) {
        const int accepted = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        if (accepted >= 0) Relay(accepted, route.target, delay);
      }
    });
  }
  std::cout << "ready" << std::endl;
  for (std::thread& thread : threads) thread.join();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  double delay_ms = 0;
  std::vector<Route> routes;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--delay-ms" && i + 1 < argc &&
        absl::SimpleAtod(argv[i + 1], &delay_ms) && delay_ms >= 0) {
      ++i;
      continue;
    }
    const std::vector<std::string> sides = absl::StrSplit(argument, '=');
    Route route;
    if (sides.size() != 2 || !ParseAddress(sides[0], &route.listen) ||
        !ParseAddress(sides[1], &route.target)) {
      std::cerr << "usage: delay_relay [--delay-ms D] HOST:PORT=HOST:PORT ...\n"
                << "not understood: " << argument << "\n";
      return 2;
    }
    routes.push_back(route);
  }
  const std::chrono::duration<double, std::milli> delay(delay_ms);
  return Run(routes, std::chrono::duration_cast<Clock::duration>(delay));
}
