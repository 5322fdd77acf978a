// The coordinator's cost of rounds, messages and faults with many islands.
//
//     bazel run -c opt //tests/benchmarks:control -- --json
//     bazel run -c opt //tests/benchmarks:control -- --json --cases round
//         --islands 100,1000 --fragments 24 --servers 2 --tls false
//
// A real coordinator runs in a process of its own. This program is the
// generator: islands and servers that speak the protocol and train nothing,
// with a connection each. A further process, the probe, is an idle server of
// the same gRPC that answers heartbeats. A neighbour on the machine slows both,
// so compare the ratio of their latencies. The coordinator has one core, the
// generator and the probe another.
//
// Each number of islands, fragments and servers gives a row of `round`. Before
// it --filled-rounds rounds have filled the tables of outcomes: the coordinator
// keeps 64 of a slot and fragment. A round takes --round-s, or longer if the
// coordinator needs longer. Islands send heartbeats that report, as often as the
// coordinator asks for; to an older one a heartbeat every 2 s and a report every
// 1 s. More than 1000 islands are in several runs. Islands share connections in
// plaintext if there are more than 4000 of them: each connection has two ends on
// this machine.
//
//   round_s             seconds between two rounds, as measured
//   coordinator_cores   processor seconds of the coordinator a second
//   plans_per_island_round   messages on an island's plan stream
//   plan_bytes          of a round: all plans, to islands and servers
//   rss_mib             the most resident memory while it was measured
//
// A line {"case": "probe"} follows each row: the probe's latencies, ratios to
// them, the memory of an island that joins and watches before the first round,
// and the bytes by which the log grows in a round. A case beyond the
// coordinator's bounds gives a line {"case": "refused"} with the reason.
//
// Further cases: control_cases.h, and floods.h, each with every number of
// --certificates. The last line has the exponents of the cost of a round, and
// of one message, in the number of islands: the mean over rows that differ in
// nothing else. Null: there are no two such rows.

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/flags/flags.h"
#include "base/obs/program.h"
#include "base/rpc/certificates/tls.h"
#include "base/status/status_macros.h"
#include "tests/benchmarks/control/case_measures.h"
#include "tests/benchmarks/control/control_cases.h"
#include "tests/benchmarks/control/control_load.h"
#include "tests/benchmarks/control/control_plane.h"
#include "tests/benchmarks/control/floods.h"
#include "tests/benchmarks/control/rows.h"

namespace atl::benchmarks {
namespace {

// Islands with a connection each; of more, several share one in plaintext.
constexpr int kConnectionsMax = 4000;
constexpr int kSharedMin = 50;

using Case = absl::StatusOr<Row> (*)(const CaseOptions& options);

const std::map<std::string, Case>& Cases() {
  static const std::map<std::string, Case> cases = {
      {"connections", RunConnections},
      {"flap", RunFlap},
      {"lost", RunLost},
      {"overload", RunOverload},
      {"rejoin", RunRejoin},
      {"restart", RunRestart}};
  return cases;
}

const std::map<std::string, Case>& Floods() {
  static const std::map<std::string, Case> floods = {
      {"bare_flood", RunBareFlood},
      {"enrolment_flood", RunEnrolmentFlood},
      {"five_runs", RunFiveRuns},
      {"getrun_flood", RunGetRunFlood},
      {"handshake_flood", RunHandshakeFlood},
      {"join_flood", RunJoinFlood},
      {"listislands_flood", RunListIslandsFlood},
      {"listrounds_flood", RunListRoundsFlood},
      {"watchrun_flood", RunWatchRunFlood}};
  return floods;
}

struct Flags {
  bool json = false;
  std::vector<int> islands = {100, 1000, 10000};
  std::vector<int> fragments = {1, 24};
  std::vector<int> servers = {2, 8};
  std::vector<std::string> tls = {"false", "true"};
  std::vector<std::string> cases;
  std::vector<int> certificates = {1, 100};
  int rounds = 3;
  int filled_rounds = 64;
  double round_s = 10;
  double flood_s = 15;
  int case_islands = 0;
  int islands_per_connection = 1;
  std::string directory;  // TEST_TMPDIR, or /tmp.
  std::string coordinator_binary = "coordinator/atoll-coordinator";
  std::string role;
  rpc::TlsFiles tls_files;  // The probe's.
};

class Benchmark {
 public:
  explicit Benchmark(const Flags& flags) : flags_(flags) {}

  // Returns the exit code.
  int Run() {
    for (const std::string& name : flags_.cases) {
      for (const std::string& tls : flags_.tls) {
        if (name == "round") {
          RunRounds(tls == "true");
        } else if (Floods().contains(name)) {
          for (const int certificates : flags_.certificates) {
            RunCase(name, Floods().at(name), tls == "true", certificates);
          }
        } else {
          RunCase(name, Cases().at(name), tls == "true", 1);
        }
      }
    }
    Row row;
    row.Add("exponent_round", FindExponent(round_costs_))
        .Add("exponent_message", FindExponent(message_costs_));
    Print(row);
    return has_failed_ ? 1 : 0;
  }

 private:
  void Print(const Row& row) const {
    std::cout << (flags_.json ? row.ToJson() : row.ToText()) << std::endl;
  }

  std::string NextDirectory() {
    return absl::StrCat(flags_.directory, "/", ++directory_count_);
  }

  void RunCase(const std::string& name, Case run, bool tls,
               int certificates) {
    CaseOptions options;
    options.directory = NextDirectory();
    options.coordinator_binary = flags_.coordinator_binary;
    options.tls = tls;
    options.island_count = flags_.case_islands;
    options.certificate_count = certificates;
    options.flood = absl::Seconds(flags_.flood_s);
    options.pace = options.flood / 3;
    const absl::StatusOr<Row> row = run(options);
    if (row.ok()) return Print(*row);
    std::cerr << name << ": " << row.status() << "\n";
    has_failed_ = true;
  }

  void RunRounds(bool tls) {
    for (int fragments : flags_.fragments) {
      for (int servers : flags_.servers) {
        for (int islands : flags_.islands) {
          LoadOptions options;
          options.directory = NextDirectory();
          options.coordinator_binary = flags_.coordinator_binary;
          options.island_count = islands;
          options.fragment_count = fragments;
          options.server_count = servers;
          options.tls = tls;
          options.islands_per_connection =
              islands > kConnectionsMax
                  ? std::max(kSharedMin, flags_.islands_per_connection)
                  : flags_.islands_per_connection;
          options.filled_round_count = flags_.filled_rounds;
          std::cerr << "round: " << islands << " islands, " << fragments
                    << " fragments, " << servers << " servers, "
                    << (tls ? "TLS" : "plaintext") << "\n";
          const absl::Status status = RunRound(options);
          if (status.ok()) continue;
          std::cerr << status << "\n";
          if (!absl::IsResourceExhausted(status)) has_failed_ = true;
          Row row = BeginRow(options, "refused");
          row.Add("reason", absl::IsResourceExhausted(status)
                                ? "RESOURCE_EXHAUSTED"
                                : "an error: see the other output");
          Print(row);
        }
      }
    }
  }

  static Row BeginRow(const LoadOptions& options, const std::string& name) {
    Row row;
    if (!name.empty()) row.Add("case", name);
    row.Add("islands", options.island_count)
        .Add("fragments", options.fragment_count)
        .Add("servers", options.server_count)
        .Add("tls", options.tls);
    return row;
  }

  absl::Status RunRound(const LoadOptions& options) {
    ControlLoad load(options);
    RETURN_IF_ERROR(load.Start());
    const absl::Duration pace = absl::Seconds(flags_.round_s);
    // One round for what the first plans and the filling left to do.
    RETURN_IF_ERROR(load.PlayRounds(1, pace));
    load.BeginMeasuring();
    const int64_t log_bytes = load.control().LogBytes();
    RETURN_IF_ERROR(load.PlayRounds(flags_.rounds, pace));
    const Measures measures = load.Measure();

    const double cpu_a_round = measures.coordinator_cpu_s / flags_.rounds;
    const double p50 = Quantile(measures.heartbeat_ms, 0.5);
    const double p99 = Quantile(measures.heartbeat_ms, 0.99);
    Row row = BeginRow(options, "");
    row.Add("round_s", measures.wall_s / flags_.rounds)
        .Add("coordinator_cores",
             measures.coordinator_cpu_s / measures.wall_s)
        .Add("coordinator_cpu_s_per_round", cpu_a_round)
        .Add("generator_cores", measures.generator_cpu_s / measures.wall_s)
        .Add("heartbeat_ms_p50", p50)
        .Add("heartbeat_ms_p99", p99)
        .Add("plans_per_island_round",
             static_cast<double>(measures.island_plans) /
                 options.island_count / flags_.rounds)
        .Add("plan_bytes", measures.plan_bytes / flags_.rounds)
        .Add("rss_mib", measures.rss_mib);
    Print(row);

    const double probe_p50 = Quantile(measures.probe_ms, 0.5);
    const double probe_p99 = Quantile(measures.probe_ms, 0.99);
    Row probe = BeginRow(options, "probe");
    probe.Add("probe_ms_p50", probe_p50)
        .Add("probe_ms_p99", probe_p99)
        .Add("heartbeat_ratio_p50", p50 / probe_p50)
        .Add("heartbeat_ratio_p99", p99 / probe_p99)
        .Add("heartbeats", static_cast<int64_t>(measures.heartbeat_ms.size()))
        .Add("messages", measures.messages)
        .Add("errors", measures.errors)
        .Add("island_kib", load.island_kib())
        .Add("log_bytes",
             (load.control().LogBytes() - log_bytes) / flags_.rounds)
        .Add("islands_per_connection",
             options.tls ? 1 : options.islands_per_connection);
    Print(probe);

    const std::string group =
        absl::StrCat(options.fragment_count, " ", options.server_count, " ",
                     options.tls);
    const auto islands = static_cast<double>(options.island_count);
    round_costs_.push_back({group, islands, cpu_a_round});
    message_costs_.push_back(
        {group, islands,
         measures.coordinator_cpu_s / static_cast<double>(measures.messages)});
    return absl::OkStatus();
  }

  const Flags& flags_;
  int directory_count_ = 0;
  bool has_failed_ = false;
  std::vector<Cost> round_costs_;
  std::vector<Cost> message_costs_;
};

int Main(int argc, char** argv) {
  Flags flags;
  const char* const temporary = getenv("TEST_TMPDIR");
  flags.directory = temporary != nullptr ? temporary : "/tmp";
  std::vector<std::string> names = {"round"};
  for (const auto& [name, run] : Cases()) names.push_back(name);
  for (const auto& [name, run] : Floods()) names.push_back(name);
  flags.cases = names;

  flags::Command app("control", "What islands cost the coordinator");
  app.AddFlag("--json", flags.json, "One JSON object a line");
  app.Add("--cases", flags.cases, "What to measure")
      .Split(',')
      .Check(flags::IsMember(names))
      .ShowDefault();
  app.Add("--islands", flags.islands, "Numbers of islands of `round`")
      .Split(',')
      .Check(flags::Range(1, 100000))
      .ShowDefault();
  app.Add("--fragments", flags.fragments, "Numbers of fragments of `round`")
      .Split(',')
      .Check(flags::Range(1, 256))
      .ShowDefault();
  app.Add("--servers", flags.servers, "Numbers of servers of `round`")
      .Split(',')
      .Check(flags::Range(1, 256))
      .ShowDefault();
  app.Add("--tls", flags.tls, "Mutual TLS: false, true or both")
      .Split(',')
      .Check(flags::IsMember({"false", "true"}))
      .ShowDefault();
  app.Add("--certificates", flags.certificates,
          "Certificates, or connections, that a flood comes from")
      .Split(',')
      .Check(flags::Range(1, 1000))
      .ShowDefault();
  app.Add("--rounds", flags.rounds, "Rounds that are measured")
      .Check(flags::Range(1, 10000))
      .ShowDefault();
  app.Add("--filled-rounds", flags.filled_rounds, "Rounds before them")
      .Check(flags::Range(0, 10000))
      .ShowDefault();
  app.Add("--round-s", flags.round_s, "Seconds from one round to the next")
      .Check(flags::Positive())
      .ShowDefault();
  app.Add("--flood-s", flags.flood_s, "Seconds that a flood lasts")
      .Check(flags::Positive())
      .ShowDefault();
  app.Add("--case-islands", flags.case_islands,
          "Islands of the other cases; 0: the case's own number")
      .Check(flags::Range(0, 1000))
      .ShowDefault();
  app.Add("--islands-per-connection", flags.islands_per_connection,
          "Islands that share a connection in plaintext")
      .Check(flags::Range(1, 1000))
      .ShowDefault();
  app.Add("--dir", flags.directory, "Directory for the coordinator's files");
  app.Add("--coordinator-binary", flags.coordinator_binary, "");
  app.Add("--role", flags.role).Hidden();
  app.Add("--tls-cert", flags.tls_files.cert).Hidden();
  app.Add("--tls-key", flags.tls_files.key).Hidden();
  app.Add("--tls-ca", flags.tls_files.ca).Hidden();
  if (const auto code = app.ParseOrEnd(argc, argv)) return *code;
  if (flags.role == "probe") return RunProbe(flags.tls_files);
  if (flags.role == "bare") return RunBare(flags.tls_files);

  RaiseOpenFileLimit();
  std::string directory = flags.directory + "/atoll-control-XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) {
    std::cerr << "cannot make a directory in " << flags.directory
              << "; choose another with --dir\n";
    return 1;
  }
  flags.directory = directory;
  const int code = Benchmark(flags).Run();
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
  return code;
}

}  // namespace
}  // namespace atl::benchmarks

int main(int argc, char** argv) { return atl::benchmarks::Main(argc, argv); }
