// A failing disk: what islands and the operator see, that nothing missing is
// acknowledged, and that a restart on a good disk goes on with the same bits.

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "base/obs/log.h"
#include "base/rpc/call.h"
#include "base/rpc/channel.h"
#include "base/rpc/status.h"
#include "base/rpc/testing/health.h"
#include "base/status/refusal.h"
#include "base/sync/mutex.h"
#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "server/service/testing/test_cluster.h"

namespace atl::server {
namespace {

using Call = FakeFileSystem::Fault::Call;
using testing::HasSubstr;

#define ASSERT_OK(expr)                                     \
  do {                                                      \
    const absl::Status assert_ok_status = (expr);           \
    ASSERT_TRUE(assert_ok_status.ok()) << assert_ok_status; \
  } while (false)

class DiskErrorsTest : public testing::TestWithParam<v1::Durability> {
 protected:
  DiskErrorsTest() { Begin(); }

  void Begin() {
    v1::Run run = SmallRun();
    run.mutable_spec()->set_durability(GetParam());
    cluster_ = std::make_unique<TestCluster>(run, 1);
    absl::Status begun = cluster_->StartAll();
    if (begun.ok()) begun = cluster_->Begin();
    EXPECT_TRUE(begun.ok()) << begun;
    gradient_ = cluster_->Gradient(0, 0, 0);
    info_ = cluster_->Info(0, 0, 0, gradient_);
  }

  absl::Status Push() { return cluster_->Push(info_, gradient_); }

  // Pushes over one stream by hand; returns how it ends and fails the test on
  // `stored`. If `only_block` is >= 0, sends only that block.
  absl::Status PushOnce(int64_t only_block = -1) {
    grpc::ClientContext context;
    context.AddMetadata(rpc::kSessionMetadata,
                        rpc::ToHex(TestCluster::Secret(0)));
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::seconds(20));
    const auto stub = cluster_->Stub(0);
    const auto stream = stub->PushOuterGradient(&context);
    v1::PushOuterGradientRequest request;
    *request.mutable_header() = cluster_->Header(info_, 0);
    stream->Write(request);
    v1::PushOuterGradientResponse response;
    if (stream->Read(&response)) {
      const auto send = [&](IndexRange blocks) {
        const IndexRange elements =
            cluster_->layout().BlockElements(0, blocks);
        v1::Chunk& chunk = *request.mutable_chunk();
        *chunk.mutable_key() = info_.key();
        chunk.set_codec(v1::CODEC_F32);
        chunk.set_first_block(blocks.begin);
        chunk.set_block_count(static_cast<int32_t>(blocks.size()));
        chunk.set_payload(gradient_.data() + elements.begin,
                          elements.size() * sizeof(float));
        SumChunk(chunk);
        stream->Write(request);
      };
      const int64_t block_count = cluster_->layout().fragment_block_count(0);
      if (only_block >= 0) send({only_block, only_block + 1});
      for (int64_t b = 0; b < block_count && only_block < 0; b += 64) {
        send({b, std::min<int64_t>(b + 64, block_count)});
      }
      stream->WritesDone();
      while (stream->Read(&response)) EXPECT_FALSE(response.stored());
    }
    return rpc::FromGrpc(stream->Finish());
  }

  // Pushes only a header; OK if blocks are asked for.
  absl::Status Bind(const v1::ContributionInfo& info) {
    grpc::ClientContext context;
    context.AddMetadata(rpc::kSessionMetadata,
                        rpc::ToHex(TestCluster::Secret(info.key().slot())));
    const auto stub = cluster_->Stub(0);
    const auto stream = stub->PushOuterGradient(&context);
    v1::PushOuterGradientRequest request;
    *request.mutable_header() = cluster_->Header(info, 0);
    stream->Write(request);
    v1::PushOuterGradientResponse response;
    if (!stream->Read(&response)) return rpc::FromGrpc(stream->Finish());
    context.TryCancel();
    stream->Finish();
    return absl::OkStatus();
  }

  absl::Status PullOnce() {
    grpc::ClientContext context;
    v1::PullParametersRequest request;
    request.set_run_id("small");
    request.set_version(-1);
    request.set_layout_fingerprint(cluster_->layout().fingerprint());
    const auto stub = cluster_->Stub(0);
    const auto stream = stub->PullParameters(&context, request);
    v1::PullParametersResponse response;
    while (stream->Read(&response)) {
    }
    return rpc::FromGrpc(stream->Finish());
  }

  static std::string GetReason(const absl::Status& status) {
    const auto reason = atl::GetReason(status);
    return reason.has_value() ? reason->reason : "";
  }

  void ExpectStopped(const absl::Status& status, const std::string& what) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_EQ(GetReason(status), "SHARD_STOPPED");
    EXPECT_THAT(status.message(), HasSubstr(what));
    EXPECT_THAT(WaitForFault(), HasSubstr(what));
  }

  // A good disk with what had reached the bad one.
  void RestartOnAWholeDisk() {
    // Level process keeps what was written, level machine what was synced.
    if (GetParam() == v1::DURABILITY_PROCESS) {
      cluster_->Stop(0);
    } else {
      cluster_->CutPower(0);
    }
    cluster_->fs(0).ClearFaults();
    ASSERT_OK(cluster_->Start(0));
    WaitForReport(
        [](const auto& r) { return r.initialized() && r.fault().empty(); });
  }

  bool Serves(const std::string& service) {
    const auto channel =
        rpc::MakeChannel(cluster_->server(0).address(), cluster_->Channel(0));
    EXPECT_TRUE(channel.ok()) << channel.status();
    return rpc::CheckServing(*channel, TestCluster::kPatience, service).ok();
  }

  void Break(Call call, const std::string& path_part, int error_number,
             int64_t written_bytes = 0) {
    FakeFileSystem::Fault fault;
    fault.call = call;
    fault.path_part = path_part;
    fault.error_number = error_number;
    fault.fail_count = 1 << 30;
    fault.written_bytes = written_bytes;
    cluster_->fs(0).AddFault(std::move(fault));
  }

  v1::ShardReport WaitForReport(
      const std::function<bool(const v1::ShardReport&)>& done) {
    const absl::StatusOr<v1::ShardReport> report =
        cluster_->WaitForReport(0, done);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *report : v1::ShardReport();
  }

  v1::ShardReport Report() {
    return WaitForReport([](const auto&) { return true; });
  }

  std::string WaitForFault() {
    return WaitForReport([](const auto& r) { return !r.fault().empty(); })
        .fault();
  }

  std::string WaitForBlockedReason() {
    return WaitForReport(
               [](const auto& r) { return !r.blocked_reason().empty(); })
        .blocked_reason();
  }

  void ExpectARoundAsIfNothingWas() {
    const absl::Status pushed = Push();
    EXPECT_TRUE(pushed.ok()) << pushed;
    const auto digest = cluster_->Seal(0, 0, {info_});
    ASSERT_TRUE(digest.ok()) << digest.status();
    ASSERT_OK(cluster_->Commit(0, 0, *digest));
    TestCluster undisturbed(SmallRun(), 1);
    ASSERT_OK(undisturbed.StartAll());
    ASSERT_OK(undisturbed.Begin());
    ASSERT_OK(undisturbed.Push(info_, gradient_));
    EXPECT_EQ(*digest, *undisturbed.Seal(0, 0, {info_}));
  }

  std::unique_ptr<TestCluster> cluster_;
  std::vector<float> gradient_;
  v1::ContributionInfo info_;
};

INSTANTIATE_TEST_SUITE_P(
    Levels, DiskErrorsTest,
    testing::Values(v1::DURABILITY_PROCESS, v1::DURABILITY_MACHINE),
    [](const auto& info) {
      return info.param == v1::DURABILITY_PROCESS ? "Process" : "Machine";
    });

// For every disk operation of a contribution.
TEST_P(DiskErrorsTest, ALogThatCannotBeWrittenStopsTheShard) {
  struct Case {
    Call call;
    int64_t written_bytes;
  };
  std::vector<Case> cases = {{Call::kWrite, 0}, {Call::kWrite, 5000}};
  if (GetParam() == v1::DURABILITY_MACHINE) cases.push_back({Call::kSync, 0});
  for (const Case& broken : cases) {
    SCOPED_TRACE(testing::Message() << static_cast<int>(broken.call) << " "
                                    << broken.written_bytes);
    Begin();
    Break(broken.call, ".seg", EIO, broken.written_bytes);
    // Islands wait for the server, and again after a retry.
    ExpectStopped(PushOnce(), ".seg: Input/output error");
    ExpectStopped(PushOnce(), ".seg: Input/output error");
    EXPECT_EQ(Report().stored_size(), 0);
    RestartOnAWholeDisk();
    EXPECT_EQ(Report().stored_size(), 0);
    ExpectARoundAsIfNothingWas();
  }
}

TEST_P(DiskErrorsTest, ALogThatCannotBeMadeLongerStopsTheShard) {
  for (const Call call : {Call::kOpen, Call::kReserve}) {
    Begin();
    Break(call, ".seg", EIO);
    // The round's reservation is used up eventually.
    absl::Status pushed;
    for (int64_t seq = 2; seq < 20 && pushed.ok(); ++seq) {
      info_.mutable_key()->set_slot(static_cast<int32_t>(seq % 8));
      info_.mutable_key()->set_seq(seq);
      pushed = Bind(info_);
    }
    ExpectStopped(pushed, ".seg: Input/output error");
    info_ = cluster_->Info(0, 0, 0, gradient_);
    RestartOnAWholeDisk();
    ExpectARoundAsIfNothingWas();
  }
}

TEST_P(DiskErrorsTest, RecordsThatCannotBeWrittenStopTheShard) {
  std::vector<Call> calls = {Call::kWrite};
  if (GetParam() == v1::DURABILITY_MACHINE) calls.push_back(Call::kSync);
  for (const Call call : calls) {
    Begin();
    Break(call, "/records/", EIO);
    ExpectStopped(PushOnce(), "cannot write records: ");
    EXPECT_THAT(Report().fault(),
                HasSubstr("/records/000001.log: Input/output error"));
    EXPECT_EQ(Report().stored_size(), 0);
    RestartOnAWholeDisk();
    ExpectARoundAsIfNothingWas();
  }
}

// The process stays healthy for other runs; only this run's health fails.
TEST_P(DiskErrorsTest, HealthSaysThatAShardHasStopped) {
  for (const char* name : {"", "atoll.shards", "atoll.shards/small"}) {
    EXPECT_TRUE(Serves(name)) << name;
  }
  EXPECT_FALSE(Serves("atoll.shards/other"));
  Break(Call::kWrite, ".seg", ENOSPC);
  EXPECT_EQ(GetReason(PushOnce()), "DISK_FULL");
  WaitForBlockedReason();
  EXPECT_TRUE(Serves("atoll.shards"));
  cluster_->fs(0).ClearFaults();
  Break(Call::kWrite, ".seg", EIO);
  ExpectStopped(PushOnce(), ".seg: Input/output error");
  EXPECT_TRUE(Serves(""));
  EXPECT_FALSE(Serves("atoll.shards"));
  EXPECT_FALSE(Serves("atoll.shards/small"));
  RestartOnAWholeDisk();
  EXPECT_TRUE(Serves("atoll.shards"));
  EXPECT_TRUE(Serves("atoll.shards/small"));
}

TEST_P(DiskErrorsTest, WhatPassesIsShownAndTriedAgain) {
  struct Case {
    int error_number;
    int64_t written_bytes;
    absl::StatusCode code;
    std::string reason;
  };
  for (const Case& broken : std::vector<Case>{
           {ENOSPC, 0, absl::StatusCode::kResourceExhausted, "DISK_FULL"},
           {ENOSPC, 5000, absl::StatusCode::kResourceExhausted, "DISK_FULL"},
           {EDQUOT, 0, absl::StatusCode::kResourceExhausted, "DISK_FULL"},
           {EMFILE, 0, absl::StatusCode::kUnavailable, "DISK_FAILS"},
           {ENOMEM, 0, absl::StatusCode::kUnavailable, "DISK_FAILS"},
           {EROFS, 0, absl::StatusCode::kUnavailable, "DISK_FAILS"},
           {ESTALE, 5000, absl::StatusCode::kUnavailable, "DISK_FAILS"}}) {
    SCOPED_TRACE(testing::Message()
                 << broken.error_number << " " << broken.written_bytes);
    Begin();
    Break(Call::kWrite, ".seg", broken.error_number, broken.written_bytes);
    const absl::Status pushed = PushOnce();
    EXPECT_EQ(pushed.code(), broken.code) << pushed;
    EXPECT_EQ(GetReason(pushed), broken.reason);
    EXPECT_THAT(pushed.message(), HasSubstr(".seg: "));
    EXPECT_THAT(WaitForBlockedReason(), HasSubstr(".seg: "));
    EXPECT_EQ(Report().fault(), "");
    cluster_->fs(0).ClearFaults();
    ExpectARoundAsIfNothingWas();
    EXPECT_EQ(Report().blocked_reason(), "");
  }
}

// Success of another action does not clear it.
TEST_P(DiskErrorsTest, WhatFailsIsShownUntilTheSameSucceeds) {
  ASSERT_OK(Push());
  Break(Call::kWrite, ".seg", EROFS);
  const v1::ContributionInfo stored = info_;
  info_.mutable_key()->set_seq(2);
  EXPECT_EQ(GetReason(PushOnce()), "DISK_FAILS");
  info_ = stored;
  EXPECT_THAT(WaitForBlockedReason(), HasSubstr(".seg: Read-only"));
  const auto digest = cluster_->Seal(0, 0, {info_});
  ASSERT_OK(digest.status());
  ASSERT_OK(cluster_->Commit(0, 0, *digest));
  EXPECT_THAT(Report().blocked_reason(), HasSubstr(".seg: Read-only"));
  cluster_->fs(0).ClearFaults();
  info_ = cluster_->Info(0, 0, 1, gradient_);
  info_.mutable_key()->set_seq(3);
  ASSERT_OK(Push());
  EXPECT_EQ(WaitForReport([](const auto& r) {
              return r.blocked_reason().empty();
            }).fault(),
            "");
}

TEST_P(DiskErrorsTest, WhatAnEndedRunWantsNoMoreIsNotShown) {
  Break(Call::kWrite, ".seg", EROFS);
  EXPECT_EQ(GetReason(PushOnce()), "DISK_FAILS");
  WaitForBlockedReason();
  cluster_->plan().set_run_state(v1::RUN_STATE_CANCELLED);
  cluster_->Publish();
  WaitForReport([](const auto& r) { return r.blocked_reason().empty(); });
}

// A block that is present splits a chunk; the other parts can come again.
TEST_P(DiskErrorsTest, NoPartOfAChunkIsLeftClaimed) {
  // The stream ends because it is incomplete and sends nothing.
  EXPECT_NE(GetReason(PushOnce(/*only_block=*/1)), "DISK_FULL");
  Break(Call::kWrite, ".seg", ENOSPC);
  const absl::Status pushed = PushOnce();
  EXPECT_EQ(GetReason(pushed), "DISK_FULL") << pushed;
  cluster_->fs(0).ClearFaults();
  ExpectARoundAsIfNothingWas();
}

TEST_P(DiskErrorsTest, AVersionThatCannotBeWrittenStopsTheShard) {
  for (const Call call :
       {Call::kWrite, Call::kSync, Call::kRename, Call::kSyncDirectory}) {
    SCOPED_TRACE(static_cast<int>(call));
    Begin();
    ASSERT_OK(Push());
    const auto digest = cluster_->Seal(0, 0, {info_});
    ASSERT_OK(digest.status());
    Break(call, "/versions", EIO);
    cluster_->AddCommit(0, 0, *digest);
    cluster_->Publish();
    const std::string fault = WaitForFault();
    EXPECT_THAT(fault, HasSubstr("/versions"));
    EXPECT_THAT(fault, HasSubstr("Input/output error"));
    EXPECT_EQ(Report().persisted_commit_seq(), 0);
    RestartOnAWholeDisk();
    EXPECT_EQ(WaitForReport([](const auto& r) {
                return r.persisted_commit_seq() == 1;
              }).fault(),
              "");
  }
}

TEST_P(DiskErrorsTest, AVersionThatCannotBeWrittenNowIsWrittenLater) {
  for (const int error_number : {ENOSPC, EROFS}) {
    for (const Call call :
         {Call::kWrite, Call::kSync, Call::kRename, Call::kSyncDirectory}) {
      SCOPED_TRACE(testing::Message()
                   << error_number << " " << static_cast<int>(call));
      Begin();
      ASSERT_OK(Push());
      const auto digest = cluster_->Seal(0, 0, {info_});
      ASSERT_OK(digest.status());
      Break(call, "/versions", error_number);
      cluster_->AddCommit(0, 0, *digest);
      cluster_->Publish();
      EXPECT_THAT(WaitForBlockedReason(), HasSubstr("/versions"));
      cluster_->fs(0).ClearFaults();
      const v1::ShardReport report = WaitForReport([](const auto& r) {
        return r.persisted_commit_seq() == 1 && r.blocked_reason().empty();
      });
      EXPECT_EQ(report.fault(), "");
      RestartOnAWholeDisk();
      EXPECT_EQ(Report().persisted_commit_seq(), 1);
    }
  }
}

TEST_P(DiskErrorsTest, ANewestVersionThatCannotBeReadStopsTheShard) {
  ASSERT_OK(cluster_->Round(0, 1));
  cluster_->CutPower(0);  // Not in memory any longer.
  ASSERT_OK(cluster_->Start(0));
  WaitForReport([](const auto& r) { return r.initialized(); });
  Break(Call::kRead, "f0-v1.ver", EIO);
  ExpectStopped(PullOnce(), "f0-v1.ver: Input/output error");
  RestartOnAWholeDisk();
  EXPECT_TRUE(PullOnce().ok());
}

// Before the COMMIT, the islands still have it.
TEST_P(DiskErrorsTest, AContributionThatCannotBeReadComesAgain) {
  ASSERT_OK(Push());
  Break(Call::kRead, ".seg", EIO);
  cluster_->AddSeal(0, 0, {info_});
  const v1::ShardReport report = WaitForReport(
      [](const auto& r) { return r.stored_size() == 0; });
  EXPECT_EQ(report.fault(), "");
  EXPECT_THAT(WaitForBlockedReason(), HasSubstr(".seg: Input/output error"));
  cluster_->fs(0).ClearFaults();
  ASSERT_OK(Push());
  const auto digest = cluster_->WaitForPrepared(0, 0);
  ASSERT_OK(digest.status());
  ASSERT_OK(cluster_->Commit(0, 0, *digest));
}

class LogLines : public LogSink {
 public:
  LogLines() { SetLogSink(this); }
  ~LogLines() override { SetLogSink(nullptr); }
  void Send(LogSeverity, absl::string_view line, absl::string_view) override {
    MutexLock lock(&mutex_);
    lines_.emplace_back(line);
  }
  std::vector<std::string> With(absl::string_view text) const {
    MutexLock lock(&mutex_);
    std::vector<std::string> found;
    for (const std::string& line : lines_) {
      if (absl::StrContains(line, text)) found.push_back(line);
    }
    return found;
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mutex_);
};

TEST_P(DiskErrorsTest, OfACheckpointThatIsGivenUpTheLogSaysSo) {
  ASSERT_OK(cluster_->Round(0, 1));
  Break(Call::kRead, "f0-v1.ver", EIO);
  const LogLines log;
  v1::Pin& pin = *cluster_->plan().add_pins();
  pin.set_pin_id("mine");
  pin.set_commit_seq(cluster_->commit_seq() + 1);
  pin.set_checkpoint(true);
  v1::FragmentVersion& version = *pin.add_cut();
  version.set_fragment(0);
  version.set_version(1);
  cluster_->Publish();
  const v1::ShardReport report = WaitForReport([](const auto& r) {
    return r.checkpoints_size() == 1 && !r.checkpoints(0).fault().empty();
  });
  EXPECT_EQ(report.blocked_reason(), "");
  const std::vector<std::string> told = log.With("write-manifest mine");
  ASSERT_EQ(told.size(), 1u);
  EXPECT_THAT(told[0], HasSubstr("given up: write-manifest mine failed: "));
  EXPECT_THAT(told[0], HasSubstr("f0-v1.ver: Input/output error"));
}

}  // namespace
}  // namespace atl::server
