// ParameterService over loopback: valid and invalid messages of plain protobuf.

#include "server/service/parameter_service.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/failpoint/test_point.h"
#include "base/rpc/call.h"
#include "base/rpc/status.h"
#include "base/status/refusal.h"
#include "base/sync/testing/notification.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "server/service/testing/test_cluster.h"

namespace atl::server {
namespace {

using grpc::StatusCode;

class RawPush {
 public:
  RawPush(v1::ParameterService::Stub& stub, const std::string& secret) {
    if (!secret.empty()) {
      context_.AddMetadata(rpc::kSessionMetadata, rpc::ToHex(secret));
    }
    context_.set_deadline(std::chrono::system_clock::now() +
                          std::chrono::seconds(20));
    stream_ = stub.PushOuterGradient(&context_);
  }

  void Send(const v1::PushHeader& header) {
    v1::PushOuterGradientRequest request;
    *request.mutable_header() = header;
    stream_->Write(request);
  }
  void Send(const v1::Chunk& chunk) {
    v1::PushOuterGradientRequest request;
    *request.mutable_chunk() = chunk;
    stream_->Write(request);
  }
  void Send(const v1::PushOuterGradientRequest& request) {
    stream_->Write(request);
  }
  std::optional<v1::PushOuterGradientResponse> Read() {
    v1::PushOuterGradientResponse response;
    if (!stream_->Read(&response)) return std::nullopt;
    return response;
  }
  void HalfClose() { stream_->WritesDone(); }
  void Cancel() { context_.TryCancel(); }
  grpc::Status Finish(bool* stored = nullptr) {
    while (const auto response = Read()) {
      if (stored != nullptr && response->stored()) *stored = true;
    }
    return stream_->Finish();
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::PushOuterGradientRequest,
                                           v1::PushOuterGradientResponse>>
      stream_;
};

class ParameterServiceTest : public testing::Test {
 protected:
  ParameterServiceTest() { Begin(SmallRun()); }

  void Begin(const v1::Run& run, int finish_thread_count = 2) {
    cluster_ = std::make_unique<TestCluster>(run, 1);
    cluster_->options().finish_thread_count = finish_thread_count;
    absl::Status begun = cluster_->StartAll();
    if (begun.ok()) begun = cluster_->Begin();
    EXPECT_TRUE(begun.ok()) << begun;
    stub_ = cluster_->Stub(0);
    gradient_ = cluster_->Gradient(0, 0, 0);
    info_ = cluster_->Info(0, 0, 0, gradient_);
  }

  int64_t BlockCount() const {
    return cluster_->layout().fragment_block_count(0);
  }

  std::unique_ptr<RawPush> Open(
      const std::string& secret = TestCluster::Secret(0)) {
    return std::make_unique<RawPush>(*stub_, secret);
  }

  v1::Chunk Chunk(int64_t begin, int64_t end) const {
    const IndexRange elements =
        cluster_->layout().BlockElements(0, {begin, end});
    v1::Chunk chunk;
    *chunk.mutable_key() = info_.key();
    chunk.set_codec(v1::CODEC_F32);
    chunk.set_first_block(begin);
    chunk.set_block_count(static_cast<int32_t>(end - begin));
    chunk.set_payload(gradient_.data() + elements.begin,
                      static_cast<size_t>(elements.size()) * sizeof(float));
    SumChunk(chunk);
    return chunk;
  }

  // Sends a valid header and `chunk`; returns how the stream ends.
  StatusCode PushChunk(const v1::Chunk& chunk) {
    auto push = Open();
    push->Send(cluster_->Header(info_, 0));
    push->Read();
    push->Send(chunk);
    push->HalfClose();
    return push->Finish().error_code();
  }

  StatusCode PushHeader(const v1::PushHeader& header,
                        const std::string& secret = TestCluster::Secret(0)) {
    auto push = Open(secret);
    push->Send(header);
    push->HalfClose();
    return push->Finish().error_code();
  }

  std::vector<std::pair<int64_t, int64_t>> MissingNow() {
    auto push = Open();
    push->Send(cluster_->Header(info_, 0));
    const auto answer = push->Read();
    std::vector<std::pair<int64_t, int64_t>> missing;
    if (answer.has_value()) {
      for (const v1::BlockRange& range : answer->missing()) {
        missing.emplace_back(range.begin(), range.end());
      }
    }
    push->Cancel();
    push->Finish();
    return missing;
  }

  bool IsRefused() {
    return cluster_
        ->WaitForReport(
            0, [](const v1::ShardReport& r) { return r.refused_size() == 1; })
        .ok();
  }

  std::unique_ptr<TestCluster> cluster_;
  std::unique_ptr<v1::ParameterService::Stub> stub_;
  std::vector<float> gradient_;
  v1::ContributionInfo info_;
};

TEST_F(ParameterServiceTest, APlainProtobufClientCanPush) {
  auto push = Open();
  push->Send(cluster_->Header(info_, 0));
  const auto answer = push->Read();
  ASSERT_TRUE(answer.has_value());
  EXPECT_FALSE(answer->stored());
  ASSERT_EQ(answer->missing_size(), 1);
  EXPECT_EQ(answer->missing(0).end(), BlockCount());
  push->Send(Chunk(30, BlockCount()));
  push->Send(Chunk(0, 30));
  push->HalfClose();
  bool stored = false;
  EXPECT_TRUE(push->Finish(&stored).ok());
  EXPECT_TRUE(stored);

  // A repeat is `stored` at once.
  auto again = Open();
  again->Send(cluster_->Header(info_, 0));
  stored = false;
  EXPECT_TRUE(again->Finish(&stored).ok());
  EXPECT_TRUE(stored);

  const auto report = cluster_->WaitForReport(
      0, [](const v1::ShardReport& r) { return r.stored_size() == 1; });
  ASSERT_TRUE(report.ok()) << report.status();
  double norm_squared = 0;
  for (const float x : gradient_) norm_squared += double{x} * x;
  EXPECT_NEAR(report->stored(0).norm_squared(), norm_squared,
              1e-9 * norm_squared);
}

TEST_F(ParameterServiceTest, AWrongChecksumLosesTheChunkAndNothingElse) {
  v1::Chunk chunk = Chunk(0, 10);
  chunk.set_crc32c(chunk.crc32c() ^ 1);
  EXPECT_EQ(PushChunk(chunk), StatusCode::DATA_LOSS);
  chunk = Chunk(0, 10);
  (*chunk.mutable_payload())[5] ^= 1;
  EXPECT_EQ(PushChunk(chunk), StatusCode::DATA_LOSS);
  // A field that the checksum covers.
  chunk = Chunk(0, 10);
  chunk.set_first_block(1);
  EXPECT_EQ(PushChunk(chunk), StatusCode::DATA_LOSS);
  EXPECT_EQ(MissingNow().size(), 1);
  EXPECT_TRUE(cluster_->Push(info_, gradient_).ok());
}

TEST_F(ParameterServiceTest, AnythingThatDoesNotFitIsRefusedWhole) {
  const auto with = [this](auto change) {
    Begin(SmallRun());  // A refusal is final.
    v1::Chunk chunk = Chunk(0, 10);
    change(&chunk);
    SumChunk(chunk);
    const StatusCode code = PushChunk(chunk);
    EXPECT_TRUE(IsRefused());
    EXPECT_EQ(PushHeader(cluster_->Header(info_, 0)),
              StatusCode::INVALID_ARGUMENT);
    return code;
  };
  constexpr auto kInvalid = StatusCode::INVALID_ARGUMENT;
  EXPECT_EQ(with([](auto* c) { c->mutable_payload()->pop_back(); }), kInvalid);
  EXPECT_EQ(with([](auto* c) { c->mutable_payload()->append("1234"); }),
            kInvalid);
  EXPECT_EQ(with([](auto* c) { c->clear_payload(); }), kInvalid);
  EXPECT_EQ(with([](auto* c) { c->set_block_count(0); }), kInvalid);
  EXPECT_EQ(with([](auto* c) { c->set_block_count(-1); }), kInvalid);
  EXPECT_EQ(with([](auto* c) {
              c->set_block_count(std::numeric_limits<int32_t>::max());
            }),
            kInvalid);
  EXPECT_EQ(with([](auto* c) { c->set_first_block(-1); }), kInvalid);
  EXPECT_EQ(with([](auto* c) {
              c->set_first_block(std::numeric_limits<int64_t>::max());
            }),
            kInvalid);
  EXPECT_EQ(with([](auto* c) { c->set_first_block(75); }), kInvalid);
  EXPECT_EQ(with([](auto* c) { c->set_codec(v1::CODEC_UNSPECIFIED); }),
            kInvalid);
}

TEST_F(ParameterServiceTest, AValueThatIsNotFiniteRefusesTheContribution) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                          -std::numeric_limits<float>::infinity()}) {
    Begin(SmallRun());
    gradient_[12345] = bad;
    EXPECT_EQ(PushChunk(Chunk(0, 10)), StatusCode::INVALID_ARGUMENT);
    EXPECT_TRUE(IsRefused());
  }
}

TEST_F(ParameterServiceTest, WhatComesAfterTheLastBlockRefusesNothing) {
  auto push = Open();
  push->Send(cluster_->Header(info_, 0));
  push->Read();
  push->Send(Chunk(0, 40));
  push->Send(Chunk(40, BlockCount()));
  gradient_[5] = std::numeric_limits<float>::quiet_NaN();
  push->Send(Chunk(0, 10));
  push->HalfClose();
  push->Finish();
  const auto report = cluster_->WaitForReport(
      0, [](const v1::ShardReport& r) { return r.stored_size() == 1; });
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->refused_size(), 0);
}

TEST_F(ParameterServiceTest, ANormBeyondTheBoundRefusesTheContribution) {
  v1::Run run = SmallRun();
  run.mutable_spec()->mutable_outer()->set_contribution_norm_max(1.0);
  Begin(run);
  const absl::Status pushed = cluster_->Push(info_, gradient_);
  EXPECT_TRUE(absl::IsInvalidArgument(pushed)) << pushed;
  EXPECT_TRUE(IsRefused());
}

TEST_F(ParameterServiceTest, TheOrderOfMessagesIsKept) {
  {
    auto push = Open();
    push->Send(Chunk(0, 10));
    EXPECT_EQ(push->Finish().error_code(), StatusCode::INVALID_ARGUMENT);
  }
  {
    auto push = Open();
    push->Send(v1::PushOuterGradientRequest());
    EXPECT_EQ(push->Finish().error_code(), StatusCode::INVALID_ARGUMENT);
  }
  {
    auto push = Open();
    push->HalfClose();
    EXPECT_EQ(push->Finish().error_code(), StatusCode::INVALID_ARGUMENT);
  }
  {
    auto push = Open();
    push->Send(cluster_->Header(info_, 0));
    push->Send(cluster_->Header(info_, 0));
    EXPECT_EQ(push->Finish().error_code(), StatusCode::INVALID_ARGUMENT);
  }
  // A chunk of another key.
  v1::Chunk chunk = Chunk(0, 10);
  chunk.mutable_key()->set_seq(9);
  SumChunk(chunk);
  // While the stream before is going, this one may be told to push again.
  StatusCode code = PushChunk(chunk);
  while (code == StatusCode::UNAVAILABLE) code = PushChunk(chunk);
  EXPECT_EQ(code, StatusCode::INVALID_ARGUMENT);
  // None of these refuse the contribution.
  EXPECT_TRUE(cluster_->Push(info_, gradient_).ok());
}

TEST_F(ParameterServiceTest, WrongHeadersAreErrorsThatSayWhatToDo) {
  const auto with = [this](auto change) {
    v1::PushHeader header = cluster_->Header(info_, 0);
    change(&header);
    return PushHeader(header);
  };
  EXPECT_EQ(with([](auto* h) { h->set_run_id("other"); }),
            StatusCode::NOT_FOUND);
  EXPECT_EQ(with([](auto* h) { h->set_run_id("../../etc"); }),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(with([](auto* h) { h->set_island_id(""); }),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(with([](auto* h) { h->set_island_epoch(0); }), StatusCode::ABORTED);
  EXPECT_EQ(with([](auto* h) { h->set_layout_fingerprint(1); }),
            StatusCode::ABORTED);
  EXPECT_EQ(with([](auto* h) { h->set_shard(1); }), StatusCode::ABORTED);
  EXPECT_EQ(with([](auto* h) { h->clear_info(); }), StatusCode::ABORTED);
  EXPECT_EQ(with([](auto* h) { h->mutable_info()->clear_codec(); }),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(PushHeader(cluster_->Header(info_, 0), ""),
            StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(PushHeader(cluster_->Header(info_, 0), TestCluster::Secret(1)),
            StatusCode::UNAUTHENTICATED);
}

TEST_F(ParameterServiceTest, WhoIsPutOutPushesNoMore) {
  auto push = Open();
  push->Send(cluster_->Header(info_, 0));
  ASSERT_TRUE(push->Read().has_value());
  auto& members = *cluster_->plan().mutable_members();
  ASSERT_EQ(members.Get(0).slot(), 0);
  const v1::PlanMember member = members.Get(0);
  members.DeleteSubrange(0, 1);
  cluster_->Publish();
  // The stream ends without a message.
  const grpc::Status ended = push->Finish();
  EXPECT_EQ(ended.error_code(), StatusCode::FAILED_PRECONDITION);
  const auto reason = GetReason(rpc::FromGrpc(ended));
  ASSERT_TRUE(reason.has_value());
  EXPECT_EQ(reason->reason, "NOT_A_MEMBER");
  // Its blocks are not asked for again when the island returns.
  *members.Add() = member;
  cluster_->Publish();
  ASSERT_TRUE(cluster_->WaitForPlan(0).ok());
  EXPECT_TRUE(cluster_->Push(info_, gradient_).ok());
}

TEST_F(ParameterServiceTest, UnknownFieldsAreLetThrough) {
  v1::PushOuterGradientRequest request;
  *request.mutable_header() = cluster_->Header(info_, 0);
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(99, 7);
  auto push = Open();
  push->Send(request);
  EXPECT_TRUE(push->Read().has_value());
  request.Clear();
  *request.mutable_chunk() = Chunk(0, 40);
  request.mutable_chunk()
      ->GetReflection()
      ->MutableUnknownFields(request.mutable_chunk())
      ->AddLengthDelimited(14, "new");
  push->Send(request);
  push->Send(Chunk(40, BlockCount()));
  bool stored = false;
  EXPECT_TRUE(push->Finish(&stored).ok());
  EXPECT_TRUE(stored);
}

TEST_F(ParameterServiceTest, GarbageIsAnErrorAndNotACrash) {
  grpc::GenericStub stub(grpc::CreateChannel(
      cluster_->server(0).address(), grpc::InsecureChannelCredentials()));
  const std::vector<std::string> garbage = {
      "\xff\xff\xff\xff",
      std::string("\x0a\xff\xff\xff\xff\x0f", 6),
      std::string("\x7a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 11),
      std::string("\x7a\x05\x7a\xff\xff\xff\x7f", 7),
      std::string(1000, '\x7a'),
      std::string(100000, '\0')};
  for (const char* method : {"/atoll.v1.ParameterService/PushOuterGradient",
                             "/atoll.v1.ParameterService/PullParameters",
                             "/atoll.v1.ParameterService/PullKept",
                             "/atoll.v1.ParameterService/ImportParameters"}) {
    for (const std::string& bytes : garbage) {
      grpc::ClientContext context;
      grpc::CompletionQueue queue;
      void* tag;
      bool ok;
      auto call = stub.PrepareCall(&context, method, &queue);
      call->StartCall(nullptr);
      queue.Next(&tag, &ok);
      grpc::Slice slice(bytes);
      call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
      queue.Next(&tag, &ok);
      call->WritesDone(nullptr);
      queue.Next(&tag, &ok);
      grpc::Status status;
      call->Finish(&status, nullptr);
      queue.Next(&tag, &ok);
      EXPECT_FALSE(status.ok()) << method;
    }
  }
  EXPECT_TRUE(cluster_->Push(info_, gradient_).ok());
}

// Dropped by a plan after its record and before the report.
TEST_F(ParameterServiceTest, WhatIsDroppedAsItIsStoredIsNotReported) {
  Begin(SmallRun(), /*finish_thread_count=*/1);
  Notification dropped, forgotten;
  const ScopedTestHook hook([&](absl::string_view point) {
    if (point == "contributions are dropped") dropped.Notify();
    if (point != "a contribution is stored" || dropped.HasBeenNotified()) {
      return;
    }
    *cluster_->plan().add_dropped()->mutable_key() = info_.key();
    cluster_->Publish();
    EXPECT_TRUE(dropped.WaitWithTimeout(TestCluster::kPatience));
    // No later plan names it.
    cluster_->plan().clear_dropped();
    cluster_->Publish();
    EXPECT_TRUE(cluster_->WaitForPlan(0).ok());
    forgotten.Notify();
  });
  auto push = Open();
  push->Send(cluster_->Header(info_, 0));
  push->Read();
  push->Send(Chunk(0, 40));
  push->Send(Chunk(40, BlockCount()));
  EXPECT_EQ(push->Finish().error_code(), StatusCode::ABORTED);
  ASSERT_TRUE(forgotten.WaitWithTimeout(TestCluster::kPatience));
  // The same thread finishes this one later.
  const std::vector<float> other = cluster_->Gradient(0, 1, 0);
  ASSERT_TRUE(cluster_->Push(cluster_->Info(0, 1, 0, other), other).ok());
  const auto report = cluster_->WaitForReport(0, [](const auto& r) {
    return std::any_of(r.stored().begin(), r.stored().end(),
                       [](const v1::StoredContribution& stored) {
                         return stored.info().key().slot() == 1;
                       });
  });
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->stored_size(), 1) << report->DebugString();
  cluster_->Stop(0);
}

// The dropping thread is busy with earlier work.
TEST_F(ParameterServiceTest, WhatIsAboutToBeDroppedIsNotSaidToBeStored) {
  Begin(SmallRun(), /*finish_thread_count=*/1);
  const std::vector<float> other = cluster_->Gradient(0, 1, 0);
  const v1::ContributionInfo other_info = cluster_->Info(0, 1, 0, other);
  ASSERT_TRUE(cluster_->Push(other_info, other).ok());
  const auto digest = cluster_->Seal(0, 0, {other_info});
  ASSERT_TRUE(digest.ok()) << digest.status();
  Notification busy, done;
  const ScopedTestHook hook([&](absl::string_view point) {
    if (point == "a commit is persisted") {
      busy.Notify();
      EXPECT_TRUE(done.WaitWithTimeout(TestCluster::kPatience));
    }
    if (point != "a contribution is stored" || done.HasBeenNotified()) return;
    *cluster_->plan().add_dropped()->mutable_key() = info_.key();
    cluster_->Publish();
    EXPECT_TRUE(cluster_->WaitForPlan(0).ok());
  });
  auto push = Open();
  push->Send(cluster_->Header(info_, 0));
  push->Read();
  push->Send(Chunk(0, 40));
  cluster_->AddCommit(0, 0, *digest);
  cluster_->Publish();
  ASSERT_TRUE(busy.WaitWithTimeout(TestCluster::kPatience));
  push->Send(Chunk(40, BlockCount()));
  EXPECT_EQ(push->Finish().error_code(), StatusCode::ABORTED);
  done.Notify();
  cluster_->Stop(0);
}

TEST_F(ParameterServiceTest, AMessageBeyondTheLimitEndsItsStreamAlone) {
  v1::Chunk chunk = Chunk(0, 10);
  chunk.mutable_payload()->resize(3 << 20);
  EXPECT_EQ(PushChunk(chunk), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(cluster_->Push(info_, gradient_).ok());
}

// --- Resuming ---------------------------------------------------------------

using Ranges = std::vector<std::pair<int64_t, int64_t>>;

class ResumeTest : public ParameterServiceTest {
 protected:
  // Sends blocks [10, 20) and [40, 50), then ends.
  void PushTwoChunksAndCut() {
    auto push = Open();
    push->Send(cluster_->Header(info_, 0));
    push->Read();
    push->Send(Chunk(10, 20));
    push->Send(Chunk(40, 50));
    push->HalfClose();
    EXPECT_EQ(push->Finish().error_code(), StatusCode::UNAVAILABLE);
  }

  const Ranges kRest = {{0, 10}, {20, 40}, {50, 79}};
};

TEST_F(ResumeTest, AfterACutOnlyTheRestIsAskedFor) {
  PushTwoChunksAndCut();
  EXPECT_EQ(MissingNow(), kRest);
  EXPECT_TRUE(cluster_->Push(info_, gradient_).ok());
}

TEST_F(ResumeTest, AfterARestartOnlyTheRestIsAskedFor) {
  PushTwoChunksAndCut();
  cluster_->Stop(0);
  ASSERT_TRUE(cluster_->Start(0).ok());
  ASSERT_TRUE(cluster_->Begin().ok());
  stub_ = cluster_->Stub(0);
  EXPECT_EQ(MissingNow(), kRest);
  EXPECT_TRUE(cluster_->Push(info_, gradient_).ok());
}

TEST_F(ResumeTest, AfterAPowerCutWhatDidNotReachTheDiskIsAskedForAgain) {
  PushTwoChunksAndCut();
  cluster_->CutPower(0);
  ASSERT_TRUE(cluster_->Start(0).ok());
  ASSERT_TRUE(cluster_->Begin().ok());
  stub_ = cluster_->Stub(0);
  EXPECT_EQ(MissingNow(), Ranges({{0, 79}}));
  EXPECT_TRUE(cluster_->Push(info_, gradient_).ok());
}

TEST_F(ResumeTest, ASecondCopyOfABlockDoesNotCount) {
  PushTwoChunksAndCut();
  EXPECT_EQ(PushChunk(Chunk(10, 30)), StatusCode::UNAVAILABLE);
  EXPECT_EQ(MissingNow(), Ranges({{0, 10}, {30, 40}, {50, 79}}));
}

TEST_F(ResumeTest, SeveralStreamsMayCarryOneContribution) {
  auto one = Open();
  auto two = Open();
  one->Send(cluster_->Header(info_, 0));
  one->Read();
  two->Send(cluster_->Header(info_, 0));
  two->Read();
  one->Send(Chunk(0, 40));
  one->HalfClose();
  two->Send(Chunk(40, 79));
  two->HalfClose();
  bool stored_one = false, stored_two = false;
  EXPECT_TRUE(one->Finish(&stored_one).ok());
  EXPECT_TRUE(two->Finish(&stored_two).ok());
  EXPECT_TRUE(stored_one);
  EXPECT_TRUE(stored_two);
}

TEST_F(ResumeTest, TwoDigestsUnderOneKeyTheLaterIsAborted) {
  PushTwoChunksAndCut();
  v1::ContributionInfo other = info_;
  other.mutable_digest()->set_low(1);
  EXPECT_EQ(PushHeader(cluster_->Header(other, 0)), StatusCode::ABORTED);
  EXPECT_TRUE(cluster_->Push(info_, gradient_).ok());
  EXPECT_EQ(PushHeader(cluster_->Header(other, 0)), StatusCode::ABORTED);
}

// --- A full disk ------------------------------------------------------------

TEST_F(ParameterServiceTest, AFullDiskIsAnErrorAndTheRunGoesOnWithRoom) {
  // No space for a contribution without a reservation.
  cluster_->fs(0).SetCapacity(1);
  std::vector<v1::ContributionInfo> infos;
  for (int32_t slot = 0; slot < 8; ++slot) {
    for (int64_t seq = 1; seq <= 2; ++seq) {
      v1::ContributionInfo info =
          cluster_->Info(0, slot, 0, cluster_->Gradient(0, slot, 0));
      info.mutable_key()->set_seq(seq);
      infos.push_back(info);
    }
  }
  StatusCode code = StatusCode::OK;
  for (const v1::ContributionInfo& info : infos) {
    auto push = Open(TestCluster::Secret(info.key().slot()));
    push->Send(cluster_->Header(info, 0));
    if (push->Read().has_value()) {
      push->Cancel();
      push->Finish();
    } else {
      code = push->Finish().error_code();
    }
  }
  EXPECT_EQ(code, StatusCode::RESOURCE_EXHAUSTED);
  cluster_->fs(0).SetCapacity(int64_t{1} << 40);
  EXPECT_TRUE(cluster_->Push(info_, gradient_).ok());
  const auto digest = cluster_->Seal(0, 0, {info_});
  ASSERT_TRUE(digest.ok()) << digest.status();
  EXPECT_TRUE(cluster_->Commit(0, 0, *digest).ok());
}

// --- Pulls ------------------------------------------------------------------

class PullTest : public ParameterServiceTest {
 protected:
  PullTest() {
    request_.set_run_id("small");
    request_.set_fragment(0);
    request_.set_version(-1);
    request_.set_layout_fingerprint(cluster_->layout().fingerprint());
  }

  grpc::Status Pull() {
    header_.Clear();
    payload_.clear();
    grpc::ClientContext context;
    auto reader = stub_->PullParameters(&context, request_);
    v1::PullParametersResponse response;
    while (reader->Read(&response)) {
      if (response.has_header()) header_ = response.header();
      if (response.has_chunk()) {
        EXPECT_LE(response.chunk().payload().size(), 1 << 20);
        payload_ += response.chunk().payload();
      }
    }
    return reader->Finish();
  }

  StatusCode PullCode() { return Pull().error_code(); }

  v1::PullParametersRequest request_;
  v1::PullHeader header_;
  std::string payload_;
};

TEST_F(PullTest, APullHasAllBlocksAndTheirDigest) {
  ASSERT_EQ(PullCode(), StatusCode::OK);
  EXPECT_EQ(header_.version(), 0);
  ASSERT_EQ(payload_.size(),
            cluster_->layout().fragment_element_count(0) * sizeof(float));
  std::vector<float> elements(payload_.size() / sizeof(float));
  std::memcpy(elements.data(), payload_.data(), payload_.size());
  EXPECT_EQ(RangeDigest(cluster_->layout(), 0, {0, BlockCount()}, elements),
            Digest128::FromProto(header_.digest()));
  const std::string all = payload_;
  request_.mutable_range()->set_begin(50);
  request_.mutable_range()->set_end(BlockCount());
  ASSERT_EQ(PullCode(), StatusCode::OK);
  EXPECT_EQ(payload_,
            all.substr(cluster_->layout().BlockOffset(0, 50) * sizeof(float)));
}

TEST_F(PullTest, WrongRequestsAreErrors) {
  const v1::PullParametersRequest good = request_;
  const auto with = [&](auto change) {
    request_ = good;
    change(&request_);
    return PullCode();
  };
  EXPECT_EQ(with([](auto* r) { r->set_run_id("other"); }),
            StatusCode::NOT_FOUND);
  EXPECT_EQ(with([](auto* r) { r->set_fragment(2); }),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(with([](auto* r) { r->set_fragment(-1); }),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(with([](auto* r) { r->set_version(1); }),
            StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(with([](auto* r) { r->set_version(-2); }),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(with([](auto* r) { r->set_layout_fingerprint(1); }),
            StatusCode::ABORTED);
  EXPECT_EQ(with([](auto* r) { r->set_shard(3); }), StatusCode::ABORTED);
  EXPECT_EQ(with([](auto* r) { r->mutable_range()->set_begin(-1); }),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(with([](auto* r) { r->mutable_range()->set_end(1000); }),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(with([](auto* r) {
              r->mutable_range()->set_begin(5);
              r->mutable_range()->set_end(4);
            }),
            StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace atl::server
