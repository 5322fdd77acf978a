#include "tests/benchmarks/control/control_load.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "atoll/v1/island_service.grpc.pb.h"
#include "atoll/v1/run_service.grpc.pb.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "tests/benchmarks/usage.h"

namespace atl::benchmarks {
namespace {

constexpr absl::Duration kProbeEvery = absl::Milliseconds(50);
constexpr absl::Duration kMemoryEvery = absl::Milliseconds(100);
constexpr absl::Duration kPatience = absl::Minutes(5);
// To merge a fragment, or to make it durable. Not while tables are filled.
constexpr absl::Duration kWorkTime = absl::Milliseconds(20);
// When a paced round's contributions arrive, as parts of its time.
constexpr double kPushBegin = 0.6;
constexpr double kPushSpread = 0.2;
// Data shards for islands that a case adds.
constexpr int kSpareShards = 128;
// The run does not end during the benchmark.
constexpr int kRoundCount = 1'000'000;

int RunCount(const LoadOptions& options) {
  const int least =
      (options.island_count + kRunIslandsMax - 1) / kRunIslandsMax;
  return std::min(options.island_count, std::max(least, options.run_count));
}

}  // namespace

ControlLoad::ControlLoad(const LoadOptions& options)
    : options_(options),
      control_({.directory = options.directory,
                .tls = options.tls,
                .coordinator_binary = options.coordinator_binary}) {
  for (int i = 0; i < RunCount(options); ++i) {
    run_ids_.push_back(absl::StrCat("run-", i));
  }
  opened_.resize(run_ids_.size());
  round_s_.resize(run_ids_.size());
}

v1::RunSpec ControlLoad::MakeSpec(int island_count) const {
  v1::RunSpec spec;
  spec.mutable_layout()->set_fragment_count(options_.fragment_count);
  for (int i = 0; i < options_.fragment_count; ++i) {
    v1::TensorSpec& tensor = *spec.mutable_layout()->add_tensors();
    tensor.set_name(absl::StrCat("t", i));
    // A block for each server.
    tensor.add_shape(options_.server_count);
    tensor.add_shape(4096);
    tensor.set_dtype(v1::DATA_TYPE_F32);
    tensor.set_tensor_class(v1::TENSOR_CLASS_MATRIX);
    tensor.set_fragment(i);
    tensor.mutable_init()->set_kind(v1::INIT_KIND_CONSTANT);
  }
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
  inner.set_batch_size(kStepWindowCount);

  v1::OuterSpec& outer = *spec.mutable_outer();
  outer.set_optimizer(v1::OUTER_OPTIMIZER_KIND_FEDAVG);
  outer.set_weighting(v1::WEIGHTING_UNIFORM);

  v1::ScheduleSpec& schedule = *spec.mutable_schedule();
  schedule.set_timing(options_.elastic ? v1::TIMING_ELASTIC
                                       : v1::TIMING_STRICT);
  if (options_.elastic) schedule.mutable_grace_window()->set_seconds(2);
  schedule.set_inner_step_count(kStepCount);
  schedule.set_round_count(kRoundCount);
  schedule.set_island_count_min(island_count);
  schedule.set_min_quorum(options_.elastic ? 1 : island_count);

  v1::DataSpec& data = *spec.mutable_data();
  data.set_format(v1::DATA_FORMAT_BYTES);
  data.set_path("/nowhere");
  data.set_data_shard_count(island_count + kSpareShards);
  spec.mutable_evaluation()->set_batch_count(1);
  spec.set_durability(v1::DURABILITY_PROCESS);
  spec.set_server_count(options_.server_count);
  return spec;
}

absl::Status ControlLoad::CreateRun(const std::string& run_id,
                                    const v1::RunSpec& spec) {
  v1::CreateRunRequest request;
  request.set_run_id(run_id);
  *request.mutable_spec() = spec;
  absl::Status result = absl::DeadlineExceededError("no answer");
  bool is_done = false;
  loop_.Call<v1::RunService::Stub, v1::CreateRunRequest, v1::CreateRunResponse>(
      operator_, &v1::RunService::Stub::AsyncCreateRun, request,
      absl::Seconds(60), "",
      [&](const absl::Status& status, v1::CreateRunResponse&, absl::Duration) {
        result = status;
        is_done = true;
      });
  loop_.Run([&] { return is_done; }, absl::InfiniteFuture());
  return Annotate(result, absl::StrCat("cannot create ", run_id));
}

absl::Status ControlLoad::Start() {
  RETURN_IF_ERROR(control_.Start());
  ASSIGN_OR_RETURN(operator_, control_.Dial("operator:benchmark"));
  ASSIGN_OR_RETURN(probe_, control_.DialProbe());
  for (int i = 0; i < options_.server_count; ++i) {
    servers_.push_back(std::make_unique<ShardServer>(
        loop_, i, options_.fragment_count));
    RETURN_IF_ERROR(servers_.back()->Dial(control_));
    servers_.back()->Start();
  }
  servers_.front()->SetOpenHandler(
      [this](const std::string& run_id, const v1::OpenRound& round) {
        TakeOpen(run_id, round);
      });
  servers_.front()->SetCommitHandler(
      [this](const std::string& run_id) { TakeCommits(run_id); });
  std::vector<int> sizes(run_ids_.size());
  for (int i = 0; i < options_.island_count; ++i) {
    ++sizes[IslandFleet::RunOf(i, options_.island_count,
                               static_cast<int>(sizes.size()))];
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    RETURN_IF_ERROR(CreateRun(run_ids_[i], MakeSpec(sizes[i])));
  }
  islands_ = std::make_unique<IslandFleet>(
      loop_, control_,
      FleetOptions{.run_ids = run_ids_,
                   .island_count = options_.island_count,
                   .islands_per_connection =
                       options_.tls ? 1 : options_.islands_per_connection});
  Probe();
  WatchMemory();
  const int64_t before = ResidentBytes(control_.coordinator_pid());
  RETURN_IF_ERROR(islands_->Join(kPatience));
  RETURN_IF_ERROR(islands_->Watch(kPatience));
  island_kib_ =
      static_cast<double>(ResidentBytes(control_.coordinator_pid()) - before) /
      1024 / options_.island_count;
  // The filling is faster without plans. An elastic run does not wait for an
  // island that follows none.
  if (!options_.elastic) islands_->StopWatching();
  RETURN_IF_ERROR(
      PlayRounds(options_.filled_round_count, absl::ZeroDuration()));
  if (!options_.elastic) RETURN_IF_ERROR(islands_->Watch(kPatience));
  islands_->SetIdle(false);
  return absl::OkStatus();
}

int ControlLoad::FindRun(const std::string& run_id) const {
  const auto found = std::find(run_ids_.begin(), run_ids_.end(), run_id);
  return found == run_ids_.end() ? -1
                                 : static_cast<int>(found - run_ids_.begin());
}

void ControlLoad::TakeCommits(const std::string& run_id) {
  const int run = FindRun(run_id);
  if (run < 0) return;
  std::map<int64_t, absl::Time>& opened = opened_[run];
  const int64_t version = servers_.front()->FindVersion(run_id);
  while (!opened.empty() && opened.begin()->first < version) {
    round_s_[run].push_back(
        absl::ToDoubleSeconds(absl::Now() - opened.begin()->second));
    opened.erase(opened.begin());
  }
}

void ControlLoad::TakeOpen(const std::string& run_id,
                           const v1::OpenRound& round) {
  const int run = FindRun(run_id);
  if (run < 0) return;
  opened_[run].emplace(round.version(), absl::Now());
  if (round.version() >= end_version_) {
    waiting_.emplace_back(run, round);
  } else {
    PushAll(run, round);
  }
}

void ControlLoad::PushAll(int run, const v1::OpenRound& round) {
  const absl::Time begin = std::max(
      absl::Now(),
      begin_ + static_cast<double>(round.version() - first_version_) * pace_);
  for (int i = 0; i < options_.island_count; ++i) {
    if (islands_->run_of(i) != run) continue;
    const double part =
        kPushBegin + kPushSpread * static_cast<double>(i) /
                         static_cast<double>(options_.island_count);
    loop_.At(begin + part * pace_, [this, run, i, round] {
      const v1::ContributionInfo info = islands_->MakeContribution(i, round);
      for (const auto& server : servers_) server->Store(run_ids_[run], info);
    });
  }
}

void ControlLoad::BeginRounds(int count, absl::Duration pace) {
  first_version_ = end_version_;
  end_version_ += count;
  begin_ = absl::Now();
  pace_ = pace;
  for (const auto& server : servers_) {
    server->SetWorkTime(pace > absl::ZeroDuration() ? kWorkTime : pace);
  }
  auto waiting = std::move(waiting_);
  waiting_.clear();
  for (const auto& [run, round] : waiting) TakeOpen(run_ids_[run], round);
}

bool ControlLoad::HasFinished() const {
  return std::all_of(
      servers_.begin(), servers_.end(), [this](const auto& server) {
        return std::all_of(run_ids_.begin(), run_ids_.end(),
                           [&](const std::string& run_id) {
                             return server->FindVersion(run_id) >=
                                    end_version_;
                           });
      });
}

absl::Status ControlLoad::FinishRounds() {
  const absl::Time deadline =
      absl::Now() + static_cast<double>(end_version_ - first_version_) *
                        std::max(options_.patience, pace_);
  if (loop_.Run([this] { return HasFinished(); }, deadline)) {
    return absl::OkStatus();
  }
  return absl::DeadlineExceededError(absl::StrCat(
      "the rounds up to version ", end_version_, " are not committed: ",
      servers_.front()->last_error().ToString(), "; ",
      islands_->last_error().ToString()));
}

absl::Status ControlLoad::PlayRounds(int count, absl::Duration pace) {
  BeginRounds(count, pace);
  const absl::Time end = begin_ + static_cast<double>(count) * pace;
  RETURN_IF_ERROR(FinishRounds());
  loop_.RunUntil(end);
  return absl::OkStatus();
}

void ControlLoad::Probe() {
  loop_.At(absl::Now() + kProbeEvery, [this] { Probe(); });
  loop_.Call<v1::IslandService::Stub, v1::HeartbeatRequest,
             v1::HeartbeatResponse>(
      probe_, &v1::IslandService::Stub::AsyncHeartbeat, v1::HeartbeatRequest(),
      absl::Seconds(5), "",
      [this](const absl::Status& status, v1::HeartbeatResponse&,
             absl::Duration took) {
        if (status.ok()) probe_ms_.push_back(absl::ToDoubleMilliseconds(took));
      });
}

void ControlLoad::WatchMemory() {
  loop_.At(absl::Now() + kMemoryEvery, [this] { WatchMemory(); });
  if (!control_.has_coordinator()) return;
  rss_bytes_ = std::max(rss_bytes_, ResidentBytes(control_.coordinator_pid()));
}

void ControlLoad::BeginMeasuring() {
  islands_->ResetCounts();
  for (const auto& server : servers_) server->ResetCounts();
  probe_ms_.clear();
  for (auto& seconds : round_s_) seconds.clear();
  rss_bytes_ = ResidentBytes(control_.coordinator_pid());
  coordinator_cpu_ = CpuSeconds({control_.coordinator_pid()});
  generator_cpu_ = CpuSeconds({getpid()});
  measured_from_ = absl::Now();
}

Measures ControlLoad::Measure() {
  Measures measures;
  measures.wall_s = absl::ToDoubleSeconds(absl::Now() - measured_from_);
  measures.coordinator_cpu_s =
      CpuSeconds({control_.coordinator_pid()}) - coordinator_cpu_;
  measures.generator_cpu_s = CpuSeconds({getpid()}) - generator_cpu_;
  const IslandFleet::Counts& counts = islands_->counts();
  measures.heartbeat_ms = counts.heartbeat_ms;
  measures.probe_ms = probe_ms_;
  measures.island_plans = counts.plans;
  measures.plan_bytes = counts.plan_bytes;
  measures.messages = counts.answers + counts.errors + counts.plans;
  measures.errors = counts.errors;
  measures.round_s = round_s_;
  for (const auto& server : servers_) {
    measures.plan_bytes += server->counts().plan_bytes;
    measures.messages += server->counts().plans + server->counts().reports;
  }
  measures.rss_mib = static_cast<double>(rss_bytes_) / (1 << 20);
  return measures;
}

}  // namespace atl::benchmarks
