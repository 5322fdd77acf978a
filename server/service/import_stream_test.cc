// Imports by hand: what is kept, what is refused, and what becomes version 0.

#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/service/testing/test_cluster.h"

namespace atl::server {
namespace {

using grpc::StatusCode;
using Ranges = std::vector<std::pair<int64_t, int64_t>>;

v1::Run ImportedRun() {
  v1::Run run = SmallRun();
  run.mutable_spec()->mutable_init()->set_import(true);
  return run;
}

class ImportStreamTest : public testing::Test {
 protected:
  ImportStreamTest() { Begin(ImportedRun()); }

  void Begin(const v1::Run& run) {
    stub_.reset();
    cluster_ = std::make_unique<TestCluster>(run, 1);
    EXPECT_TRUE(cluster_->StartAll().ok());
    WaitUntil(
        [](const v1::ShardReport& report) { return !report.initialized(); });
    stub_ = cluster_->Stub(0);
    model_ = cluster_->Gradient(0, 5, 5);
  }

  void WaitUntil(const std::function<bool(const v1::ShardReport&)>& done) {
    const auto report = cluster_->WaitForReport(0, done);
    EXPECT_TRUE(report.ok()) << report.status();
  }

  IndexRange AllBlocks() const {
    return {0, cluster_->layout().fragment_block_count(0)};
  }

  v1::ImportHeader Header() const {
    v1::ImportHeader header;
    header.set_run_id(ImportedRun().run_id());
    header.set_fragment(0);
    header.set_shard(0);
    header.set_layout_fingerprint(cluster_->layout().fingerprint());
    *header.mutable_digest() =
        RangeDigest(cluster_->layout(), 0, AllBlocks(), model_).ToProto();
    return header;
  }

  v1::Chunk Chunk(int64_t begin, int64_t end) const {
    const IndexRange elements =
        cluster_->layout().BlockElements(0, {begin, end});
    v1::Chunk chunk;
    chunk.mutable_key();
    chunk.set_codec(v1::CODEC_F32);
    chunk.set_first_block(begin);
    chunk.set_block_count(static_cast<int32_t>(end - begin));
    chunk.set_payload(model_.data() + elements.begin,
                      static_cast<size_t>(elements.size()) * sizeof(float));
    SumChunk(chunk);
    return chunk;
  }

  grpc::Status Import(const v1::ImportHeader& header,
                      const std::vector<v1::Chunk>& chunks) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::seconds(20));
    auto stream = stub_->ImportParameters(&context);
    v1::ImportParametersRequest request;
    *request.mutable_header() = header;
    stream->Write(request);
    for (const v1::Chunk& chunk : chunks) {
      *request.mutable_chunk() = chunk;
      stream->Write(request);
    }
    stream->WritesDone();
    v1::ImportParametersResponse answer;
    missing_.clear();
    stored_ = false;
    while (stream->Read(&answer)) {
      for (const v1::BlockRange& range : answer.missing()) {
        missing_.emplace_back(range.begin(), range.end());
      }
      stored_ |= answer.stored();
    }
    return stream->Finish();
  }
  StatusCode ImportCode(const v1::ImportHeader& header,
                        const std::vector<v1::Chunk>& chunks) {
    return Import(header, chunks).error_code();
  }
  std::vector<v1::Chunk> AllChunks() const {
    return {Chunk(0, 40), Chunk(40, AllBlocks().end)};
  }

  void Restart() {
    ASSERT_TRUE(cluster_->Start(0).ok());
    WaitUntil(
        [](const v1::ShardReport& report) { return !report.initialized(); });
    stub_ = cluster_->Stub(0);
  }

  // Imports fragment 1, one short tensor.
  void ImportTheRestAndCheck() {
    const auto other = cluster_->Gradient(1, 5, 5);
    EXPECT_TRUE(cluster_->Import(1, other).ok());
    const absl::Status begun = cluster_->Begin();
    ASSERT_TRUE(begun.ok()) << begun;
    const auto pulled = cluster_->Pull(0, 0);
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    EXPECT_EQ(*pulled, model_);
    EXPECT_EQ(*cluster_->Pull(1, 0), other);
    const absl::Status round = cluster_->Round(0, 2);
    EXPECT_TRUE(round.ok()) << round;
  }

  std::unique_ptr<TestCluster> cluster_;
  std::unique_ptr<v1::ParameterService::Stub> stub_;
  std::vector<float> model_;
  Ranges missing_;
  bool stored_ = false;
};

TEST_F(ImportStreamTest, WhatIsWholeBecomesVersion0AndTheRunGoesOn) {
  const grpc::Status status = Import(Header(), AllChunks());
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(stored_);
  EXPECT_EQ(missing_, Ranges({{0, AllBlocks().end}}));
  ImportTheRestAndCheck();
  // Repeats stay `stored`.
  EXPECT_EQ(ImportCode(Header(), {}), StatusCode::OK);
  EXPECT_TRUE(stored_);
}

TEST_F(ImportStreamTest, AfterACutAndARestartOnlyTheRestIsAskedFor) {
  EXPECT_EQ(ImportCode(Header(), {Chunk(10, 20), Chunk(40, 50)}),
            StatusCode::UNAVAILABLE);
  const Ranges rest = {{0, 10}, {20, 40}, {50, 79}};
  EXPECT_EQ(ImportCode(Header(), {}), StatusCode::UNAVAILABLE);
  EXPECT_EQ(missing_, rest);
  cluster_->Stop(0);
  Restart();
  EXPECT_EQ(ImportCode(Header(), {}), StatusCode::UNAVAILABLE);
  EXPECT_EQ(missing_, rest);
  EXPECT_TRUE(cluster_->Import(0, model_).ok());
  ImportTheRestAndCheck();
}

TEST_F(ImportStreamTest, WhatIsStoredOutlivesAPowerCut) {
  EXPECT_EQ(ImportCode(Header(), AllChunks()), StatusCode::OK);
  cluster_->CutPower(0);
  Restart();
  EXPECT_EQ(ImportCode(Header(), {}), StatusCode::OK);
  EXPECT_TRUE(stored_);
  ImportTheRestAndCheck();
}

TEST_F(ImportStreamTest, OtherContentIsRefusedAtEveryStage) {
  const v1::ImportHeader mine = Header();
  v1::ImportHeader other = mine;
  other.mutable_digest()->set_low(1);
  EXPECT_EQ(ImportCode(mine, {Chunk(0, 10)}), StatusCode::UNAVAILABLE);
  EXPECT_EQ(ImportCode(other, {}), StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(ImportCode(mine, AllChunks()), StatusCode::OK);
  EXPECT_EQ(ImportCode(other, {}), StatusCode::ALREADY_EXISTS);
  ImportTheRestAndCheck();
  EXPECT_EQ(ImportCode(other, {}), StatusCode::ALREADY_EXISTS);
}

TEST_F(ImportStreamTest, BlocksThatAreNotTheHeadersAreForgotten) {
  v1::ImportHeader header = Header();
  model_[77] += 1;
  const grpc::Status status = Import(header, AllChunks());
  EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(status.error_message().find("digest"), std::string::npos)
      << status.error_message();
  EXPECT_EQ(ImportCode(Header(), AllChunks()), StatusCode::OK);
  ImportTheRestAndCheck();
}

TEST_F(ImportStreamTest, AValueThatIsNotFiniteIsRefusedWithItsTensor) {
  const float good = model_[12345];
  model_[12345] = std::numeric_limits<float>::infinity();
  const grpc::Status status = Import(Header(), AllChunks());
  EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
  const RunLayout& layout = cluster_->layout();
  int64_t block = 0;
  while (layout.BlockElements(0, {0, block + 1}).end <= 12345) ++block;
  const std::string tensor = layout.BlockTensor(0, block).name;
  EXPECT_NE(status.error_message().find(tensor), std::string::npos)
      << status.error_message();
  model_[12345] = good;
  EXPECT_EQ(ImportCode(Header(), AllChunks()), StatusCode::OK);
  ImportTheRestAndCheck();
}

TEST_F(ImportStreamTest, ARunThatMakesItsVersion0TakesNoImport) {
  Begin(SmallRun());
  EXPECT_EQ(ImportCode(Header(), AllChunks()), StatusCode::INVALID_ARGUMENT);
}

TEST_F(ImportStreamTest, WrongHeadersAreErrors) {
  const auto with = [this](auto change) {
    v1::ImportHeader header = Header();
    change(&header);
    return ImportCode(header, {});
  };
  EXPECT_EQ(with([](auto* h) { h->set_fragment(2); }),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(with([](auto* h) { h->set_fragment(-1); }),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(with([](auto* h) { h->set_shard(1); }), StatusCode::ABORTED);
  EXPECT_EQ(with([](auto* h) { h->set_layout_fingerprint(1); }),
            StatusCode::ABORTED);
  EXPECT_EQ(with([](auto* h) { h->set_run_id("other"); }),
            StatusCode::NOT_FOUND);
  EXPECT_EQ(with([](auto* h) { h->set_run_id("../.."); }),
            StatusCode::INVALID_ARGUMENT);
  cluster_->plan().set_run_state(v1::RUN_STATE_CANCELLED);
  cluster_->Publish();
  // Until the plan arrives.
  StatusCode code = StatusCode::OK;
  for (int i = 0; i < 1000 && code != StatusCode::FAILED_PRECONDITION; ++i) {
    code = with([](auto*) {});
  }
  EXPECT_EQ(code, StatusCode::FAILED_PRECONDITION);
}

}  // namespace
}  // namespace atl::server
