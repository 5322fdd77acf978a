#include "tests/benchmarks/control/shard_servers.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "atoll/v1/server_service.grpc.pb.h"
#include "base/features/features.h"
#include "base/status/status_macros.h"

namespace atl::benchmarks {
namespace {

using Stub = v1::ServerService::Stub;

constexpr absl::Duration kTimeout = absl::Seconds(10);
constexpr absl::Duration kAwayWait = absl::Milliseconds(100);
// A third of the coordinator's default lease, as server/parameter_server.cc.
constexpr absl::Duration kReportEvery = absl::Milliseconds(3333);

}  // namespace

ShardServer::ShardServer(CallLoop& loop, int index, int fragment_count)
    : loop_(loop),
      server_id_(absl::StrCat("server-", index)),
      directory_id_(absl::StrFormat("%032x", index + 1)),
      fragment_count_(fragment_count) {}

absl::Status ShardServer::Dial(ControlPlane& control) {
  ASSIGN_OR_RETURN(channel_, control.Dial(absl::StrCat("server:", server_id_)));
  return absl::OkStatus();
}

void ShardServer::RegisterSoon() {
  is_registered_ = false;
  loop_.At(absl::Now() + kAwayWait, [this, life = life_] {
    if (life == life_ && !is_registered_) Register();
  });
}

void ShardServer::Register() {
  const int64_t life = ++life_;
  parts_.clear();
  ReportWhole();
  v1::RegisterServerRequest request;
  request.set_server_id(server_id_);
  request.set_address("127.0.0.1:1");  // No island dials it.
  request.set_incarnation(incarnation_);
  request.set_directory_id(directory_id_);
  request.set_features(ProgramFeatures());
  loop_.Call<Stub, v1::RegisterServerRequest, v1::RegisterServerResponse>(
      channel_, &Stub::AsyncRegisterServer, request, kTimeout, "",
      [this, life](const absl::Status& status, v1::RegisterServerResponse&,
                   absl::Duration) {
        if (life != life_) return;
        if (!status.ok()) {
          last_error_ = status;
          return RegisterSoon();
        }
        is_registered_ = true;
        if (stream_ != nullptr) stream_->Cancel();
        stream_ = nullptr;
        Follow();
        SetChanged();
        ReportSometimes(life);
      });
}

void ShardServer::Follow() {
  v1::WatchServerPlanRequest request;
  request.set_features(ProgramFeatures());
  request.set_server_id(server_id_);
  request.set_incarnation(incarnation_);
  request.set_directory_id(directory_id_);
  request.set_features(ProgramFeatures());
  joiner_ = {};
  stream_ = loop_.Open(
      channel_, "/atoll.v1.ServerService/WatchServerPlan", request, "",
      {.on_message =
           [this](grpc::ByteBuffer& message) {
             ++counts_.plans;
             counts_.plan_bytes += static_cast<int64_t>(message.Length());
             v1::WatchServerPlanResponse response;
             last_error_.Update(ParseMessage(message, response));
             auto plan = joiner_.Add(std::move(response));
             last_error_.Update(plan.status());
             if (plan.ok() && plan->has_value()) TakePlan(**plan);
           },
       .on_end =
           [this, life = life_](const absl::Status& status) {
             stream_ = nullptr;
             last_error_ = status;
             if (absl::IsFailedPrecondition(status)) return RegisterSoon();
             loop_.At(absl::Now() + kAwayWait, [this, life] {
               if (life == life_ && is_registered_ && stream_ == nullptr) {
                 Follow();
               }
             });
           }});
}

void ShardServer::TakePlan(const v1::ServerPlan& plan) {
  plan_revision_ = plan.revision();
  for (const v1::ServerRunPlan& run : plan.runs()) TakeRunPlan(run);
  SetChanged();
}

void ShardServer::TakeRunPlan(const v1::ServerRunPlan& plan) {
  Shard& shard = shards_[plan.run_id()];
  shard.run_uid = plan.run_uid();
  shard.run_epoch = plan.run_epoch();
  shard.number = plan.shard();
  shard.versions.resize(fragment_count_);
  const auto drop = [&](const v1::ContributionKey& key) {
    const Key place = {key.fragment(), key.slot(), key.seq()};
    if (shard.stored.erase(place) > 0) shard.changed.insert(place);
  };
  const int64_t applied = shard.applied;
  for (const v1::Commit& commit : plan.commits()) {
    if (commit.commit_seq() <= shard.applied) continue;
    shard.applied = commit.commit_seq();
    int64_t& version = shard.versions[commit.fragment()];
    version = std::max(version, commit.version());
    for (const auto& outcome : commit.outcomes()) drop(outcome.key());
  }
  for (const auto& outcome : plan.dropped()) drop(outcome.key());
  shard.awaited.clear();
  std::set<Round> sealed_rounds;
  for (const v1::Seal& seal : plan.seals()) {
    if (seal.version() < shard.versions[seal.fragment()]) continue;
    const Round round = {seal.fragment(), seal.version(), seal.attempt()};
    sealed_rounds.insert(round);
    if (shard.prepared.contains(round) || shard.merging.contains(round)) {
      continue;
    }
    std::set<Key> lacks;
    for (const v1::SealedContribution& sealed : seal.contributions()) {
      const Key place = {seal.fragment(), sealed.key().slot(),
                         sealed.key().seq()};
      if (!shard.stored.contains(place)) lacks.insert(place);
    }
    if (lacks.empty()) {
      shard.merging.insert(round);
    } else {
      shard.awaited.emplace(round, std::move(lacks));
    }
  }
  const auto has_ended = [&](const Round& round) {
    return !sealed_rounds.contains(round);
  };
  std::erase_if(shard.prepared, has_ended);
  std::erase_if(shard.merging, has_ended);
  Work(plan.run_id());
  if (shard.applied > applied && on_commit_) on_commit_(plan.run_id());
  for (const v1::OpenRound& round : plan.open_rounds()) {
    const bool is_new =
        shard.opened.emplace(round.fragment(), round.version(), round.attempt())
            .second;
    if (is_new && on_open_) on_open_(plan.run_id(), round);
  }
}

void ShardServer::Work(const std::string& run_id) {
  Shard& shard = shards_[run_id];
  if (work_time_ == absl::ZeroDuration()) {
    shard.prepared.merge(shard.merging);
    shard.persisted = shard.applied;
    return;
  }
  if (shard.works) return;
  if (shard.merging.empty() && shard.persisted == shard.applied) return;
  shard.works = true;
  loop_.At(absl::Now() + work_time_, [this, run_id] {
    Shard& shard = shards_[run_id];
    shard.works = false;
    if (!shard.merging.empty()) {
      shard.prepared.insert(shard.merging.extract(shard.merging.begin()));
    }
    if (shard.persisted < shard.applied) ++shard.persisted;
    SetChanged();
    Work(run_id);
  });
}

void ShardServer::Store(const std::string& run_id,
                        const v1::ContributionInfo& info) {
  const auto found = shards_.find(run_id);
  if (found == shards_.end()) return;
  Shard& shard = found->second;
  const v1::ContributionKey& key = info.key();
  if (info.anchor_version() < shard.versions[key.fragment()]) return;
  const Key place = {key.fragment(), key.slot(), key.seq()};
  if (!shard.stored.emplace(place, info).second) return;
  shard.changed.insert(place);
  shard.arrivals.push_back(place);
  while (!shard.stored.contains(shard.arrivals.front())) {
    shard.arrivals.pop_front();
  }
  for (auto& [round, lacks] : shard.awaited) {
    if (lacks.erase(place) > 0 && lacks.empty()) shard.merging.insert(round);
  }
  std::erase_if(shard.awaited,
                [](const auto& round) { return round.second.empty(); });
  Work(run_id);
  SetChanged();
}

std::vector<v1::ContributionInfo> ShardServer::RestartWithout(double part) {
  std::vector<v1::ContributionInfo> lost;
  for (auto& [run_id, shard] : shards_) {
    const auto count = static_cast<int>(
        part * static_cast<double>(shard.stored.size()));
    for (int left = count; left > 0 && !shard.arrivals.empty();) {
      const auto erased = shard.stored.extract(shard.arrivals.back());
      shard.arrivals.pop_back();
      if (erased.empty()) continue;
      --left;
      lost.push_back(erased.mapped());
    }
    shard.prepared.clear();
    shard.merging.clear();
  }
  ++incarnation_;
  report_seq_ = 0;
  ReportWhole();
  is_registered_ = false;
  Register();
  return lost;
}

int64_t ShardServer::FindVersion(const std::string& run_id) const {
  const auto found = shards_.find(run_id);
  if (found == shards_.end()) return -1;
  const std::vector<int64_t>& versions = found->second.versions;
  return *std::min_element(versions.begin(), versions.end());
}

void ShardServer::SetChanged() {
  is_changed_ = true;
  if (is_registered_ && parts_.empty()) Report();
}

v1::ShardReport ShardServer::MakeReport(const std::string& run_id,
                                        Shard& shard) const {
  v1::ShardReport report;
  report.set_run_id(run_id);
  report.set_run_uid(shard.run_uid);
  report.set_run_epoch(shard.run_epoch);
  report.set_shard(shard.number);
  report.set_initialized(true);
  for (int f = 0; f < fragment_count_; ++f) {
    report.add_version0_digests()->set_low(f + 1);
    report.add_version0_norms_squared(1);
  }
  report.set_persisted_commit_seq(shard.persisted);
  const auto add = [&](const v1::ContributionInfo& info) {
    v1::StoredContribution& stored = *report.add_stored();
    *stored.mutable_info() = info;
    stored.set_norm_squared(1);
  };
  if (shard.base_report_seq == 0 || !takes_changes_) {
    report.mutable_stored()->Reserve(static_cast<int>(shard.stored.size()));
    for (const auto& [key, info] : shard.stored) add(info);
  } else {
    report.set_base_report_seq(shard.base_report_seq);
    for (const Key& key : shard.changed) {
      const auto stored = shard.stored.find(key);
      if (stored != shard.stored.end()) {
        add(stored->second);
        continue;
      }
      v1::ContributionKey& gone = *report.add_gone();
      gone.set_run_epoch(shard.run_epoch);
      gone.set_fragment(std::get<0>(key));
      gone.set_slot(std::get<1>(key));
      gone.set_seq(std::get<2>(key));
    }
  }
  shard.base_report_seq = report_seq_;
  shard.changed.clear();
  for (const auto& [fragment, version, attempt] : shard.prepared) {
    v1::PreparedRound& prepared = *report.add_prepared();
    prepared.set_fragment(fragment);
    prepared.set_version(version);
    prepared.set_attempt(attempt);
    prepared.mutable_digest()->set_low(version + 1);
    prepared.set_finite(true);
    prepared.set_norm_squared(1);
  }
  return report;
}

void ShardServer::Report() {
  is_changed_ = false;
  v1::ReportShardsRequest request;
  request.set_server_id(server_id_);
  request.set_incarnation(incarnation_);
  request.set_directory_id(directory_id_);
  request.set_report_seq(++report_seq_);
  request.set_plan_revision(plan_revision_);
  for (auto& [run_id, shard] : shards_) {
    v1::ShardReport report = MakeReport(run_id, shard);
    (report.base_report_seq() == 0 ? *request.add_shards()
                                   : *request.add_changes()) =
        std::move(report);
  }
  parts_ = coordinator::CutReport(std::move(request));
  SendPart();
}

void ShardServer::SendPart() {
  ++counts_.reports;
  counts_.report_bytes += static_cast<int64_t>(parts_.front().ByteSizeLong());
  loop_.Call<Stub, v1::ReportShardsRequest, v1::ReportShardsResponse>(
      channel_, &Stub::AsyncReportShards, parts_.front(), kTimeout, "",
      [this, life = life_](const absl::Status& status,
                           v1::ReportShardsResponse& answer,
                           absl::Duration took) {
        if (life != life_) return;
        counts_.report_ms_max = std::max(counts_.report_ms_max,
                                         absl::ToDoubleMilliseconds(took));
        if (status.ok()) {
          takes_changes_ =
              (answer.coordinator_features() & kReportsOfChanges) != 0;
          parts_.pop_front();
          for (const std::string& run_id : answer.whole_report_run_ids()) {
            shards_[run_id].base_report_seq = 0;
            is_changed_ = true;
          }
          if (!parts_.empty()) return SendPart();
          if (is_changed_) Report();
          return;
        }
        last_error_ = status;
        ReportWhole();
        if (absl::IsFailedPrecondition(status)) return RegisterSoon();
        loop_.At(absl::Now() + kAwayWait, [this, life] {
          if (life == life_ && is_registered_) Report();
        });
      });
}

void ShardServer::ReportSometimes(int64_t life) {
  loop_.At(absl::Now() + kReportEvery, [this, life] {
    if (life != life_) return;
    if (is_registered_ && parts_.empty()) Report();
    ReportSometimes(life);
  });
}

}  // namespace atl::benchmarks
