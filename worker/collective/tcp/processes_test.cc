// Real processes: this program starts itself as each of them.

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/net/socket.h"
#include "gtest/gtest.h"
#include "worker/collective/tcp/tcp_world.h"

namespace atl::collective {
namespace {

constexpr int kProcesses = 3;
constexpr int kRanks = 2;  // Each.
constexpr int kVictim = 1;
constexpr int kCalls = 200;

// A child process: all ranks sum without end, until the victim kills itself in
// its 100th call. Then they print their status.
int Child(int process, int port, int listener) {
  TcpWorldOptions options;
  options.rendezvous = absl::StrCat("127.0.0.1:", port);
  if (process == 0) options.listener = UniqueFd(listener);
  options.process_index = process;
  options.process_count = kProcesses;
  options.rank_count = kRanks;
  options.secret = "secret";
  auto world = TcpWorld::Join(std::move(options));
  if (!world.ok()) {
    std::cout << world.status() << std::endl;
    return 2;
  }
  auto ranks = (*world)->TakeRanks();
  std::vector<absl::Status> statuses(kRanks);
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r) {
    threads.emplace_back([&, r] {
      std::vector<float> data(200'000, 1);
      for (int call = 0; statuses[r].ok(); ++call) {
        if (process == kVictim && r == 0 && call == kCalls) raise(SIGKILL);
        statuses[r] = ranks[r]->AllReduce(absl::MakeSpan(data));
        data.assign(data.size(), 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) {
    std::cout << status << std::endl;
    const bool names = absl::StrContains(status.message(), "process 1") ||
                       absl::StrContains(status.message(), "rank 2") ||
                       absl::StrContains(status.message(), "rank 3");
    if (!absl::IsUnavailable(status) || !names) return 3;
  }
  return 0;
}

pid_t Start(int process, int port, int listener) {
  const std::vector<std::string> words = {
      "processes_test", "--child", absl::StrCat(process), absl::StrCat(port),
      absl::StrCat(listener)};
  std::vector<char*> arguments;
  for (const std::string& word : words) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    execv("/proc/self/exe", arguments.data());
    _exit(127);
  }
  return pid;
}

TEST(ProcessesTest, OneThatIsKilledEndsTheCallsOfAllOthersAtOnce) {
  auto listener = net::Listen({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok()) << listener.status();
  const int port = net::LocalAddress(listener->get())->port;
  ASSERT_EQ(fcntl(listener->get(), F_SETFD, 0), 0);  // Process 0 inherits it.
  std::vector<pid_t> pids;
  for (int process = 0; process < kProcesses; ++process) {
    pids.push_back(Start(process, port, listener->get()));
    if (process == 0) *listener = UniqueFd();
  }
  int how = 0;
  ASSERT_EQ(waitpid(pids[kVictim], &how, 0), pids[kVictim]);
  EXPECT_TRUE(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
  const absl::Time killed = absl::Now();
  for (int process = 0; process < kProcesses; ++process) {
    if (process == kVictim) continue;
    ASSERT_EQ(waitpid(pids[process], &how, 0), pids[process]);
    EXPECT_TRUE(WIFEXITED(how) && WEXITSTATUS(how) == 0)
        << "process " << process << ": " << how;
  }
  const absl::Duration after = absl::Now() - killed;
  // None ended by its call timeout: that has another status.
  std::cout << "all others had ended " << after << " after it\n";
}

}  // namespace
}  // namespace atl::collective

int main(int argc, char** argv) {
  int numbers[3] = {};
  if (argc == 5 && std::string(argv[1]) == "--child") {
    for (int i = 0; i < 3; ++i) {
      if (!absl::SimpleAtoi(argv[2 + i], &numbers[i])) return 1;
    }
    return atl::collective::Child(numbers[0], numbers[1], numbers[2]);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
