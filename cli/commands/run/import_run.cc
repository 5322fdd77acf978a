#include "cli/commands/run/import_run.h"

#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/io/files.h"
#include "base/layout/layout.h"
#include "base/rpc/wait_notice.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "base/sync/mutex.h"
#include "cli/flags/server_wait.h"
#include "cli/output/error.h"
#include "cli/output/table.h"
#include "server/client/parameter_client.h"
#include "worker/api/model_files.h"

namespace atl::cli {
namespace {

constexpr absl::Duration kQueryInterval = absl::Milliseconds(300);
constexpr char kGoOn[] =
    "The same command continues from what the servers have.";

// Follows the run during the import: passes new routes to `shards`, and stops
// the push if the run can no longer start or nothing moves. Thread-safe.
class RunFollower {
 public:
  RunFollower(coordinator::Client& client, std::string run_id,
              server::ParameterClient& shards, const ImportOptions& options)
      : client_(client),
        run_id_(std::move(run_id)),
        shards_(shards),
        patience_(options.patience),
        forward_(options.stop, [this] { stop_.request_stop(); }),
        moved_time_(absl::Now()),
        thread_([this](std::stop_token stop) { Follow(stop); }) {}

  std::stop_token stop() const { return stop_.get_token(); }

  // Reports how many bytes the servers have.
  void Moved(int64_t bytes) {
    MutexLock lock(&mutex_);
    if (bytes == bytes_) return;
    bytes_ = bytes;
    moved_time_ = absl::Now();
  }

  // Why the push must end; OK if only the caller stopped it.
  absl::Status status() const {
    MutexLock lock(&mutex_);
    return status_;
  }
  // The reason why the run waits; empty: unknown.
  std::string reason() const {
    MutexLock lock(&mutex_);
    return reason_;
  }

  server::ShardRoutes routes() const {
    MutexLock lock(&mutex_);
    return routes_;
  }

  absl::StatusOr<v1::RunState> WaitForStart() {
    MutexLock lock(&mutex_);
    moved_time_ = absl::Now();
    while (status_.ok() && !stop_.stop_requested() &&
           (state_ == v1::RUN_STATE_UNSPECIFIED ||
            state_ == v1::RUN_STATE_STARTING)) {
      changed_.WaitWithTimeout(&mutex_, kQueryInterval);
    }
    RETURN_IF_ERROR(status_);
    if (stop_.stop_requested()) return absl::CancelledError("stopped");
    return state_;
  }

 private:
  void Follow(std::stop_token stop) {
    const auto client = client_.InBackground(stop, absl::InfiniteDuration());
    while (!stop.stop_requested()) {
      const auto answer = client->GetRunState(run_id_);
      if (stop.stop_requested()) return;
      TakeIn(answer);
      MutexLock lock(&mutex_);
      if (!status_.ok()) {
        stop_.request_stop();
        changed_.SignalAll();
        return;
      }
      changed_.SignalAll();
      ended_.WaitWithTimeout(&mutex_, kQueryInterval);
    }
  }

  void TakeIn(const absl::StatusOr<v1::GetRunStateResponse>& answer) {
    if (answer.ok()) {
      server::ShardRoutes routes = RoutesOfState(*answer);
      shards_.SetRoutes(routes);
      MutexLock lock(&mutex_);
      routes_ = std::move(routes);
    }
    MutexLock lock(&mutex_);
    if (answer.ok()) {
      state_ = answer->run().state();
      reason_ = answer->run().state_reason();
      if (state_ == v1::RUN_STATE_CANCELLED) {
        status_ = absl::FailedPreconditionError(
            absl::StrCat("run ", run_id_, " was cancelled"));
      }
      for (const v1::ServerState& server : answer->servers()) {
        if (server.fault().empty()) continue;
        status_ =
            WithExitCode(absl::UnavailableError(absl::StrCat(
                             "server ", server.placement().server_id(),
                             " has stopped for this run: ", server.fault())),
                         ExitCode::kUnhealthy);
      }
    } else if (IsAway(answer.status())) {
      // The import needs the coordinator only at its end.
      reason_ = std::string(answer.status().message());
    } else {
      status_ = answer.status();
    }
    if (status_.ok() && absl::Now() - moved_time_ > patience_) {
      status_ = WithHint(
          absl::DeadlineExceededError(absl::StrCat(
              "nothing has moved for ", absl::FormatDuration(patience_),
              reason_.empty() ? "" : ": ", reason_)),
          kGoOn);
    }
  }

  coordinator::Client& client_;
  const std::string run_id_;
  server::ParameterClient& shards_;
  const absl::Duration patience_;
  std::stop_source stop_;
  std::stop_callback<std::function<void()>> forward_;
  mutable Mutex mutex_;
  CondVar changed_;
  CondVar ended_;
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = -1;
  absl::Time moved_time_ ABSL_GUARDED_BY(mutex_);
  v1::RunState state_ ABSL_GUARDED_BY(mutex_) = v1::RUN_STATE_UNSPECIFIED;
  std::string reason_ ABSL_GUARDED_BY(mutex_);
  server::ShardRoutes routes_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::jthread thread_;  // Last: it uses all the others.
};

// "import spring  12 MiB of 100 MiB  45 MiB/s  left 2s".
class ProgressLine {
 public:
  explicit ProgressLine(std::string run_id) : run_id_(std::move(run_id)) {}

  std::string At(int64_t done, int64_t total, const std::string& reason) {
    const absl::Time now = absl::Now();
    // Bytes that the servers had before do not count for the speed.
    if (!first_.has_value()) first_ = {done, now};
    std::string line = absl::StrCat("import ", run_id_, "  ", FormatBytes(done),
                                    " of ", FormatBytes(total));
    const double seconds = absl::ToDoubleSeconds(now - first_->second);
    const int64_t moved = done - first_->first;
    if (moved > 0 && seconds > 0) {
      const double rate = static_cast<double>(moved) / seconds;
      absl::StrAppend(
          &line, "  ", FormatBytes(static_cast<int64_t>(rate)), "/s  left ",
          FormatSpan(absl::Seconds(static_cast<double>(total - done) / rate)));
    } else if (!reason.empty()) {
      absl::StrAppend(&line, "  ", reason);
    }
    return line;
  }

 private:
  const std::string run_id_;
  std::optional<std::pair<int64_t, absl::Time>> first_;
};

absl::Status Explain(const absl::Status& status, const std::string& run_id) {
  if (absl::IsAlreadyExists(status)) {
    return WithHint(WithReason(status, "OTHER_MODEL"),
                    absl::StrCat("`atoll run show ", run_id,
                                 "` shows the run. For this model create a "
                                 "run with another run_id and this model "
                                 "under [init]."));
  }
  if (absl::IsFailedPrecondition(status)) {
    return WithReason(status, "NOT_IMPORTABLE");
  }
  return WithReason(status, "MODEL_UNUSABLE");
}

}  // namespace

absl::StatusOr<Imported> ImportRun(const Context& context,
                                   coordinator::Client& client,
                                   const v1::Run& run,
                                   const ImportOptions& options) {
  const v1::RunSpec& spec = run.spec();
  const std::string& run_id = run.run_id();
  if (!spec.init().import()) {
    return Explain(worker::CheckImport({}, run), run_id);
  }
  if (run.state() == v1::RUN_STATE_CANCELLED) {
    return Explain(absl::FailedPreconditionError(absl::StrCat(
                       "run ", run_id, " is cancelled: create another run")),
                   run_id);
  }
  Imported imported;
  imported.directory = AbsolutePath(options.directory);
  const absl::StatusOr<worker::ModelToImport> model = worker::ReadModelToImport(
      imported.directory, spec.layout(), options.stop);
  if (absl::IsCancelled(model.status())) return model.status();
  if (!model.ok()) return Explain(model.status(), run_id);
  const absl::Status fits = worker::CheckImport(*model, run);
  if (!fits.ok()) return Explain(fits, run_id);
  imported.parameters_sha256 = model->parameters_sha256;
  imported.size_bytes =
      static_cast<int64_t>(model->parameters.size() * sizeof(float));
  imported.state = run.state();
  if (run.state() != v1::RUN_STATE_STARTING) return imported;

  ASSIGN_OR_RETURN(const RunLayout layout, RunLayout::Create(spec.layout()));
  server::ParameterClientOptions client_options =
      server::MakeRunOptions(run);
  client_options.channel = context.MakeChannelOptions(rpc::ChannelKind::kData);
  ASSIGN_OR_RETURN(std::unique_ptr<server::ParameterClient> shards,
                   server::MakeParameterClient(client_options, layout));
  RunFollower follower(client, run_id, *shards, options);
  ProgressLine line(run_id);
  worker::ImportModelOptions import_options;
  import_options.stop = follower.stop();
  rpc::WaitNotice notice;
  import_options.on_progress = [&](int64_t done, int64_t total) {
    follower.Moved(done);
    if (!options.on_progress) return;
    options.on_progress(line.At(done, total, follower.reason()));
  };
  import_options.on_waiting = [&](const server::TransferWait& waiting) {
    if (!options.on_notice || !notice.IsDue(waiting.span)) return;
    options.on_notice(
        DescribeWaiting(waiting, follower.routes(), options.patience));
  };
  absl::Status status =
      worker::ImportModel(*model, run, *shards, import_options);
  if (status.ok()) {
    absl::StatusOr<v1::RunState> started = follower.WaitForStart();
    status = started.status();
    if (started.ok()) imported.state = *started;
  }
  RETURN_IF_ERROR(follower.status());
  if (absl::IsCancelled(status)) return WithHint(status, kGoOn);
  RETURN_IF_ERROR(status);
  imported.sent_bytes = shards->counters().sent_payload_bytes;
  return imported;
}

}  // namespace atl::cli
