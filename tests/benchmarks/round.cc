// One outer round of a large f32 vector through the real path, compared with a
// raw-socket yardstick and Gloo's ring in the same process tree.
//
//     bazel run -c opt //tests/benchmarks:round -- --json
//
// Cases: `push`, one way, as a share of raw TCP's speed; `f32_nesterov`, the
// whole round; `int8_bf16`, the round with int8 and error feedback up and bf16
// down, with encoding and decoding, against the same f32 yardstick; `gloo`, the
// ring.
//
// A coordinator, a server and N islands run as processes, one set for every
// durability; so do the yardstick and Gloo's peers. Repetitions are
// interleaved, one round of each; the first is not counted. A round lasts from
// the order to push until every island holds and has checked the new
// parameters. The next round begins when the previous one is durable. The
// result is the ratio of medians, because a machine's noise affects both.
//
// Unlike the yardstick, ours computes a CRC-32C of every chunk and digests of
// contributions and parameters, syncs the decision, and writes the new version
// to disk after the commit. Level island also keeps a version's merged
// gradient; process keeps a log of contributions that survives kill -9, machine
// one that survives a power cut.
//
// `push` lasts from the first byte that any island sends until the server has
// received all bytes of all islands; with raw sockets until they were read. At
// process and machine the server has then checked and logged them and told the
// islands. At island there is no answer before the commit, so the end is when
// the last island has handed its last byte to the network. The server has then
// not read at most a chunk per stream and HTTP/2's window, 1.25 MiB (2 % of 256
// MiB over four streams). The server's work until then is included: at island
// it checks and merges a chunk before it reads the next. CPU seconds at island
// include all work up to the commit.
//
// `least_ratio` compares, with raw TCP's speed, raw sockets with the minimal
// work of a push: a checksum per chunk at both ends, a check of every value
// and, for process and machine, a copy into a file.

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/flags/flags.h"
#include "base/status/status_macros.h"
#include "tests/benchmarks/child_process.h"
#include "tests/benchmarks/round_cluster.h"
#include "tests/benchmarks/round_island.h"
#include "tests/benchmarks/usage.h"
#include "tests/benchmarks/yardstick.h"

namespace atl::benchmarks {
namespace {

struct Flags : ClusterFlags {
  bool json = false;
  int64_t mib = 256;
  int repetitions = 5;
  std::vector<int> islands = {2, 4};
  std::vector<std::string> durabilities = {"island", "process"};
  std::vector<std::string> cases = {"f32_nesterov", "int8_bf16"};
  bool gloo = true;
  std::string gloo_binary = "tests/benchmarks/gloo_ring";
  int island_count = 0;
  int port = 0;

  int64_t element_count() const { return mib << 18; }
  double gigabytes() const { return 4e-9 * static_cast<double>(mib << 18); }
};

struct Series {
  std::vector<double> seconds;
  std::vector<double> cpu_seconds;

  void Add(double wall, double cpu) {
    seconds.push_back(wall);
    cpu_seconds.push_back(cpu);
  }
};

struct OurResult {
  std::string durability;
  Series round;
  Series push;
  // From the last pushed byte until the islands learn of the commit; at level
  // island (live merge) from the first byte.
  Series merge;
  int64_t server_bytes = 0;  // Peak anonymous memory of the server.
};

struct Result {
  int islands = 0;
  std::string name;  // Of the case.
  std::vector<OurResult> ours;
  Series yardstick;
  Series raw;
  // Raw sockets with the minimal work of a push.
  Series checked;
  Series logged;
  Series raw_beside;
  Series gloo;
};

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

std::string SelfPath() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

std::vector<pid_t> ListPids(const Children& children) {
  std::vector<pid_t> pids;
  for (const auto& child : children) pids.push_back(child->pid());
  return pids;
}

absl::Status Time(const Children& children, const std::vector<pid_t>& pids,
                  const std::string& order, Series* series) {
  const double cpu = CpuSeconds(pids);
  const absl::Time start = absl::Now();
  RETURN_IF_ERROR(OrderAll(children, order, "done"));
  series->Add(absl::ToDoubleSeconds(absl::Now() - start),
              CpuSeconds(pids) - cpu);
  return absl::OkStatus();
}

// --- Peers -------------------------------------------------------------------

absl::StatusOr<Children> StartPeers(std::vector<std::string> command,
                                    int island_count) {
  command.push_back(absl::StrCat("--island-count=", island_count));
  Children children;
  for (int i = 0; i < island_count; ++i) {
    std::vector<std::string> one = command;
    one.push_back(absl::StrCat("--index=", i));
    ASSIGN_OR_RETURN(auto child, ChildProcess::Start(one));
    children.push_back(std::move(child));
  }
  return children;
}

struct Yardstick {
  std::unique_ptr<ChildProcess> server;
  Children islands;

  absl::Status Start(const Flags& flags, int island_count) {
    const std::string mib = absl::StrCat("--mib=", flags.mib);
    ASSIGN_OR_RETURN(server, ChildProcess::Start(
                                 {SelfPath(), "--role=yardstick_server", mib,
                                  absl::StrCat("--island-count=", island_count),
                                  absl::StrCat("--dir=", flags.directory)}));
    ASSIGN_OR_RETURN(const std::string port, server->ReadLine(kPatience));
    ASSIGN_OR_RETURN(islands, StartPeers({SelfPath(), "--role=yardstick_island",
                                          mib, absl::StrCat("--port=", port)},
                                         island_count));
    return ExpectAll(islands, "ready");
  }

  std::vector<pid_t> pids() const {
    std::vector<pid_t> all = ListPids(islands);
    all.push_back(server->pid());
    return all;
  }
};

absl::StatusOr<Children> StartGloo(const Flags& flags, int island_count) {
  const std::string directory =
      absl::StrCat(flags.directory, "/gloo-", island_count);
  std::error_code ignored;
  std::filesystem::create_directories(directory, ignored);
  ASSIGN_OR_RETURN(
      Children peers,
      StartPeers({flags.gloo_binary, absl::StrCat("--mib=", flags.mib),
                  absl::StrCat("--rendezvous=", directory)},
                 island_count));
  RETURN_IF_ERROR(ExpectAll(peers, "ready"));
  return peers;
}

// --- Ours --------------------------------------------------------------------

v1::Durability ParseDurability(const std::string& name) {
  if (name == "machine") return v1::DURABILITY_MACHINE;
  return name == "island" ? v1::DURABILITY_ISLAND : v1::DURABILITY_PROCESS;
}

v1::ExchangeSpec MakeExchange(const std::string& name) {
  v1::ExchangeSpec exchange;
  if (name == "int8_bf16") {
    exchange.set_up(v1::CODEC_INT8);
    exchange.set_error_feedback(true);
    exchange.set_down(v1::CODEC_BF16);
  }
  return exchange;
}

absl::Status StartOurs(const Flags& flags, const std::string& name,
                       int island_count, const std::string& durability,
                       RoundCluster* cluster) {
  ClusterOptions options;
  options.island_count = island_count;
  options.element_count = flags.element_count();
  options.round_count = flags.repetitions + 1;
  options.durability = ParseDurability(durability);
  options.exchange = MakeExchange(name);
  options.directory = absl::StrCat(flags.directory, "/", name, "-", durability,
                                   "-", island_count);
  options.coordinator_binary = flags.coordinator_binary;
  options.server_binary = flags.server_binary;
  options.island_command = {SelfPath(), "--role=island",
                            absl::StrCat("--island-count=", island_count)};
  return cluster->Start(options);
}

// When the last island has learnt of the commit.
absl::StatusOr<int64_t> LastCommit(const Children& islands) {
  int64_t last = 0;
  for (const auto& island : islands) {
    ASSIGN_OR_RETURN(const std::string line, island->ReadLine(kPatience));
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    int64_t time = 0;
    if (words.size() != 2 || !absl::SimpleAtoi(words[1], &time)) {
      return absl::UnknownError(absl::StrCat("an island says ", line));
    }
    last = std::max(last, time);
  }
  return last;
}

absl::Status PlayOurs(const RoundCluster& cluster, int version,
                      OurResult* result) {
  const Children& islands = cluster.islands();
  RETURN_IF_ERROR(OrderAll(islands, absl::StrCat("open ", version), "open"));
  MemoryWatch memory(cluster.server_pid());
  const double cpu = CpuSeconds(cluster.pids());
  const double server_cpu = CpuSeconds({cluster.server_pid()});
  const absl::Time start = absl::Now();
  RETURN_IF_ERROR(GiveAll(islands, absl::StrCat("go ", version)));
  const bool is_merged_on_the_way = result->durability == "island";
  int64_t push_begin = 0;
  int64_t push_end = 0;
  int64_t push_cpu = 0;
  for (const auto& island : islands) {
    ASSIGN_OR_RETURN(const std::string line, island->ReadLine(kPatience));
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    int64_t begin = 0;
    int64_t end = 0;
    int64_t used = 0;
    int64_t sent = 0;
    if (words.size() != 5 || !absl::SimpleAtoi(words[1], &begin) ||
        !absl::SimpleAtoi(words[2], &end) ||
        !absl::SimpleAtoi(words[3], &used) ||
        !absl::SimpleAtoi(words[4], &sent)) {
      return absl::UnknownError(absl::StrCat("an island says ", line));
    }
    push_begin = push_begin == 0 ? begin : std::min(push_begin, begin);
    push_end = std::max(push_end, is_merged_on_the_way ? sent : end);
    push_cpu += used;
  }
  result->push.Add(1e-9 * static_cast<double>(push_end - push_begin),
                   1e-9 * static_cast<double>(push_cpu) +
                       CpuSeconds({cluster.server_pid()}) - server_cpu);
  ASSIGN_OR_RETURN(const int64_t committed, LastCommit(islands));
  const int64_t merge_begin = is_merged_on_the_way ? push_begin : push_end;
  result->merge.Add(1e-9 * static_cast<double>(committed - merge_begin), 0);
  RETURN_IF_ERROR(ExpectAll(islands, "done"));
  result->round.Add(absl::ToDoubleSeconds(absl::Now() - start),
                    CpuSeconds(cluster.pids()) - cpu);
  result->server_bytes = std::max(result->server_bytes, memory.peak_bytes());
  return OrderAll(islands, absl::StrCat("check ", version + 1), "ok");
}

// --- Measuring ---------------------------------------------------------------

// Runs after the rounds, which would otherwise share the disk with its log.
absl::Status MeasureLeast(const Flags& flags, const Yardstick& yardstick,
                          Result* result) {
  for (int i = 0; i <= flags.repetitions; ++i) {
    if (i == 1) result->raw_beside = result->checked = result->logged = {};
    for (const auto& [order, series] :
         {std::pair("raw 0", &result->raw_beside),
          std::pair("checked 0", &result->checked),
          std::pair("logged 0", &result->logged)}) {
      RETURN_IF_ERROR(Time(yardstick.islands, yardstick.pids(), order, series));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Result> Measure(const Flags& flags, const std::string& name,
                               int island_count) {
  Result result{.islands = island_count, .name = name};
  std::vector<std::unique_ptr<RoundCluster>> clusters;
  for (const std::string& durability : flags.durabilities) {
    clusters.push_back(std::make_unique<RoundCluster>());
    RETURN_IF_ERROR(
        StartOurs(flags, name, island_count, durability,
                  clusters.back().get()));
    result.ours.push_back({.durability = durability});
  }
  Yardstick yardstick;
  RETURN_IF_ERROR(yardstick.Start(flags, island_count));
  Children gloo;
  if (flags.gloo && name == "f32_nesterov") {
    ASSIGN_OR_RETURN(gloo, StartGloo(flags, island_count));
  }
  for (int version = 0; version <= flags.repetitions; ++version) {
    if (version == 1) {  // Drop the warm-up.
      for (OurResult& ours : result.ours) {
        ours.round = ours.push = ours.merge = {};
      }
      result.yardstick = result.raw = result.gloo = {};
    }
    for (size_t i = 0; i < clusters.size(); ++i) {
      RETURN_IF_ERROR(PlayOurs(*clusters[i], version, &result.ours[i]));
      std::cerr << absl::StrFormat(
          "%d islands, %s, round %d, %s: %.0f ms (%.0f of a core), push %.0f "
          "ms\n",
          island_count, name, version, flags.durabilities[i],
          1e3 * result.ours[i].round.seconds.back(),
          1e3 * result.ours[i].round.cpu_seconds.back(),
          1e3 * result.ours[i].push.seconds.back());
    }
    const std::string go = absl::StrCat("go ", version);
    const std::string check = absl::StrCat("check ", version + 1);
    RETURN_IF_ERROR(
        Time(yardstick.islands, yardstick.pids(), go, &result.yardstick));
    RETURN_IF_ERROR(OrderAll(yardstick.islands, check, "ok"));
    RETURN_IF_ERROR(
        Time(yardstick.islands, yardstick.pids(), "raw 0", &result.raw));
    std::cerr << absl::StrFormat("  yardstick: %.0f ms, raw push %.0f ms\n",
                                 1e3 * result.yardstick.seconds.back(),
                                 1e3 * result.raw.seconds.back());
    if (gloo.empty()) continue;
    RETURN_IF_ERROR(Time(gloo, ListPids(gloo), go, &result.gloo));
    RETURN_IF_ERROR(OrderAll(gloo, check, "ok"));
  }
  if (name == "f32_nesterov") {
    RETURN_IF_ERROR(MeasureLeast(flags, yardstick, &result));
  }
  return result;
}

// --- Printing ----------------------------------------------------------------

double CpuPerGb(const Series& series, double gigabytes) {
  return Median(series.cpu_seconds) / gigabytes;
}

// The raw sockets with the minimal work of a push at this durability.
const Series& FindLeast(const Result& result, const OurResult& ours) {
  return ours.durability == "island" ? result.checked : result.logged;
}

double LeastRatio(const Result& result, const Series& least) {
  return Median(result.raw_beside.seconds) / Median(least.seconds);
}

void PrintPush(const Flags& flags, const Result& result,
               const OurResult& ours) {
  const double pushed = result.islands * flags.gigabytes();
  const double raw = Median(result.raw.seconds);
  const double push = Median(ours.push.seconds);
  const Series& least = FindLeast(result, ours);
  std::cout << absl::StrFormat(
      "{\"case\": \"push\", \"islands\": %d, \"ratio\": %.3f, "
      "\"least_ratio\": %.3f, \"ours_gb_per_s\": %.2f, "
      "\"raw_gb_per_s\": %.2f, \"least_gb_per_s\": %.2f, "
      "\"cpu_s_per_gb\": %.3f, \"raw_cpu_s_per_gb\": %.3f, "
      "\"least_cpu_s_per_gb\": %.3f, "
      "\"durability\": \"%s\", \"cpu\": \"%s\"}\n",
      result.islands, raw / push, LeastRatio(result, least), pushed / push,
      pushed / raw, pushed / Median(least.seconds), CpuPerGb(ours.push, pushed),
      CpuPerGb(result.raw, pushed), CpuPerGb(least, pushed), ours.durability,
      CpuName());
}

// Gigabytes are of f32, whatever the codec.
void PrintJson(const Flags& flags, const Result& result) {
  const double pushed = result.islands * flags.gigabytes();
  const double moved = 2 * pushed;
  const double yardstick = Median(result.yardstick.seconds);
  const std::string cpu = CpuName();
  for (const OurResult& ours : result.ours) {
    if (result.name == "f32_nesterov") PrintPush(flags, result, ours);
    const double round = Median(ours.round.seconds);
    std::cout << absl::StrFormat(
        "{\"case\": \"%s\", \"islands\": %d, \"ratio\": %.3f, "
        "\"ours_ms\": %.1f, \"yardstick_ms\": %.1f, \"durability\": \"%s\", "
        "\"cpu_s_per_gb\": %.3f, \"yardstick_cpu_s_per_gb\": %.3f, "
        "\"server_anonymous_mib\": %d, \"merge_gb_per_s\": %.2f, "
        "\"cpu\": \"%s\"}\n",
        result.name, result.islands, round / yardstick, 1e3 * round,
        1e3 * yardstick, ours.durability, CpuPerGb(ours.round, moved),
        CpuPerGb(result.yardstick, moved), ours.server_bytes >> 20,
        pushed / std::max(1e-6, Median(ours.merge.seconds)), cpu);
  }
  if (!result.gloo.seconds.empty()) {
    const double gloo = Median(result.gloo.seconds);
    std::cout << absl::StrFormat(
        "{\"case\": \"gloo\", \"islands\": %d, \"ratio\": %.3f, "
        "\"gloo_ms\": %.1f, \"yardstick_ms\": %.1f, \"cpu_s_per_gb\": %.3f, "
        "\"cpu\": \"%s\"}\n",
        result.islands, gloo / yardstick, 1e3 * gloo, 1e3 * yardstick,
        // A ring moves 2 (N - 1) vectors.
        CpuPerGb(result.gloo, 2 * (result.islands - 1) * flags.gigabytes()),
        cpu);
  }
  std::cout << std::flush;
}

std::string Range(const Series& series) {
  const auto [low, high] =
      std::minmax_element(series.seconds.begin(), series.seconds.end());
  return absl::StrFormat("%7.1f ms (%.1f-%.1f)", 1e3 * Median(series.seconds),
                         1e3 * *low, 1e3 * *high);
}

void PrintTable(const Flags& flags, const Result& result) {
  const double pushed = result.islands * flags.gigabytes();
  const double yardstick = Median(result.yardstick.seconds);
  const double raw = Median(result.raw.seconds);
  std::cout << absl::StrFormat("%s, %d islands, %d MiB of f32, medians of %d, %s\n",
                               result.name, result.islands, flags.mib,
                               flags.repetitions, CpuName());
  for (const OurResult& ours : result.ours) {
    std::cout << absl::StrFormat(
        "  round, %-8s %s  %.3f of the yardstick  %.3f CPU-s/GB  server %d "
        "MiB\n  push,  %-8s %s  %.3f of raw TCP's speed  %.3f CPU-s/GB\n",
        ours.durability, Range(ours.round),
        Median(ours.round.seconds) / yardstick,
        CpuPerGb(ours.round, 2 * pushed), ours.server_bytes >> 20,
        ours.durability, Range(ours.push), raw / Median(ours.push.seconds),
        CpuPerGb(ours.push, pushed));
  }
  std::cout << absl::StrFormat(
      "  yardstick       %s  %.3f CPU-s/GB\n  raw TCP         %s  %.3f "
      "CPU-s/GB\n",
      Range(result.yardstick), CpuPerGb(result.yardstick, 2 * pushed),
      Range(result.raw), CpuPerGb(result.raw, pushed));
  if (!result.checked.seconds.empty()) {
    std::cout << absl::StrFormat(
        "    with checksums %s  %.3f of raw TCP's speed\n    and a log       "
        "%s  %.3f of raw TCP's speed\n",
        Range(result.checked), LeastRatio(result, result.checked),
        Range(result.logged), LeastRatio(result, result.logged));
  }
  if (!result.gloo.seconds.empty()) {
    std::cout << absl::StrFormat(
        "  gloo ring       %s  %.3f of the yardstick\n", Range(result.gloo),
        Median(result.gloo.seconds) / yardstick);
  }
}

int Benchmark(Flags flags) {
  std::string directory = absl::StrCat(flags.directory, "/atoll-round-XXXXXX");
  if (mkdtemp(directory.data()) == nullptr) {
    std::cerr << "cannot make a directory in " << flags.directory
              << "; choose another with --dir\n";
    return 1;
  }
  flags.directory = directory;
  int status = 0;
  for (const std::string& name : flags.cases) {
    for (int island_count : flags.islands) {
      if (status != 0) break;
      absl::StatusOr<Result> result = Measure(flags, name, island_count);
      if (!result.ok()) {
        std::cerr << result.status() << "\n";
        status = 1;
      } else if (flags.json) {
        PrintJson(flags, *result);
      } else {
        PrintTable(flags, *result);
      }
    }
  }
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
  return status;
}

int RunRole(const Flags& flags) {
  if (flags.role == "island") {
    return RunIsland({.coordinator = flags.coordinator,
                      .run_id = "round",
                      .island_id = absl::StrCat("island-", flags.index),
                      .index = flags.index,
                      .island_count = flags.island_count});
  }
  if (flags.role == "yardstick_server") {
    return RunYardstickServer(flags.island_count, flags.element_count(),
                              flags.directory);
  }
  if (flags.role == "yardstick_island") {
    return RunYardstickIsland(flags.index, flags.island_count,
                              flags.element_count(), flags.port);
  }
  return Benchmark(flags);
}

int Main(int argc, char** argv) {
  Flags flags;
  flags::Command app(
      "round",
      "One outer round beside a raw-socket yardstick and Gloo. The case push "
      "lasts until the server has received all bytes: at process and machine "
      "until it says that they are in its log; at island, where chunks are "
      "merged as they come and nothing is said before the commit, until the "
      "islands' last byte has gone to the network.");
  app.AddFlag("--json", flags.json,
              "Print one JSON object a line, nothing else");
  app.Add("--mib", flags.mib, "Size of the vector")
      .Check(flags::Range(1, 1 << 14));
  app.Add("--repetitions", flags.repetitions, "Measured rounds")
      .Check(flags::Range(1, 1000));
  app.Add("--islands", flags.islands, "Numbers of islands");
  app.Add("--durability", flags.durabilities,
          "any of island, process and machine")
      .Check(flags::IsMember({"island", "process", "machine"}));
  app.Add("--cases", flags.cases, "any of f32_nesterov and int8_bf16")
      .Check(flags::IsMember({"f32_nesterov", "int8_bf16"}));
  app.Add("--gloo", flags.gloo, "Also measure Gloo's ring");
  AddClusterFlags(app, flags);
  app.Add("--gloo-binary", flags.gloo_binary, "");
  app.Add("--island-count", flags.island_count).Hidden();
  app.Add("--port", flags.port).Hidden();
  if (const auto end = app.ParseOrEnd(argc, argv)) return *end;
  // A write to an ended child is an error; it must not kill this process.
  signal(SIGPIPE, SIG_IGN);
  return RunRole(flags);
}

}  // namespace
}  // namespace atl::benchmarks

int main(int argc, char** argv) { return atl::benchmarks::Main(argc, argv); }
