// Speed of an island's collectives: bytes a second of all-reduce, all-gather
// and reduce-scatter, in threads and in processes over loopback TCP, in
// plaintext and encrypted, compared with Gloo's ring in the same run. Also the
// time of a rendezvous.
//
// usage: collective [--json] [--mib=64] [--runs=7]
//
// One vector of f32 per rank (all-gather and reduce-scatter: the gathered one).
// A rate is the vector's bytes over the median time of --runs runs, from the
// start order until the last rank has ended. Gloo's runs and ours, in plaintext
// and encrypted, alternate. The rendezvous has a listener already, and its
// ranks are threads of one process.

#include "worker/collective/collective.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/flags/flags.h"
#include "base/host_port/host_port.h"
#include "base/net/socket.h"
#include "base/status/status_macros.h"
#include "tests/benchmarks/child_process.h"
#include "worker/collective/local/local_world.h"
#include "worker/collective/tcp/tcp_world.h"

namespace atl::benchmarks {
namespace {

using collective::Call;
using collective::Collective;
using collective::DataType;
using collective::Reduction;

struct Flags {
  bool json = false;
  int64_t mib = 64;
  int runs = 7;
  // A child's place in a world, and whether its bytes are encrypted.
  bool encrypted = false;
  int index = -1;
  int count = 0;
  int port = 0;
  int listener = -1;
};

const char* const kCases[] = {"all_reduce", "all_gather", "reduce_scatter"};
constexpr absl::Duration kPatience = absl::Minutes(2);

double Now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class Rank {
 public:
  Rank(Collective& collective, int64_t count)
      : collective_(collective),
        part_(count / collective.size()),
        in_(part_ * collective.size(), 1 + collective.rank()),
        out_(in_.size()) {}

  absl::Status Make(const std::string& name) {
    const auto count = static_cast<int64_t>(in_.size());
    if (name == kCases[0]) {
      return collective_.Run(Call::AllReduce(DataType::kF32, Reduction::kSum,
                                             in_.data(), out_.data(), count));
    }
    if (name == kCases[1]) {
      return collective_.Run(
          Call::AllGather(DataType::kF32, in_.data(), out_.data(), part_));
    }
    return collective_.Run(Call::ReduceScatter(DataType::kF32, Reduction::kSum,
                                               in_.data(), out_.data(), part_));
  }

  // Returns "" or the fault of the result.
  std::string Check(const std::string& name) const {
    const int n = collective_.size();
    const size_t count = name == kCases[2] ? part_ : in_.size();
    for (size_t e = 0; e < count; ++e) {
      const float expected =
          name == kCases[1] ? 1 + e / part_ : n * (n + 1) / 2.0f;
      if (out_[e] != expected) {
        return absl::StrCat(name, ": element ", e, " is ", out_[e], ", not ",
                            expected);
      }
    }
    return "";
  }

 private:
  Collective& collective_;
  const int64_t part_;
  std::vector<float> in_;
  std::vector<float> out_;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// --- Threads
// ------------------------------------------------------------------------

using Times = std::vector<std::vector<double>>;

absl::StatusOr<Times> RunThreads(const Flags& flags, int ranks) {
  collective::LocalWorld world(ranks);
  auto members = world.TakeRanks();
  Times times(std::size(kCases));
  std::vector<absl::Status> statuses(ranks);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      statuses[r] = [&]() -> absl::Status {
        Rank rank(*members[r], flags.mib << 18);
        for (size_t c = 0; c < std::size(kCases); ++c) {
          for (int run = -1; run < flags.runs; ++run) {  // One warms up.
            RETURN_IF_ERROR(members[r]->Barrier());
            const double start = Now();
            RETURN_IF_ERROR(rank.Make(kCases[c]));
            RETURN_IF_ERROR(members[r]->Barrier());
            if (r == 0 && run >= 0) times[c].push_back(Now() - start);
          }
          const std::string wrong = rank.Check(kCases[c]);
          if (!wrong.empty()) return absl::InternalError(wrong);
        }
        return absl::OkStatus();
      }();
      if (!statuses[r].ok()) members[r]->Abort("benchmark");
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) RETURN_IF_ERROR(status);
  return times;
}

// --- Processes
// ----------------------------------------------------------------------

collective::TcpWorldOptions MakeWorldOptions(int index, int count, int port,
                                             bool encrypted) {
  collective::TcpWorldOptions options;
  options.rendezvous = absl::StrCat("127.0.0.1:", port);
  options.process_index = index;
  options.process_count = count;
  options.secret = "benchmark";
  options.calls_in_the_clear = !encrypted;
  return options;
}

// A child: one rank that follows orders, one per line.
int Child(const Flags& flags) {
  collective::TcpWorldOptions options =
      MakeWorldOptions(flags.index, flags.count, flags.port, flags.encrypted);
  if (flags.index == 0) options.listener = UniqueFd(flags.listener);
  auto world = collective::TcpWorld::Join(std::move(options));
  if (!world.ok()) {
    std::cerr << world.status() << "\n";
    return 1;
  }
  auto members = (*world)->TakeRanks();
  Rank rank(*members[0], flags.mib << 18);
  std::cout << "ready" << std::endl;
  std::string order;
  while (std::getline(std::cin, order)) {
    if (order.rfind("check ", 0) == 0) {
      const std::string wrong = rank.Check(order.substr(6));
      std::cout << (wrong.empty() ? "ok" : wrong) << std::endl;
      continue;
    }
    const absl::Status status = rank.Make(order);
    if (!status.ok()) {
      std::cerr << status << "\n";
      return 1;
    }
    std::cout << "done" << std::endl;
  }
  return 0;
}

class Children {
 public:
  absl::Status Start(const std::vector<std::string>& command) {
    ASSIGN_OR_RETURN(auto child, ChildProcess::Start(command));
    children_.push_back(std::move(child));
    return absl::OkStatus();
  }
  absl::Status AwaitReady() {
    for (auto& child : children_) {
      RETURN_IF_ERROR(child->Expect("ready", kPatience));
    }
    return absl::OkStatus();
  }
  // Sends all one order. Returns the seconds until the last answer.
  absl::StatusOr<double> Time(const std::string& order,
                              const std::string& answer = "done") {
    const double start = Now();
    for (auto& child : children_) RETURN_IF_ERROR(child->WriteLine(order));
    for (auto& child : children_) {
      RETURN_IF_ERROR(child->Expect(answer, kPatience));
    }
    return Now() - start;
  }

 private:
  std::vector<std::unique_ptr<ChildProcess>> children_;
};

absl::Status StartOurs(const Flags& flags, int ranks, bool encrypted,
                       Children& ours) {
  ASSIGN_OR_RETURN(UniqueFd listener, net::Listen({"127.0.0.1", 0}));
  ASSIGN_OR_RETURN(const HostPort at, net::LocalAddress(listener.get()));
  if (fcntl(listener.get(), F_SETFD, 0) != 0) {
    return absl::InternalError("fcntl");
  }
  for (int r = 0; r < ranks; ++r) {
    RETURN_IF_ERROR(ours.Start(
        {std::filesystem::read_symlink("/proc/self/exe").string(),
         absl::StrCat("--index=", r), absl::StrCat("--count=", ranks),
         absl::StrCat("--mib=", flags.mib), absl::StrCat("--port=", at.port),
         absl::StrCat("--listener=", listener.get()),
         absl::StrCat("--encrypted=", encrypted ? "true" : "false")}));
    if (r == 0 && fcntl(listener.get(), F_SETFD, FD_CLOEXEC) != 0) {
      return absl::InternalError("fcntl");
    }
  }
  return ours.AwaitReady();
}

absl::Status StartGloo(const Flags& flags, int ranks, const std::string& folder,
                       Children& gloo) {
  const std::string program =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() /
      "gloo_ring";
  for (int r = 0; r < ranks; ++r) {
    RETURN_IF_ERROR(gloo.Start({program, absl::StrCat("--index=", r),
                                absl::StrCat("--island-count=", ranks),
                                absl::StrCat("--mib=", flags.mib),
                                "--rendezvous=" + folder}));
  }
  return gloo.AwaitReady();
}

struct ProcessTimes {
  Times clear, encrypted;
  std::vector<double> gloo;
};

absl::Status RunProcesses(const Flags& flags, int ranks, ProcessTimes& times) {
  std::string folder =
      std::filesystem::temp_directory_path() / "collective.XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return absl::InternalError("mkdtemp");
  Children gloo;
  Children clear;
  Children encrypted;
  absl::Status status = StartGloo(flags, ranks, folder, gloo);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(StartOurs(flags, ranks, /*encrypted=*/false, clear));
  RETURN_IF_ERROR(StartOurs(flags, ranks, /*encrypted=*/true, encrypted));
  times.clear.resize(std::size(kCases));
  times.encrypted.resize(std::size(kCases));
  for (int run = -1; run < flags.runs; ++run) {
    ASSIGN_OR_RETURN(const double ring, gloo.Time("sum"));
    if (run >= 0) times.gloo.push_back(ring);
    for (size_t c = 0; c < std::size(kCases); ++c) {
      for (const auto& [ours, of] :
           {std::pair{&clear, &times.clear}, {&encrypted, &times.encrypted}}) {
        ASSIGN_OR_RETURN(const double seconds, ours->Time(kCases[c]));
        RETURN_IF_ERROR(
            ours->Time(absl::StrCat("check ", kCases[c]), "ok").status());
        if (run >= 0) (*of)[c].push_back(seconds);
      }
    }
  }
  return absl::OkStatus();
}

// Seconds from the first dial until all ranks of a world, each a thread, are
// connected: handshakes, joins, and the connections between ranks.
absl::StatusOr<double> TimeRendezvous(int ranks, bool encrypted) {
  ASSIGN_OR_RETURN(UniqueFd listener, net::Listen({"127.0.0.1", 0}));
  ASSIGN_OR_RETURN(const HostPort at, net::LocalAddress(listener.get()));
  std::vector<std::unique_ptr<collective::TcpWorld>> worlds(ranks);
  std::vector<absl::Status> statuses(ranks);
  std::vector<std::thread> threads;
  const double start = Now();
  for (int r = 0; r < ranks; ++r) {
    auto options = MakeWorldOptions(r, ranks, at.port, encrypted);
    if (r == 0) options.listener = std::move(listener);
    threads.emplace_back(
        [&, r, options = std::move(options)]() mutable {
          auto world = collective::TcpWorld::Join(std::move(options));
          statuses[r] = world.status();
          if (world.ok()) worlds[r] = *std::move(world);
        });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) RETURN_IF_ERROR(status);
  return Now() - start;
}

// --- Results
// ------------------------------------------------------------------------

void Print(const Flags& flags, const std::string& where, int ranks,
           const std::string& name, double rate, double gloo) {
  if (flags.json) {
    std::printf(
        "{\"where\": \"%s\", \"ranks\": %d, \"case\": \"%s\", \"mib\": %lld, "
        "\"gb_per_second\": %.4g",
        where.c_str(), ranks, name.c_str(), static_cast<long long>(flags.mib),
        rate);
    if (gloo > 0) std::printf(", \"ratio_to_gloo\": %.3g", rate / gloo);
    std::printf("}\n");
    return;
  }
  std::printf("%-10s %d  %-15s %7.3f GB/s", where.c_str(), ranks, name.c_str(),
              rate);
  if (gloo > 0) std::printf("  %.2f of Gloo's ring", rate / gloo);
  std::printf("\n");
}

void PrintRendezvous(const Flags& flags, int ranks, bool encrypted,
                     double seconds) {
  const char* const where = encrypted ? "encrypted" : "processes";
  std::printf(flags.json ? "{\"where\": \"%s\", \"ranks\": %d, \"case\": "
                           "\"rendezvous\", \"seconds\": %.4g}\n"
                         : "%-10s %d  rendezvous      %7.4f s\n",
              where, ranks, seconds);
}

absl::Status MeasureRendezvous(const Flags& flags, int ranks) {
  std::vector<double> seconds[2];
  for (int run = -1; run < flags.runs; ++run) {
    for (const bool encrypted : {false, true}) {
      ASSIGN_OR_RETURN(const double one, TimeRendezvous(ranks, encrypted));
      if (run >= 0) seconds[encrypted].push_back(one);
    }
  }
  for (const bool encrypted : {false, true}) {
    PrintRendezvous(flags, ranks, encrypted, Median(seconds[encrypted]));
  }
  return absl::OkStatus();
}

absl::Status Measure(const Flags& flags) {
  const double gb = static_cast<double>(flags.mib << 20) * 1e-9;
  for (int ranks : {2, 4}) {
    ASSIGN_OR_RETURN(const Times threads, RunThreads(flags, ranks));
    ProcessTimes processes;
    RETURN_IF_ERROR(RunProcesses(flags, ranks, processes));
    const double gloo = gb / Median(processes.gloo);
    for (const auto& [where, times] :
         {std::pair{"threads", &threads},
          {"processes", &processes.clear},
          {"encrypted", &processes.encrypted}}) {
      for (size_t c = 0; c < std::size(kCases); ++c) {
        Print(flags, where, ranks, kCases[c], gb / Median((*times)[c]),
              c == 0 ? gloo : 0);
      }
    }
    Print(flags, "gloo", ranks, kCases[0], gloo, 0);
    RETURN_IF_ERROR(MeasureRendezvous(flags, ranks));
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Flags flags;
  flags::Command app("collective", "Rates of collectives.");
  app.AddFlag("--json", flags.json, "One JSON object a line");
  app.Add("--mib", flags.mib, "Of a rank's vector")
      .Check(flags::Range(1, 4096));
  app.Add("--runs", flags.runs).Check(flags::Range(1, 1000));
  app.AddFlag("--encrypted", flags.encrypted).Hidden();
  app.Add("--index", flags.index, "Of a child").Hidden();
  app.Add("--count", flags.count).Hidden();
  app.Add("--port", flags.port).Hidden();
  app.Add("--listener", flags.listener).Hidden();
  if (const auto end = app.ParseOrEnd(argc, argv)) return *end;
  if (flags.index >= 0) return Child(flags);
  const absl::Status status = Measure(flags);
  if (status.ok()) return 0;
  std::cerr << "collective: " << status << "\n";
  return 1;
}

}  // namespace
}  // namespace atl::benchmarks

int main(int argc, char** argv) { return atl::benchmarks::Main(argc, argv); }
