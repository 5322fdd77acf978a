// One outer round of a large f32 vector through the real path, beside a
// raw-socket yardstick in the same process tree.
//
//     bazel run -c opt //tests/benchmarks:round -- --json
//
// A coordinator, a server and N islands run as processes, and so do the
// yardstick's server and islands. Repetitions are interleaved: one round of
// ours, one of the yardstick, and so on, the first pair not counted. A round
// lasts from the order to push until every island holds the new parameters,
// checked. What is compared is the ratio of the two medians: a machine's noise
// is in both.
//
// Ours does what the yardstick does not: CRC-32C of every chunk, digests of
// contributions and parameters, a log of contributions that survives kill -9
// (or, with --durability machine, a power cut), a synced decision, and a new
// version on disk.

#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status/status_macros.h"
#include "coordinator/client/run_client.h"
#include "tests/benchmarks/child_process.h"
#include "tests/benchmarks/round_island.h"
#include "tests/benchmarks/vectors.h"
#include "tests/benchmarks/yardstick.h"

namespace atl::benchmarks {
namespace {

using Children = std::vector<std::unique_ptr<ChildProcess>>;

// Longest wait for anything that a child is asked.
constexpr absl::Duration kPatience = absl::Minutes(3);
constexpr int kColumns = 4096;  // Of the tensor; the vector is a multiple.

struct Flags {
  bool json = false;
  int64_t mib = 256;
  int repetitions = 5;
  std::vector<int> islands = {2, 4};
  std::string durability = "process";
  std::string directory;
  std::string coordinator_binary = "coordinator/atoll-coordinator";
  std::string server_binary = "server/atoll-server";
  // How this program starts itself as a part of the benchmark.
  std::string role;
  int index = 0;
  int island_count = 0;
  int port = 0;
  std::string coordinator;

  size_t element_count() const { return mib << 18; }
};

struct Result {
  int islands = 0;
  std::vector<double> ours_ms;
  std::vector<double> yardstick_ms;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

std::string SelfPath() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

// Gives all children the same order and waits for all answers.
absl::Status OrderAll(const Children& children, const std::string& order,
                      const std::string& answer) {
  for (const auto& child : children) {
    RETURN_IF_ERROR(child->WriteLine(order));
  }
  for (const auto& child : children) {
    RETURN_IF_ERROR(child->Expect(answer, kPatience));
  }
  return absl::OkStatus();
}

// How long round `version` takes, in ms.
absl::StatusOr<double> TimeRound(const Children& islands, int64_t version) {
  const absl::Time start = absl::Now();
  RETURN_IF_ERROR(OrderAll(islands, absl::StrCat("go ", version), "done"));
  return absl::ToDoubleMilliseconds(absl::Now() - start);
}

// --- The yardstick -----------------------------------------------------------

class Yardstick {
 public:
  absl::Status Start(const Flags& flags, int island_count) {
    const std::vector<std::string> base = {
        SelfPath(), absl::StrCat("--mib=", flags.mib),
        absl::StrCat("--island_count=", island_count)};
    std::vector<std::string> command = base;
    command.push_back("--role=yardstick_server");
    ASSIGN_OR_RETURN(server_, ChildProcess::Start(command));
    ASSIGN_OR_RETURN(const std::string port, server_->ReadLine(kPatience));
    for (int i = 0; i < island_count; ++i) {
      command = base;
      command.push_back("--role=yardstick_island");
      command.push_back(absl::StrCat("--index=", i));
      command.push_back(absl::StrCat("--port=", port));
      ASSIGN_OR_RETURN(auto island, ChildProcess::Start(command));
      islands_.push_back(std::move(island));
    }
    for (const auto& island : islands_) {
      RETURN_IF_ERROR(island->Expect("ready", kPatience));
    }
    return absl::OkStatus();
  }

  const Children& islands() const { return islands_; }

 private:
  std::unique_ptr<ChildProcess> server_;
  Children islands_;
};

// --- Ours --------------------------------------------------------------------

// What the benchmark asks of a run: one tensor, no training, Nesterov.
v1::RunSpec MakeSpec(const Flags& flags, int island_count) {
  v1::RunSpec spec;
  v1::TensorSpec& tensor = *spec.mutable_layout()->add_tensors();
  spec.mutable_layout()->set_fragment_count(1);
  tensor.set_name("vector");
  tensor.add_shape(static_cast<int64_t>(flags.element_count()) / kColumns);
  tensor.add_shape(kColumns);
  tensor.set_dtype(v1::DATA_TYPE_F32);
  tensor.set_tensor_class(v1::TENSOR_CLASS_MATRIX);
  tensor.mutable_init()->set_kind(v1::INIT_KIND_CONSTANT);
  spec.mutable_init()->set_seed(1);

  v1::ModelSpec& model = *spec.mutable_model();
  model.set_architecture("llama");
  model.set_vocab_size(2);
  model.set_hidden_size(2);
  model.set_intermediate_size(2);
  model.set_layer_count(1);
  model.set_head_count(1);
  model.set_kv_head_count(1);
  model.set_sequence_length(1);
  model.set_rope_theta(10000);
  model.set_rms_norm_eps(1e-5);

  v1::InnerSpec& inner = *spec.mutable_inner();
  inner.set_optimizer(v1::INNER_OPTIMIZER_KIND_SGD);
  inner.set_learning_rate(0.1);
  inner.set_final_learning_rate_fraction(1);
  inner.set_batch_size(1);

  v1::OuterSpec& outer = *spec.mutable_outer();
  outer.set_optimizer(v1::OUTER_OPTIMIZER_KIND_NESTEROV);
  outer.set_learning_rate(kLearningRate);
  outer.set_momentum(kMomentum);
  outer.set_weighting(v1::WEIGHTING_UNIFORM);

  v1::ScheduleSpec& schedule = *spec.mutable_schedule();
  schedule.set_timing(v1::TIMING_STRICT);
  schedule.set_inner_step_count(1);
  // One more than is played, so that the run does not end under the islands.
  schedule.set_round_count(flags.repetitions + 2);
  schedule.set_island_count_min(island_count);
  schedule.set_min_quorum(island_count);
  // Nothing here renews a lease.
  schedule.mutable_lease_duration()->set_seconds(3600);

  v1::DataSpec& data = *spec.mutable_data();
  data.set_format(v1::DATA_FORMAT_BYTES);
  data.set_path("/nowhere");
  data.set_data_shard_count(island_count);
  spec.mutable_evaluation()->set_batch_count(1);
  spec.set_durability(flags.durability == "machine" ? v1::DURABILITY_MACHINE
                                                    : v1::DURABILITY_PROCESS);
  spec.set_server_count(1);
  return spec;
}

class Ours {
 public:
  ~Ours() {
    islands_.clear();
    server_.reset();
    coordinator_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }

  absl::Status Start(const Flags& flags, int island_count) {
    directory_ = absl::StrCat(flags.directory, "/islands-", island_count);
    std::error_code error;
    std::filesystem::create_directories(directory_, error);
    if (error) return absl::UnavailableError(directory_ + error.message());
    RETURN_IF_ERROR(StartServices(flags));
    RETURN_IF_ERROR(CreateRun(flags, island_count));
    return StartIslands(island_count);
  }

  const Children& islands() const { return islands_; }

 private:
  // Starts a service and returns its address, once it serves.
  absl::StatusOr<std::string> StartService(
      const std::string& name, std::vector<std::string> command,
      std::unique_ptr<ChildProcess>& child) {
    const std::string port_file = absl::StrCat(directory_, "/", name, ".port");
    command.push_back("--listen=127.0.0.1:0");
    command.push_back(absl::StrCat("--data_dir=", directory_, "/", name));
    command.push_back(absl::StrCat("--port_file=", port_file));
    const std::string log = absl::StrCat(directory_, "/", name, ".log");
    ASSIGN_OR_RETURN(child, ChildProcess::Start(command, log));
    const absl::Time deadline = absl::Now() + kPatience;
    while (absl::Now() < deadline && !child->Ended()) {
      std::ifstream file(port_file);
      int port = 0;
      if (file >> port && port > 0) return absl::StrCat("127.0.0.1:", port);
      absl::SleepFor(absl::Milliseconds(10));
    }
    std::ifstream file(log);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    return absl::UnavailableError(
        absl::StrCat(name, " does not serve: ", text));
  }

  absl::Status StartServices(const Flags& flags) {
    ASSIGN_OR_RETURN(
        address_,
        StartService("coordinator", {flags.coordinator_binary}, coordinator_));
    return StartService("server",
                        {flags.server_binary, "--server_id=server-0",
                         absl::StrCat("--coordinator=", address_)},
                        server_)
        .status();
  }

  absl::Status CreateRun(const Flags& flags, int island_count) {
    coordinator::RunClientOptions options;
    options.address = address_;
    ASSIGN_OR_RETURN(auto client, coordinator::MakeRunClient(options));
    v1::CreateRunRequest request;
    request.set_run_id("round");
    *request.mutable_spec() = MakeSpec(flags, island_count);
    return client->CreateRun(request).status();
  }

  absl::Status StartIslands(int island_count) {
    for (int i = 0; i < island_count; ++i) {
      ASSIGN_OR_RETURN(
          auto island,
          ChildProcess::Start({SelfPath(), "--role=island",
                               absl::StrCat("--index=", i),
                               absl::StrCat("--island_count=", island_count),
                               absl::StrCat("--coordinator=", address_)}));
      islands_.push_back(std::move(island));
    }
    for (const auto& island : islands_) {
      RETURN_IF_ERROR(island->Expect("ready", kPatience));
    }
    return absl::OkStatus();
  }

  std::string directory_;
  std::string address_;
  std::unique_ptr<ChildProcess> coordinator_;
  std::unique_ptr<ChildProcess> server_;
  Children islands_;
};

// --- Measuring ---------------------------------------------------------------

absl::StatusOr<Result> Measure(const Flags& flags, int island_count) {
  Ours ours;
  Yardstick yardstick;
  RETURN_IF_ERROR(ours.Start(flags, island_count));
  RETURN_IF_ERROR(yardstick.Start(flags, island_count));
  Result result{.islands = island_count, .ours_ms = {}, .yardstick_ms = {}};
  for (int version = 0; version <= flags.repetitions; ++version) {
    RETURN_IF_ERROR(
        OrderAll(ours.islands(), absl::StrCat("open ", version), "open"));
    ASSIGN_OR_RETURN(const double ours_ms, TimeRound(ours.islands(), version));
    ASSIGN_OR_RETURN(const double yardstick_ms,
                     TimeRound(yardstick.islands(), version));
    const std::string check = absl::StrCat("check ", version + 1);
    RETURN_IF_ERROR(OrderAll(ours.islands(), check, "ok"));
    RETURN_IF_ERROR(OrderAll(yardstick.islands(), check, "ok"));
    std::cerr << absl::StrFormat("%d islands, round %d: %.0f ms, %.0f ms%s\n",
                                 island_count, version, ours_ms, yardstick_ms,
                                 version == 0 ? " (not counted)" : "");
    if (version == 0) continue;
    result.ours_ms.push_back(ours_ms);
    result.yardstick_ms.push_back(yardstick_ms);
  }
  return result;
}

void PrintJson(const Flags& flags, const Result& result) {
  const double ours = Median(result.ours_ms);
  const double yardstick = Median(result.yardstick_ms);
  std::cout << absl::StrFormat(
                   "{\"case\": \"f32_nesterov\", \"islands\": %d, \"ratio\": "
                   "%.3f, \"ours_ms\": %.1f, \"yardstick_ms\": %.1f, "
                   "\"durability\": \"%s\"}",
                   result.islands, ours / yardstick, ours, yardstick,
                   flags.durability)
            << std::endl;
}

void PrintTable(const Flags& flags, const std::vector<Result>& results) {
  std::cout << absl::StrFormat(
      "One outer round, %d MiB of f32, Nesterov, durability %s; medians of %d\n"
      "islands   ours ms (min-max)        yardstick ms (min-max)   ratio\n",
      flags.mib, flags.durability, flags.repetitions);
  for (const Result& r : results) {
    const auto ours = std::minmax_element(r.ours_ms.begin(), r.ours_ms.end());
    const auto yard =
        std::minmax_element(r.yardstick_ms.begin(), r.yardstick_ms.end());
    std::cout << absl::StrFormat(
        "%7d   %7.1f (%.1f-%.1f)   %7.1f (%.1f-%.1f)   %.3f\n", r.islands,
        Median(r.ours_ms), *ours.first, *ours.second, Median(r.yardstick_ms),
        *yard.first, *yard.second, Median(r.ours_ms) / Median(r.yardstick_ms));
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
  std::vector<Result> results;
  int status = 0;
  for (int island_count : flags.islands) {
    absl::StatusOr<Result> result = Measure(flags, island_count);
    if (!result.ok()) {
      std::cerr << result.status() << "\n";
      status = 1;
      break;
    }
    results.push_back(*result);
    if (flags.json) PrintJson(flags, *result);
  }
  if (!flags.json) PrintTable(flags, results);
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
  return status;
}

int RunRole(const Flags& flags) {
  if (flags.role == "island") {
    return RunIsland(flags.coordinator, "round",
                     absl::StrCat("island-", flags.index), flags.index,
                     flags.island_count);
  }
  if (flags.role == "yardstick_server") {
    return RunYardstickServer(flags.island_count, flags.element_count());
  }
  if (flags.role == "yardstick_island") {
    return RunYardstickIsland(flags.index, flags.island_count,
                              flags.element_count(), flags.port);
  }
  return Benchmark(flags);
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("One outer round beside a raw-socket yardstick.");
  app.add_flag("--json", flags.json, "One object a line, nothing else");
  app.add_option("--mib", flags.mib, "Size of the vector")
      ->check(CLI::Range(1, 1 << 14));
  app.add_option("--repetitions", flags.repetitions, "Rounds that count")
      ->check(CLI::Range(1, 1000));
  app.add_option("--islands", flags.islands, "Numbers of islands");
  app.add_option("--durability", flags.durability, "process or machine")
      ->check(CLI::IsMember({"process", "machine"}));
  const char* temporary = getenv("TEST_TMPDIR");
  flags.directory = temporary != nullptr ? temporary : "/tmp";
  app.add_option("--dir", flags.directory, "Where servers keep their files");
  app.add_option("--coordinator_binary", flags.coordinator_binary, "");
  app.add_option("--server_binary", flags.server_binary, "");
  const std::string hidden;
  app.add_option("--role", flags.role)->group(hidden);
  app.add_option("--index", flags.index)->group(hidden);
  app.add_option("--island_count", flags.island_count)->group(hidden);
  app.add_option("--port", flags.port)->group(hidden);
  app.add_option("--coordinator", flags.coordinator)->group(hidden);
  CLI11_PARSE(app, argc, argv);
  // A child that has ended is an error, not our end.
  signal(SIGPIPE, SIG_IGN);
  return RunRole(flags);
}

}  // namespace
}  // namespace atl::benchmarks

int main(int argc, char** argv) { return atl::benchmarks::Main(argc, argv); }
