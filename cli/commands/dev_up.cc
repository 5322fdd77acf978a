#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "atoll/v1/run_service.grpc.pb.h"
#include "base/layout/run_length.h"
#include "base/object_store/object_url.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "base/sync/mutex.h"
#include "cli/commands/commands.h"
#include "cli/commands/dev_result.h"
#include "cli/commands/run/export_run.h"
#include "cli/commands/run/import_run.h"
#include "cli/dev/cluster.h"
#include "cli/dev/dev_directory.h"
#include "cli/flags/compute_flags.h"
#include "cli/flags/data_cache_flags.h"
#include "cli/flags/lent_flags.h"
#include "cli/interrupt.h"
#include "cli/output/describe.h"
#include "cli/output/error.h"
#include "cli/output/progress.h"
#include "cli/output/table.h"
#include "cli/run_file/complete_spec.h"
#include "cli/run_file/load.h"
#include "worker/api/model_files.h"

namespace atl::cli {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(50);
constexpr absl::Duration kQueryInterval = absl::Milliseconds(500);
// Time for islands to evaluate the last version and exit.
constexpr absl::Duration kIslandEndTimeout = absl::Seconds(60);
// After this long without a new round, the line says what the run waits for.
constexpr absl::Duration kPatience = absl::Seconds(20);
// Time for the coordinator to answer, restarts included.
constexpr absl::Duration kCreateTimeout = absl::Seconds(60);

struct DevUpOptions {
  std::string file;
  std::string directory;
  RunFileChanges changes;
  int threads = 1;
  std::string device;
  CapFlags caps;  // Each island's rate limits.
  bool keep = false;
  bool no_restart = false;
  std::string coordinator_binary;
  std::string server_binary;
  std::vector<std::string> child_flags;
};

// Parses "server-0=--failpoint=x" into flags by child.
absl::StatusOr<std::map<std::string, std::vector<std::string>>> ParseChildFlags(
    const std::vector<std::string>& flags) {
  std::map<std::string, std::vector<std::string>> by_child;
  for (const std::string& flag : flags) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(flag, absl::MaxSplits('=', 1));
    if (parts.first.empty() || parts.second.empty()) {
      return UsageError(
          absl::StrCat("--child-flag ", flag, " is not of the form NAME=FLAG"),
          "Example: server-0=--failpoint=server.commit.after");
    }
    by_child[parts.first].push_back(parts.second);
  }
  return by_child;
}

class DevUp {
 public:
  DevUp(Context& context, const DevUpOptions& options)
      : context_(context),
        options_(options),
        progress_(context.progress_options, context.messages()) {}

  absl::Status Run();

 private:
  absl::Status Prepare();
  absl::StatusOr<Cluster::Options> ClusterOptions();
  absl::Status Serve();
  absl::Status CreateRun();
  // Imports the initial model, if the run waits for one.
  absl::Status Import();
  absl::Status WriteEndpoints();
  // Returns when the run has ended. CANCELLED: Ctrl-C.
  absl::Status Watch();
  absl::Status AwaitIslands();
  absl::Status Finish();
  absl::Status WaitForInterrupt();
  absl::Status GetState();
  void ShowState(absl::Time now);
  int64_t InnerSteps();
  bool stopped() const { return interrupt_->first().stop_requested(); }
  // Tends the processes, then sleeps for one tick. CANCELLED: Ctrl-C.
  absl::Status Tick();

  Context& context_;
  const DevUpOptions& options_;
  Progress progress_;
  std::unique_ptr<Interrupt> interrupt_;
  RunFile run_;
  std::unique_ptr<DevDirectory> directory_;
  std::unique_ptr<Cluster> cluster_;
  std::unique_ptr<coordinator::Client> client_;
  v1::GetRunStateResponse state_;
  // Share done and time when this process first saw an open round; for the
  // time left.
  std::optional<std::pair<double, absl::Time>> first_seen_;
  int64_t last_rounds_ = -1;
  absl::Time last_change_;  // When last_rounds_ last changed.
  DevResult result_;
};

absl::Status DevUp::Run() {
  interrupt_ = std::make_unique<Interrupt>();
  RETURN_IF_ERROR(Prepare());
  absl::Status status = Serve();
  if (status.ok()) status = Watch();
  if (status.ok() && HasEnded(state_.run().state())) {
    status = AwaitIslands();
    if (status.ok()) status = Finish();
    if (status.ok() && options_.keep) status = WaitForInterrupt();
  }
  progress_.Clear();
  if (cluster_ != nullptr) cluster_->Stop();
  if (absl::IsCancelled(status) && stopped()) {
    status = absl::OkStatus();
  }
  if (status.ok() && stopped() && !HasEnded(state_.run().state())) {
    context_.output().Message(
        absl::StrCat("stopped; the same command resumes the run: --dir ",
                     directory_->path()));
  }
  if (status.ok()) {
    if (result_.state.empty()) result_ = Summarize(state_, {});
    context_.output().Print(ToData(result_), ToText(result_));
  }
  return status;
}

absl::Status DevUp::Prepare() {
  // The programs have no TLS, so neither may the calls to them.
  RETURN_IF_ERROR(context_.settings.DropTls());
  context_.before_client = nullptr;
  RETURN_IF_ERROR(ReadCaps(options_.caps).status());
  RETURN_IF_ERROR(CheckDeviceFlag(options_.device));
  ASSIGN_OR_RETURN(run_, LoadRunFile(options_.file, options_.changes));
  RETURN_IF_ERROR(RefuseExternal(run_, "`atoll dev up`"));
  ASSIGN_OR_RETURN(directory_, DevDirectory::Open(options_.directory, run_.run_id));
  RETURN_IF_ERROR(CompleteSpec(
      &run_, MakeStoreOpener(context_.environment,
                      {.proxy = context_.settings.proxy()})));
  if (const std::string doubt = DescribeShortRun(run_.spec); !doubt.empty()) {
    context_.output().Message(doubt);
  }
  result_.run_id = run_.run_id;
  ASSIGN_OR_RETURN(Cluster::Options cluster, ClusterOptions());
  cluster_ = std::make_unique<Cluster>(*directory_, std::move(cluster));
  return absl::OkStatus();
}

absl::StatusOr<Cluster::Options> DevUp::ClusterOptions() {
  Cluster::Options cluster;
  if (options_.coordinator_binary.empty() || options_.server_binary.empty()) {
    ASSIGN_OR_RETURN(cluster.programs, FindPrograms(context_.executable));
  }
  cluster.programs.atoll = context_.executable;
  if (!options_.coordinator_binary.empty()) {
    cluster.programs.coordinator = options_.coordinator_binary;
  }
  if (!options_.server_binary.empty()) {
    cluster.programs.server = options_.server_binary;
  }
  cluster.server_count = run_.spec.server_count();
  cluster.island_count = run_.spec.schedule().island_count_min();
  cluster.threads = options_.threads;
  cluster.island_flags = CapArguments(options_.caps);
  cluster.island_flags.push_back("--device");
  cluster.island_flags.push_back(options_.device);
  // Islands read this user's settings. An empty flag overrides those of TLS.
  for (const char* const name : {"dir", "cert", "key", "ca"}) {
    cluster.island_flags.push_back(absl::StrCat("--tls-", name));
    cluster.island_flags.push_back("");
  }
  // The run file is this user's own, so its islands may read what it names.
  const v1::DataSpec& data = run_.spec.data();
  if (const std::string path = worker::FindNamedPath(data); !path.empty()) {
    cluster.island_flags.push_back("--data");
    cluster.island_flags.push_back(path);
  } else if (const auto url = ParseObjectUrl(data.url()); url.ok()) {
    cluster.island_flags.push_back("--data-credentials");
    if (url->store == ObjectUrl::Store::kHttp) {
      cluster.island_flags.push_back("--allow-data-host");
      cluster.island_flags.push_back(url->http.host);
    }
  }
  cluster.restart = !options_.no_restart;
  ASSIGN_OR_RETURN(cluster.first_flags, ParseChildFlags(options_.child_flags));
  cluster.stop = interrupt_->first();
  cluster.on_note = [this](const std::string& text) { progress_.Note(text); };
  return cluster;
}

absl::Status DevUp::Serve() {
  const std::string endpoints = directory_->File("endpoints.json");
  std::remove(endpoints.c_str());
  progress_.Note(absl::StrCat("run ", run_.run_id, ": ",
                              run_.spec.server_count(), " servers, ",
                              run_.spec.schedule().island_count_min(),
                              " islands in ", directory_->path()));
  RETURN_IF_ERROR(cluster_->StartCoordinator());
  ASSIGN_OR_RETURN(client_, context_.MakeClient(
                                {.progress = &progress_,
                                 .address = cluster_->coordinator_address()}));
  RETURN_IF_ERROR(CreateRun());
  RETURN_IF_ERROR(cluster_->StartServers());
  RETURN_IF_ERROR(WriteEndpoints());
  RETURN_IF_ERROR(GetState());
  if (HasEnded(state_.run().state())) return absl::OkStatus();
  RETURN_IF_ERROR(Import());
  return cluster_->StartIslands(run_.run_id);
}

absl::Status DevUp::Import() {
  if (run_.model_directory.empty() ||
      state_.run().state() != v1::RUN_STATE_STARTING) {
    return absl::OkStatus();
  }
  // The import has its own thread: children may die meanwhile, and only this
  // thread may restart them (cli/dev/child.h).
  Mutex mutex;
  std::string line;
  std::optional<absl::StatusOr<Imported>> imported;
  ImportOptions import_options;
  import_options.directory = run_.model_directory;
  import_options.on_progress = [&](const std::string& text) {
    MutexLock lock(&mutex);
    line = text;
  };
  v1::Run run = state_.run();
  *run.mutable_spec() = run_.spec;  // With its tensors.
  absl::Status status;
  {
    std::stop_source stop;
    import_options.stop = stop.get_token();
    std::jthread thread([&] {
      absl::StatusOr<Imported> result =
          ImportRun(context_, *client_, run, import_options);
      MutexLock lock(&mutex);
      imported = std::move(result);
    });
    for (bool done = false; !done && status.ok();) {
      {
        MutexLock lock(&mutex);
        done = imported.has_value();
        if (!line.empty()) progress_.Update(line, absl::Now());
      }
      if (!done) status = Tick();
    }
    stop.request_stop();
  }
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(imported->status());
  progress_.Note(absl::StrCat("imported ", (*imported)->directory, ", ",
                              FormatBytes((*imported)->size_bytes),
                              ", sha256 ", (*imported)->parameters_sha256));
  return absl::OkStatus();
}

absl::Status DevUp::CreateRun() {
  v1::CreateRunRequest request;
  request.set_run_id(run_.run_id);
  *request.mutable_spec() = run_.spec;
  const absl::Time deadline = absl::Now() + kCreateTimeout;
  for (;;) {
    const absl::Status status =
        client_->Call(&v1::RunService::Stub::CreateRun, request).status();
    if (status.ok()) return status;
    if (absl::IsAlreadyExists(status)) {
      return WithHint(
          WithReason(status, "RUN_DIFFERS"),
          absl::StrCat(directory_->path(),
                       " holds a run with this id and another run file, or "
                       "its data has changed. Give another --dir, or the file "
                       "and flags that it was started with."));
    }
    // The coordinator may be restarting.
    if (!IsAway(status) || absl::Now() > deadline) return status;
    RETURN_IF_ERROR(Tick());
  }
}

absl::Status DevUp::WriteEndpoints() {
  Json endpoints;
  endpoints["coordinator"] = cluster_->coordinator_address();
  endpoints["servers"] = cluster_->server_addresses();
  endpoints["run"] = run_.run_id;
  return WriteJson(directory_->File("endpoints.json"), endpoints);
}

absl::Status DevUp::GetState() {
  const absl::Time deadline = absl::Now() + kCreateTimeout;
  for (;;) {
    absl::StatusOr<v1::GetRunStateResponse> state =
        client_->GetRunState(run_.run_id);
    if (state.ok()) {
      state_ = *std::move(state);
      return absl::OkStatus();
    }
    if (!IsAway(state.status()) || absl::Now() > deadline) {
      return state.status();
    }
    RETURN_IF_ERROR(Tick());
  }
}

absl::Status DevUp::Tick() {
  RETURN_IF_ERROR(cluster_->Tend(absl::Now()));
  if (stopped()) return absl::CancelledError("stopped");
  absl::SleepFor(kTick);
  return absl::OkStatus();
}

absl::Status DevUp::Watch() {
  absl::Time next_query = absl::InfinitePast();
  while (!HasEnded(state_.run().state())) {
    const absl::Time now = absl::Now();
    if (now >= next_query) {
      next_query = now + kQueryInterval;
      absl::StatusOr<v1::GetRunStateResponse> state =
          client_->GetRunState(run_.run_id);
      // After an error Tick restarts the coordinator or returns the error.
      if (state.ok()) state_ = *std::move(state);
      ShowState(now);
    }
    RETURN_IF_ERROR(Tick());
  }
  return absl::OkStatus();
}

// Inner steps of the slowest live island, at least those of the complete
// rounds.
int64_t DevUp::InnerSteps() {
  int64_t steps = -1;
  const absl::StatusOr<std::vector<v1::Island>> islands =
      client_->ListIslands(run_.run_id);
  if (islands.ok()) {
    for (const v1::Island& island : *islands) {
      if (island.state() != v1::ISLAND_STATE_READY) continue;
      const int64_t at = island.progress().step();
      steps = steps < 0 ? at : std::min(steps, at);
    }
  }
  return std::max(
      steps, CompleteRounds(state_) * run_.spec.schedule().inner_step_count());
}

void DevUp::ShowState(absl::Time now) {
  const int64_t rounds = CompleteRounds(state_);
  const v1::ScheduleSpec& schedule = run_.spec.schedule();
  const double share = DoneShare(state_);
  if (rounds != last_rounds_) {
    last_rounds_ = rounds;
    last_change_ = now;
  }
  if (!first_seen_.has_value() && !state_.open_rounds().empty()) {
    first_seen_ = {share, now};
  }
  std::string left = "-";
  if (first_seen_.has_value() && share > first_seen_->first) {
    left = FormatSpan((now - first_seen_->second) * (1 - share) /
                      (share - first_seen_->first));
  }
  std::string validation = "-";
  if (state_.has_evaluation()) {
    validation = FormatLoss(state_.evaluation().loss());
  }
  std::string line = absl::StrCat(
      "round ", rounds, "/", PlannedRounds(schedule), "  inner step ",
      InnerSteps(), "/", PlannedStepCount(run_.spec), "  ",
      HasTokenBudget(schedule)
          ? absl::StrCat(DescribeTokens(state_.merged_token_count(), schedule),
                         " tokens  ")
          : "",
      FormatCount(static_cast<int64_t>(state_.tokens_per_second())),
      " tokens/s  loss ",
      state_.has_training_loss() ? FormatLoss(state_.training_loss()) : "-",
      "  validation ", validation, "  up ", FormatBytes(state_.sent_bytes()),
      "  down ", FormatBytes(state_.received_bytes()), "  left ", left);
  if (state_.run().state() != v1::RUN_STATE_ACTIVE) {
    absl::StrAppend(&line, "  ", EnumName(state_.run().state()));
  }
  // While rounds complete, what the next one waits for is noise.
  const bool quiet = state_.run().state() == v1::RUN_STATE_ACTIVE &&
                     now - last_change_ < kPatience;
  if (!state_.run().state_reason().empty() && !quiet) {
    absl::StrAppend(&line, ": ", state_.run().state_reason());
  }
  progress_.Update(line, now);
}

absl::Status DevUp::AwaitIslands() {
  const absl::Time deadline = absl::Now() + kIslandEndTimeout;
  while (!cluster_->IslandsEnded() && absl::Now() < deadline) {
    RETURN_IF_ERROR(Tick());
  }
  return GetState();
}

absl::Status DevUp::Finish() {
  std::vector<v1::Round> rounds;
  RETURN_IF_ERROR(client_->ForEachRound(
      run_.run_id, 0, [&](v1::Round&& round) -> absl::StatusOr<bool> {
        rounds.push_back(std::move(round));
        return true;
      }));
  // received_bytes is what live islands report; an earlier process of this
  // command may have seen more.
  absl::StatusOr<DevResult> before =
      ReadDevResult(directory_->File("result.json"));
  result_ = Summarize(state_, rounds);
  if (before.ok() && before->run_id == result_.run_id) {
    result_.bytes_down = std::max(result_.bytes_down, before->bytes_down);
  }
  if (state_.run().state() == v1::RUN_STATE_COMPLETED) {
    ExportOptions export_options;
    export_options.run_id = run_.run_id;
    export_options.directory = directory_->File("export");
    export_options.force = true;  // An earlier end of this run.
    ASSIGN_OR_RETURN(const Exported exported,
                     ExportRun(context_, *client_, export_options));
    result_.checkpoint = exported.directory;
    result_.parameters_sha256 = exported.parameters_sha256;
  }
  const v1::DataSpec& data = run_.spec.data();
  if (data.validation_fraction() > 0 &&
      data.format() == v1::DATA_FORMAT_BYTES) {
    const std::string path = directory_->File("validation.bin");
    std::remove(path.c_str());
    RETURN_IF_ERROR(worker::WriteValidationFile(data, path).status());
    result_.validation_file = path;
  }
  return WriteJson(directory_->File("result.json"), ToData(result_));
}

absl::Status DevUp::WaitForInterrupt() {
  progress_.Clear();
  progress_.Note(absl::StrCat("the run has ended; coordinator ",
                              cluster_->coordinator_address(),
                              " keeps serving until Ctrl-C"));
  for (;;) RETURN_IF_ERROR(Tick());
}

absl::Status RunDevUp(Context& context, const DevUpOptions& options) {
  return DevUp(context, options).Run();
}

}  // namespace

void AddDevUp(flags::Command& app, Context& context) {
  flags::Command& command = app.AddCommand(
      "up", "Run a coordinator, servers and islands on this machine");
  command.Footer(
      "DIR holds everything: logs, state, endpoints.json once the servers "
      "run,\n"
      "prometheus-targets.json (metrics ports, for Prometheus' file_sd), and\n"
      "the exported model at the end. Processes that die are restarted.\n"
      "Ctrl-C stops; the same command with the same DIR resumes the run. A DIR\n"
      "of another run, or with other files, is refused.\n"
      "Examples:\n"
      "  atoll dev up laptop --dir /tmp/laptop\n"
      "  atoll dev up my.toml --dir /tmp/my --servers 3 --islands 2 --keep\n"
      "  atoll dev up laptop --model /tmp/my/export --dir /tmp/tune");
  auto options = std::make_shared<DevUpOptions>();
  AddRunFileFlags(command, options->file, options->changes);
  command
      .Add("--dir", options->directory,
           "Directory for logs, state and the model")
      .Required();
  command.Add("--threads", options->threads, "Threads of each island")
      .Check(flags::Range(1, 256));
  AddDeviceFlag(command, "each island", options->device);
  AddCapFlags(command, "each island", options->caps);
  command.AddFlag("--keep", options->keep,
                  "Keep serving after the run ends, until Ctrl-C");
  command.AddFlag("--no-restart", options->no_restart,
                  "Do not restart processes that die");
  command.Add("--coordinator-binary", options->coordinator_binary,
              "Path of atoll-coordinator");
  command.Add("--server-binary", options->server_binary,
              "Path of atoll-server");
  command.Add("--child-flag", options->child_flags,
              "NAME=FLAG: a flag for the first start of a process, e.g. "
              "server-0=--failpoint=server.commit.after; may be "
              "repeated");
  SetAction(command, context, RunDevUp, options);
}

}  // namespace atl::cli
