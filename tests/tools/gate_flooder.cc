// For gate_flood.py: asks a gate for a token that nobody made, as fast as it
// can, on one core.
//
//   gate_flooder JOIN_STRING SECONDS THREADS
//
// Takes address, pin and run of the join string. Prints {"tries", "answers"}.

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "base/identity/join_string.h"
#include "base/status/refusal.h"
#include "coordinator/client/gate_client.h"

namespace atl {
namespace {

struct Counts {
  std::atomic<int64_t> tries = 0;
  std::atomic<int64_t> answers = 0;
};

bool IsAnswer(const absl::Status& status) {
  const auto reason = GetReason(status);
  return reason.has_value() &&
         (reason->reason == "WRONG_TOKEN" || reason->reason == "BUSY");
}

void Flood(const JoinString& join, absl::Time end, Counts& counts) {
  coordinator::GateClientOptions options;
  options.address = join.gate_address;
  options.pin = join.pin;
  const auto client = coordinator::GateClient::Make(options);
  if (!client.ok()) {
    std::cerr << client.status() << "\n";
    return;
  }
  v1::GateRequest request;
  request.mutable_check()->set_token_id("abcdefghijkl");
  request.mutable_check()->set_token_secret(std::string(32, 'x'));
  request.mutable_check()->set_run_id(join.run_id);
  while (absl::Now() < end) {
    ++counts.tries;
    if (IsAnswer((*client)->Call(request).status())) ++counts.answers;
  }
}

// Threads that start later are on the same core.
void StayOnOneCore() {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(::sched_getcpu(), &set);
  ::sched_setaffinity(0, sizeof(set), &set);
}

int Main(int argc, char** argv) {
  double seconds = 0;
  int thread_count = 0;
  if (argc != 4 || !absl::SimpleAtod(argv[2], &seconds) ||
      !absl::SimpleAtoi(argv[3], &thread_count)) {
    std::cerr << "usage: gate_flooder JOIN_STRING SECONDS THREADS\n";
    return 2;
  }
  const absl::StatusOr<JoinString> join = ParseJoinString(argv[1]);
  if (!join.ok()) {
    std::cerr << join.status() << "\n";
    return 2;
  }
  StayOnOneCore();
  Counts counts;
  const absl::Time end = absl::Now() + absl::Seconds(seconds);
  std::vector<std::thread> threads;
  for (int i = 0; i < thread_count; ++i) {
    threads.emplace_back(Flood, std::cref(*join), end, std::ref(counts));
  }
  for (std::thread& thread : threads) thread.join();
  std::cout << "{\"tries\": " << counts.tries
            << ", \"answers\": " << counts.answers << "}\n";
  return 0;
}

}  // namespace
}  // namespace atl

int main(int argc, char** argv) { return atl::Main(argc, argv); }
