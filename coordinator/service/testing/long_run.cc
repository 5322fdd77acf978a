#include "coordinator/service/testing/long_run.h"

#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status/check.h"
#include "base/status/status_macros.h"
#include "coordinator/core/testing/run_simulation.h"

namespace atl::coordinator {
namespace {

// Records per append: a sync for each round would take nearly all the time.
constexpr size_t kBatchEntries = 4096;

template <typename T>
void MoveTo(std::vector<T>& from, std::vector<T>& to) {
  to.insert(to.end(), std::make_move_iterator(from.begin()),
            std::make_move_iterator(from.end()));
}

class LongRun {
 public:
  LongRun(const CoordinatorOptions& options, int island_count, Store& store)
      : core_(options), island_count_(island_count), store_(store) {}

  absl::Status Go(int64_t round_count) {
    core_.Start(now_, {"cluster", "start"}, 0);
    Create(round_count + 1);
    for (int64_t version = 0; version < round_count; ++version) {
      PlayRound(version);
      RETURN_IF_ERROR(Collect());
    }
    return store_.Append(batch_);
  }

 private:
  void Create(int64_t round_count) {
    v1::CreateRunRequest create;
    create.set_run_id("run");
    *create.mutable_spec() = SimpleSpec();
    v1::ScheduleSpec& schedule = *create.mutable_spec()->mutable_schedule();
    schedule.set_round_count(round_count);
    schedule.set_island_count_min(island_count_);
    schedule.set_min_quorum(island_count_);
    create.mutable_spec()->mutable_data()->set_data_shard_count(island_count_);
    CHECK_OK(core_.CreateRun(create, now_).status());
    for (int shard = 0; shard < 2; ++shard) {
      v1::RegisterServerRequest request;
      request.set_server_id(absl::StrCat("server-", shard));
      request.set_address("127.0.0.1:1");
      request.set_incarnation(1);
      CHECK_OK(core_.RegisterServer(request, now_).status());
    }
    Report({}, -1);
    RunMachine& run = **core_.FindRun("run");
    for (int i = 0; i < island_count_; ++i) {
      v1::JoinRequest request;
      request.set_run_id("run");
      request.set_island_id(absl::StrCat("island-", i));
      request.mutable_capabilities()->add_devices()->set_kind("cpu");
      request.mutable_capabilities()->set_data_fingerprint(
          create.spec().data().fingerprint());
      const std::string secret(32, 's');
      const auto joined = run.Step(event::Join{request, secret}, now_);
      CHECK_OK(joined.status());
      CHECK_OK(run.Step(event::Ready{{request.island_id(),
                                      joined->joined.island_epoch(), secret},
                                     0},
                        now_)
                   .status());
    }
  }

  // Both shards report; every commit is persisted.
  void Report(const std::vector<v1::ContributionInfo>& stored,
              int64_t prepared_version) {
    const int64_t commit_seq = (*core_.FindRun("run"))->state().commit_seq();
    for (int shard = 0; shard < 2; ++shard) {
      v1::ReportShardsRequest request;
      request.set_server_id(absl::StrCat("server-", shard));
      request.set_incarnation(1);
      request.set_report_seq(++report_seq_);
      v1::ShardReport& report = *request.add_shards();
      report.set_run_id("run");
      report.set_run_epoch(1);
      report.set_shard(shard);
      report.set_initialized(true);
      report.add_version0_digests()->set_low(1);
      report.set_persisted_commit_seq(commit_seq);
      for (const v1::ContributionInfo& info : stored) {
        *report.add_stored()->mutable_info() = info;
      }
      if (prepared_version >= 0) {
        v1::PreparedRound& prepared = *report.add_prepared();
        prepared.set_version(prepared_version);
        prepared.mutable_digest()->set_low(prepared_version);
        prepared.set_finite(true);
      }
      CHECK_OK(core_.ReportShards(request, now_).status());
    }
  }

  void PlayRound(int64_t version) {
    now_ += absl::Seconds(1);
    std::vector<v1::ContributionInfo> stored(island_count_);
    for (int i = 0; i < island_count_; ++i) {
      v1::ContributionInfo& info = stored[i];
      info.mutable_key()->set_run_epoch(1);
      info.mutable_key()->set_slot(i);
      info.mutable_key()->set_seq(version + 1);
      info.mutable_digest()->set_low(version * 1'000'003 + i);
      info.set_anchor_version(version);
      info.set_codec(v1::CODEC_F32);
      info.set_step_count(4);
      info.set_token_count(80);
      info.set_data_shard(i);
      info.set_data_begin(version * 8);
      info.set_data_end(version * 8 + 8);
    }
    Report(stored, -1);
    Report(stored, version);
    CHECK_EQ((*core_.FindRun("run"))->state().commit_seq(), version + 1);
    // Keeps all leases alive.
    RunMachine& run = **core_.FindRun("run");
    for (int i = 0; i < island_count_; ++i) {
      CHECK_OK(run.Step(event::Heartbeat{{absl::StrCat("island-", i), 1,
                                          std::string(32, 's')}},
                        now_)
                   .status());
    }
  }

  // A snapshot must be of the last record of its batch, so the batch ends here.
  absl::Status Collect() {
    Batch made = core_.TakeEffects(now_).batch;
    MoveTo(made.entries, batch_.entries);
    MoveTo(made.history, batch_.history);
    MoveTo(made.snapshots, batch_.snapshots);
    if (batch_.snapshots.empty() && batch_.entries.size() < kBatchEntries) {
      return absl::OkStatus();
    }
    return store_.Append(std::exchange(batch_, {}));
  }

  Coordinator core_;
  const int island_count_;
  Store& store_;
  Batch batch_;
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  int64_t report_seq_ = 0;
};

}  // namespace

absl::Status WriteLongRun(const CoordinatorOptions& options, int island_count,
                          int64_t round_count, Store& store) {
  return LongRun(options, island_count, store).Go(round_count);
}

}  // namespace atl::coordinator
