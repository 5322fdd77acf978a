// Six islands with a model of 3.2 GB of f32 against one host's server: seconds
// per round, and whether the server's memory grows.
//
//     bazel run -c opt //tests/benchmarks:six_islands -- --json
//     bazel run -c opt //tests/benchmarks:six_islands -- --megabytes 64
//
// All processes are real, and all bytes cross the loopback interface; the
// output has its byte count and the payload's. The islands push one shared
// buffer and pull into another, because six replicas would not fit a machine of
// 24 GiB. Every island checks what it pulls. A round lasts from the order to
// push until every island holds the new parameters. The next round begins when
// the previous one is durable. The first is not timed.
//
// Memory is anonymous memory of coordinator and server, sampled every 10 ms.
// The page cache, which holds the server's files until the memory is needed, is
// reported separately.
//
// With --json one object a line for each durability:
//   {"case": "six_islands", "durability", "islands", "model_mib", "rounds",
//    "seconds", "seconds_max", "server_peak_mib", "server_final_mib",
//    "peak_over_model", "growth", "page_cache_mib", "dirty_mib",
//    "payload_gb_a_round", "loopback_gb_a_round", "cpu_s_per_gb", "cpu"}
// seconds is the median; growth is the last round's peak over the second's.

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/flags/flags.h"
#include "base/status/status_macros.h"
#include "tests/benchmarks/round_cluster.h"
#include "tests/benchmarks/round_island.h"
#include "tests/benchmarks/usage.h"
#include "tests/benchmarks/vectors.h"

namespace atl::benchmarks {
namespace {

constexpr int64_t kBlockElements = 4096;

struct Flags : ClusterFlags {
  bool json = false;
  int64_t megabytes = 3200;  // Millions of bytes.
  int islands = 6;
  int rounds = 10;
  std::vector<std::string> durabilities = {"island", "process"};
  bool force = false;
  // Files with which the benchmark starts itself as an island.
  std::string gradient;
  std::string parameters;

  // At least `megabytes`, in whole blocks.
  int64_t element_count() const {
    const int64_t elements = megabytes * 1'000'000 / 4;
    return (elements + kBlockElements - 1) / kBlockElements * kBlockElements;
  }
  int64_t model_bytes() const { return 4 * element_count(); }
};

double Mib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  if (n == 0) return 0;
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

// An anonymous file that children map by its /proc path.
class SharedBuffer {
 public:
  // UNAVAILABLE: the system refuses the memory.
  absl::Status Make(const char* name, int64_t bytes) {
    file_ = memfd_create(name, MFD_CLOEXEC);
    if (file_ < 0 || ftruncate(file_, bytes) != 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot make a shared buffer of ", bytes, " bytes"));
    }
    return absl::OkStatus();
  }
  ~SharedBuffer() {
    if (file_ >= 0) close(file_);
  }
  std::string path() const {
    return absl::StrCat("/proc/", getpid(), "/fd/", file_);
  }

 private:
  int file_ = -1;
};

int64_t AvailableBytes() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  while (file >> word) {
    int64_t kib = 0;
    if (word == "MemAvailable:" && file >> kib) return kib << 10;
  }
  return 0;
}

// RESOURCE_EXHAUSTED: this machine is too small or too full.
absl::Status CheckRoom(const Flags& flags) {
  // Two shared buffers and the server's memory; islands need little.
  const int64_t memory = 6 * flags.model_bytes() + (int64_t{1} << 30);
  const int64_t available = AvailableBytes();
  if (available < memory) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "%.0f MiB of memory are needed and %.0f are free; give a smaller "
        "--megabytes, or --force",
        Mib(memory), Mib(available)));
  }
  // A log of two rounds, and three versions with their outer state.
  const int64_t disk = (2 * flags.islands + 6) * flags.model_bytes();
  struct statvfs info = {};
  if (statvfs(flags.directory.c_str(), &info) == 0 &&
      static_cast<int64_t>(info.f_bavail * info.f_frsize) < disk) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "%.0f MiB are needed in %s; choose another directory with --dir, or "
        "--force",
        Mib(disk), flags.directory));
  }
  return absl::OkStatus();
}

struct Result {
  std::string durability;
  std::vector<double> seconds;
  double cpu_seconds = 0;           // Of all timed rounds.
  std::vector<int64_t> peak_bytes;  // The server's anonymous memory, by round.
  int64_t final_bytes = 0;
  PageCache page_cache;         // At the end.
  int64_t payload_bytes = 0;    // Up and down, a round.
  int64_t loopback_bytes = 0;   // The kernel's count, a round.
};

v1::Durability ParseDurability(const std::string& name) {
  if (name == "machine") return v1::DURABILITY_MACHINE;
  return name == "island" ? v1::DURABILITY_ISLAND : v1::DURABILITY_PROCESS;
}

// Payload bytes of all islands since their join, up and down.
absl::StatusOr<int64_t> PayloadBytes(const Children& islands) {
  RETURN_IF_ERROR(GiveAll(islands, "count 0"));
  int64_t sum = 0;
  for (const auto& island : islands) {
    ASSIGN_OR_RETURN(const std::string line, island->ReadLine(kPatience));
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    int64_t sent = 0;
    int64_t received = 0;
    if (words.size() != 3 || !absl::SimpleAtoi(words[1], &sent) ||
        !absl::SimpleAtoi(words[2], &received)) {
      return absl::UnknownError(absl::StrCat("an island says ", line));
    }
    sum += sent + received;
  }
  return sum;
}

absl::Status Play(const Flags& flags, const RoundCluster& cluster, int version,
                  Result* result) {
  const Children& islands = cluster.islands();
  RETURN_IF_ERROR(OrderAll(islands, absl::StrCat("open ", version), "open"));
  ASSIGN_OR_RETURN(const int64_t payload, PayloadBytes(islands));
  const int64_t loopback = LoopbackBytes();
  const double cpu = CpuSeconds(cluster.pids());
  MemoryWatch memory(cluster.server_pid());
  const absl::Time start = absl::Now();
  RETURN_IF_ERROR(GiveAll(islands, absl::StrCat("go ", version)));
  for (const auto& island : islands) {
    RETURN_IF_ERROR(island->ReadLine(kPatience).status());  // "pushed ..."
    RETURN_IF_ERROR(island->ReadLine(kPatience).status());  // "committed ..."
  }
  RETURN_IF_ERROR(ExpectAll(islands, "done"));
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  const double used = CpuSeconds(cluster.pids()) - cpu;
  result->loopback_bytes = LoopbackBytes() - loopback;
  // All islands share one buffer, and each has checked its digest.
  RETURN_IF_ERROR(islands[0]->WriteLine(absl::StrCat("check ", version + 1)));
  RETURN_IF_ERROR(islands[0]->Expect("ok", kPatience));
  // Memory for writes after the commit belongs to the round.
  RETURN_IF_ERROR(
      OrderAll(islands, absl::StrCat("open ", version + 1), "open"));
  result->peak_bytes.push_back(memory.peak_bytes());
  ASSIGN_OR_RETURN(const int64_t after, PayloadBytes(islands));
  result->payload_bytes = after - payload;
  if (result->payload_bytes != 2 * flags.islands * flags.model_bytes()) {
    return absl::InternalError(absl::StrCat(
        "islands moved ", result->payload_bytes, " bytes and not ",
        2 * flags.islands * flags.model_bytes()));
  }
  std::cerr << absl::StrFormat(
      "%s, round %d: %.2f s, %.1f CPU-s, server %.0f MiB\n",
      result->durability, version, seconds, used, Mib(memory.peak_bytes()));
  if (version > 0) {
    result->seconds.push_back(seconds);
    result->cpu_seconds += used;
  }
  return absl::OkStatus();
}

absl::StatusOr<Result> Measure(const Flags& flags,
                               const std::string& durability) {
  SharedBuffer gradient;
  SharedBuffer parameters;
  RETURN_IF_ERROR(gradient.Make("gradient", flags.model_bytes()));
  RETURN_IF_ERROR(parameters.Make("parameters", flags.model_bytes()));
  FillGradient(0, MapVector(gradient.path(), flags.element_count()));

  ClusterOptions options;
  options.island_count = flags.islands;
  options.element_count = flags.element_count();
  options.round_count = flags.rounds + 1;
  options.durability = ParseDurability(durability);
  options.directory = absl::StrCat(flags.directory, "/", durability);
  options.coordinator_binary = flags.coordinator_binary;
  options.server_binary = flags.server_binary;
  options.island_command = {
      std::filesystem::read_symlink("/proc/self/exe").string(), "--role=island",
      absl::StrCat("--gradient=", gradient.path()),
      absl::StrCat("--parameters=", parameters.path())};
  RoundCluster cluster;
  RETURN_IF_ERROR(cluster.Start(options));
  Result result;
  result.durability = durability;
  for (int version = 0; version <= flags.rounds; ++version) {
    RETURN_IF_ERROR(Play(flags, cluster, version, &result));
  }
  result.final_bytes = AnonymousBytes(cluster.server_pid());
  result.page_cache = PageCacheBytes();
  return result;
}

void Print(const Flags& flags, const Result& result) {
  const int64_t peak =
      *std::max_element(result.peak_bytes.begin(), result.peak_bytes.end());
  const double over_model =
      static_cast<double>(peak) / static_cast<double>(flags.model_bytes());
  // The first round still touches new memory.
  const double growth = static_cast<double>(result.peak_bytes.back()) /
                        static_cast<double>(result.peak_bytes[1]);
  const double gigabytes = 1e-9 * static_cast<double>(result.payload_bytes);
  const double cpu_per_gb = result.cpu_seconds / (flags.rounds * gigabytes);
  const double seconds = Median(result.seconds);
  const double seconds_max =
      *std::max_element(result.seconds.begin(), result.seconds.end());
  if (flags.json) {
    std::cout << absl::StrFormat(
        "{\"case\": \"six_islands\", \"durability\": \"%s\", \"islands\": %d, "
        "\"model_mib\": %.3f, \"rounds\": %d, \"seconds\": %.3f, "
        "\"seconds_max\": %.3f, \"server_peak_mib\": %.1f, "
        "\"server_final_mib\": %.1f, \"peak_over_model\": %.3f, "
        "\"growth\": %.4f, \"page_cache_mib\": %.0f, \"dirty_mib\": %.0f, "
        "\"payload_gb_a_round\": %.4f, \"loopback_gb_a_round\": %.4f, "
        "\"cpu_s_per_gb\": %.3f, \"cpu\": \"%s\"}\n",
        result.durability, flags.islands, Mib(flags.model_bytes()),
        flags.rounds, seconds, seconds_max, Mib(peak), Mib(result.final_bytes),
        over_model, growth, Mib(result.page_cache.cached),
        Mib(result.page_cache.dirty), gigabytes, 1e-9 * result.loopback_bytes,
        cpu_per_gb, CpuName());
    std::cout << std::flush;
    return;
  }
  std::cout << absl::StrFormat(
      "%d islands, %.1f MB of f32, level %s, %d rounds, %s\n"
      "  %.2f s a round (at most %.2f), %.3f CPU-s/GB\n"
      "  server: peak %.0f MiB, %.2f x the model, %.4f of the second round's "
      "in the last; %.0f MiB at the end\n"
      "  page cache %.0f MiB, of which %.0f not yet on disk\n"
      "  payload %.3f GB a round, over loopback %.3f GB\n",
      flags.islands, 1e-6 * flags.model_bytes(), result.durability,
      flags.rounds, CpuName(), seconds, seconds_max, cpu_per_gb, Mib(peak),
      over_model, growth, Mib(result.final_bytes),
      Mib(result.page_cache.cached), Mib(result.page_cache.dirty), gigabytes,
      1e-9 * result.loopback_bytes);
  std::cout << std::flush;
}

int Benchmark(Flags flags) {
  std::string directory =
      absl::StrCat(flags.directory, "/atoll-six-islands-XXXXXX");
  if (mkdtemp(directory.data()) == nullptr) {
    std::cerr << "cannot make a directory in " << flags.directory
              << "; choose another with --dir\n";
    return 1;
  }
  flags.directory = directory;
  int exit_status = 0;
  for (const std::string& durability : flags.durabilities) {
    absl::Status status =
        flags.force ? absl::OkStatus() : CheckRoom(flags);
    if (status.ok()) {
      const absl::StatusOr<Result> result = Measure(flags, durability);
      status = result.status();
      if (status.ok()) Print(flags, *result);
    }
    if (status.ok()) continue;
    std::cerr << durability << ": " << status << "\n";
    exit_status = 1;
  }
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
  return exit_status;
}

int Main(int argc, char** argv) {
  Flags flags;
  flags::Command app("six_islands",
                     "Six islands of a large model against one host's server.");
  app.AddFlag("--json", flags.json,
              "Print one JSON object a line, nothing else");
  app.Add("--megabytes", flags.megabytes, "Size of the model, f32")
      .Check(flags::Range(1, 1 << 20));
  app.Add("--islands", flags.islands, "Islands").Check(flags::Range(1, 64));
  app.Add("--rounds", flags.rounds, "Measured rounds")
      .Check(flags::Range(1, 1000));
  app.Add("--durability", flags.durabilities,
          "any of island, process and machine")
      .Check(flags::IsMember({"island", "process", "machine"}));
  app.AddFlag("--force", flags.force,
              "Try where memory or disk seem too small");
  AddClusterFlags(app, flags);
  app.Add("--gradient", flags.gradient).Hidden();
  app.Add("--parameters", flags.parameters).Hidden();
  if (const auto end = app.ParseOrEnd(argc, argv)) return *end;
  // A write to an ended child is an error; it must not kill this process.
  signal(SIGPIPE, SIG_IGN);
  if (flags.role.empty()) return Benchmark(flags);
  return RunIsland({.coordinator = flags.coordinator,
                    .run_id = "round",
                    .island_id = absl::StrCat("island-", flags.index),
                    // All push the same gradient, so it is the mean.
                    .island_count = 1,
                    .shared_gradient = flags.gradient,
                    .shared_parameters = flags.parameters});
}

}  // namespace
}  // namespace atl::benchmarks

int main(int argc, char** argv) { return atl::benchmarks::Main(argc, argv); }
