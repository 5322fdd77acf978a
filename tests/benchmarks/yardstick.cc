#include "tests/benchmarks/yardstick.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/codec/crc32c.h"
#include "base/codec/f32_bytes.h"
#include "base/codec/f32_values.h"
#include "tests/benchmarks/vectors.h"

namespace atl::benchmarks {
namespace {

// 1 MiB: with 256 KiB a round takes a fifth longer (Zen 5), because the ends
// wait for each other more often.
constexpr size_t kChunkElements = 256 * 1024;

// The first byte from an island: the kind of its message.
constexpr char kRound = 1;
constexpr char kRaw = 2;
constexpr char kChecked = 3;
constexpr char kLogged = 4;

// Moves all of `bytes`; false if the other end has closed.
bool ReceiveAll(int socket, void* data, size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = recv(socket, at, bytes, 0);
    if (n <= 0) return false;
    at += n;
    bytes -= n;
  }
  return true;
}

bool SendAll(int socket, const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = send(socket, at, bytes, MSG_NOSIGNAL);
    if (n <= 0) return false;
    at += n;
    bytes -= n;
  }
  return true;
}

bool SendFloats(int socket, absl::Span<const float> values) {
  return SendAll(socket, values.data(), values.size() * sizeof(float));
}

bool ReceiveFloats(int socket, absl::Span<float> values) {
  return ReceiveAll(socket, values.data(), values.size() * sizeof(float));
}

bool SendChecked(int socket, absl::Span<const float> values) {
  for (; !values.empty(); values.remove_prefix(
           std::min(kChunkElements, values.size()))) {
    const absl::Span<const float> chunk = values.subspan(0, kChunkElements);
    const absl::Span<const char> bytes = codec::F32Bytes(chunk);
    const uint32_t crc = codec::Crc32c({bytes.data(), bytes.size()});
    if (!SendFloats(socket, chunk) || !SendAll(socket, &crc, sizeof(crc))) {
      return false;
    }
  }
  return true;
}

// Whether `chunk` has the checksum of SendChecked and only finite values.
bool IsRight(int socket, absl::Span<const float> chunk) {
  uint32_t crc = 0;
  if (!ReceiveAll(socket, &crc, sizeof(crc))) return false;
  const absl::Span<const char> bytes = codec::F32Bytes(chunk);
  return codec::Crc32c({bytes.data(), bytes.size()}) == crc &&
         codec::AllFinite(chunk);
}

void NoDelay(int socket) {
  const int one = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

bool MergeChunk(const std::vector<int>& islands, absl::Span<float> sum,
                absl::Span<float> received, absl::Span<float> theta,
                absl::Span<float> momentum) {
  const size_t n = theta.size();
  if (!ReceiveFloats(islands[0], sum)) return false;
  for (size_t i = 1; i < islands.size(); ++i) {
    if (!ReceiveFloats(islands[i], received)) return false;
    for (size_t e = 0; e < n; ++e) sum[e] += received[e];
  }
  const float share = 1.0f / static_cast<float>(islands.size());
  for (size_t e = 0; e < n; ++e) {
    const float g = sum[e] * share;
    const float m = kMomentum * momentum[e] + g;
    momentum[e] = m;
    theta[e] -= kLearningRate * (g + kMomentum * m);
  }
  return true;
}

// Receives a vector of `island` as `order` says, and confirms it. `log` is the
// file of a logged vector. False: the vector is wrong or the island has closed.
bool DrainOne(int island, char order, int log, size_t element_count) {
  std::vector<float> chunk(kChunkElements);
  for (size_t at = 0; at < element_count; at += kChunkElements) {
    const size_t n = std::min(kChunkElements, element_count - at);
    const absl::Span<float> part = absl::MakeSpan(chunk).subspan(0, n);
    if (!ReceiveFloats(island, part)) return false;
    if (order != kRaw && !IsRight(island, part)) return false;
    const auto bytes = static_cast<ssize_t>(n * sizeof(float));
    if (order == kLogged &&
        pwrite(log, part.data(), n * sizeof(float),
               static_cast<off_t>(at * sizeof(float))) != bytes) {
      return false;
    }
  }
  return SendAll(island, &order, 1);
}

bool Drain(const std::vector<int>& islands, const std::vector<int>& logs,
           char order, size_t element_count) {
  std::atomic<bool> ok{true};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < islands.size(); ++i) {
    threads.emplace_back([&, i] {
      if (!DrainOne(islands[i], order, logs[i], element_count)) ok = false;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ok;
}

// False: an island has closed.
bool ServeRound(const std::vector<int>& islands, const std::vector<int>& logs,
                absl::Span<float> theta, absl::Span<float> momentum,
                absl::Span<float> scratch) {
  char order = kRound;
  for (int island : islands) {
    if (!ReceiveAll(island, &order, 1)) return false;
  }
  if (order != kRound) return Drain(islands, logs, order, theta.size());
  for (size_t at = 0; at < theta.size(); at += kChunkElements) {
    const size_t n = std::min(kChunkElements, theta.size() - at);
    if (!MergeChunk(islands, scratch.subspan(0, n),
                    scratch.subspan(kChunkElements, n), theta.subspan(at, n),
                    momentum.subspan(at, n))) {
      return false;
    }
  }
  for (size_t at = 0; at < theta.size(); at += kChunkElements) {
    for (int island : islands) {
      if (!SendFloats(island, theta.subspan(at, kChunkElements))) return false;
    }
  }
  return true;
}

}  // namespace

int RunYardstickServer(int island_count, size_t element_count,
                       const std::string& directory) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = Loopback(0);
  socklen_t length = sizeof(address);
  if (listener < 0 ||
      bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(listener, island_count) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) !=
          0) {
    std::cerr << "yardstick: cannot listen on loopback\n";
    return 1;
  }
  std::cout << ntohs(address.sin_port) << std::endl;
  const absl::Span<float> theta = MakeVector(element_count);
  const absl::Span<float> momentum = MakeVector(element_count);
  const absl::Span<float> scratch = MakeVector(2 * kChunkElements);
  std::vector<int> islands;
  std::vector<int> logs;
  for (int i = 0; i < island_count; ++i) {
    const int island = accept(listener, nullptr, nullptr);
    if (island < 0) return 1;
    NoDelay(island);
    islands.push_back(island);
    const std::string path =
        absl::StrCat(directory, "/yardstick-", getpid(), "-", i, ".log");
    const int log = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (log < 0) {
      std::cerr << "yardstick: cannot write " << path << "\n";
      return 1;
    }
    unlink(path.c_str());  // Exists as long as it is open.
    logs.push_back(log);
  }
  while (ServeRound(islands, logs, theta, momentum, scratch)) {
  }
  return 0;
}

int RunYardstickIsland(int index, int island_count, size_t element_count,
                       int port) {
  const absl::Span<float> gradient = MakeVector(element_count);
  const absl::Span<float> parameters = MakeVector(element_count);
  FillGradient(index, gradient);
  const int server = socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in address = Loopback(port);
  if (server < 0 || connect(server, reinterpret_cast<const sockaddr*>(&address),
                            sizeof(address)) != 0) {
    std::cerr << "yardstick: cannot connect to port " << port << "\n";
    return 1;
  }
  NoDelay(server);
  std::cout << "ready" << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    int64_t version = 0;
    if (words.size() != 2 || !absl::SimpleAtoi(words[1], &version)) return 2;
    if (words[0] == "check") {
      const std::string wrong =
          CheckParameters(parameters, island_count, version);
      std::cout << (wrong.empty() ? "ok" : wrong) << std::endl;
      continue;
    }
    if (words[0] != "go") {
      const char order = words[0] == "raw"       ? kRaw
                         : words[0] == "checked" ? kChecked
                                                 : kLogged;
      char answer;
      if (!SendAll(server, &order, 1) ||
          !(order == kRaw ? SendFloats(server, gradient)
                          : SendChecked(server, gradient)) ||
          !ReceiveAll(server, &answer, 1)) {
        return 1;
      }
      std::cout << "done" << std::endl;
      continue;
    }
    if (!SendAll(server, &kRound, 1)) return 1;
    std::thread sender([&] { SendFloats(server, gradient); });
    const bool received = ReceiveFloats(server, parameters);
    sender.join();
    if (!received) return 1;
    std::cout << "done" << std::endl;
  }
  return 0;
}

}  // namespace atl::benchmarks
