#include "server/client/parameter_client.h"

#include <algorithm>
#include <cstring>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/codec/codec.h"
#include "base/codec/f32_bytes.h"
#include "base/layout/encoded_layout.h"
#include "base/rpc/call.h"
#include "base/status/refusal.h"
#include "gtest/gtest.h"
#include "server/client/testing/loopback_parameter_server.h"

namespace atl::server {
namespace {

using Fault = LoopbackParameterServer::Fault;

constexpr int64_t kBlock = 4096;

class ParameterClientTest : public ::testing::Test {
 protected:
  ParameterClientTest() : seed_(std::random_device{}()), random_(seed_) {
    std::cout << "seed " << seed_ << std::endl;
  }

  void UseLayout(const std::vector<std::vector<int64_t>>& fragments) {
    v1::Layout layout;
    layout.set_fragment_count(static_cast<int32_t>(fragments.size()));
    for (size_t f = 0; f < fragments.size(); ++f) {
      for (const int64_t size : fragments[f]) {
        v1::TensorSpec* tensor = layout.add_tensors();
        tensor->set_name(absl::StrCat("t", layout.tensors_size()));
        tensor->add_shape(size);
        tensor->set_dtype(v1::DATA_TYPE_F32);
        tensor->set_tensor_class(v1::TENSOR_CLASS_MATRIX);
        tensor->set_fragment(static_cast<int32_t>(f));
        tensor->mutable_init()->set_kind(v1::INIT_KIND_CONSTANT);
      }
    }
    layout_ = std::make_unique<RunLayout>(*RunLayout::Create(layout));
  }

  void StartServers(int32_t count) {
    for (int32_t shard = 0; shard < count; ++shard) {
      servers_.push_back(
          std::make_unique<LoopbackParameterServer>(*layout_, shard, count));
    }
    ParameterClientOptions options;
    options.run_id = "run-1";
    options.shard_count = count;
    options.retry.initial_delay = absl::Milliseconds(1);
    options.retry.max_delay = absl::Milliseconds(20);
    options.seed = seed_;
    options.run_uid = run_uid_;
    options.stall_timeout = stall_timeout_;
    options.caps = caps_;
    options.whole_units = whole_units_;
    options.stream_count = stream_count_;
    client_ = *MakeParameterClient(options, *layout_);
    client_->SetRoutes(Routes());
    client_->SetIdentity({"island-1", 3, "\x01\xab"});
  }

  ShardRoutes Routes() const {
    ShardRoutes routes;
    routes.placement_epoch = 5;
    for (size_t shard = 0; shard < servers_.size(); ++shard) {
      v1::ShardPlacement placement;
      placement.set_shard(static_cast<int32_t>(shard));
      placement.set_address(servers_[shard]->address());
      routes.shards.push_back(placement);
    }
    return routes;
  }

  std::vector<float> Elements(int32_t fragment) {
    std::vector<float> elements(layout_->fragment_element_count(fragment));
    std::normal_distribution<float> normal;
    for (float& element : elements) element = normal(random_);
    return elements;
  }

  static v1::ContributionInfo Info(int32_t fragment, int64_t seq) {
    v1::ContributionInfo info;
    info.mutable_key()->set_run_epoch(1);
    info.mutable_key()->set_fragment(fragment);
    info.mutable_key()->set_slot(2);
    info.mutable_key()->set_seq(seq);
    info.set_codec(v1::CODEC_F32);
    info.set_token_count(17);
    return info;
  }

  static CallBounds Soon() {
    CallBounds bounds;
    bounds.deadline = absl::Now() + absl::Minutes(2);
    return bounds;
  }

  TransferOutcome PushAsNew(const v1::ContributionInfo& info,
                            const std::vector<float>& elements) {
    CallBounds bounds = Soon();
    bounds.is_new = true;
    return Push(info, elements, bounds);
  }

  // The shards' parts of a contribution, joined.
  std::vector<float> Held(int32_t fragment, int64_t seq) const {
    std::vector<float> elements;
    for (const auto& server : servers_) {
      const auto received = server->received();
      const auto found = received.find({fragment, seq});
      if (found == received.end()) continue;
      EXPECT_TRUE(found->second.stored);
      const std::vector<float> part = ToFloats(found->second.encoded);
      elements.insert(elements.end(), part.begin(), part.end());
    }
    return elements;
  }

  static std::vector<float> ToFloats(const std::vector<char>& bytes) {
    std::vector<float> elements(bytes.size() / sizeof(float));
    std::memcpy(elements.data(), bytes.data(), bytes.size());
    return elements;
  }

  TransferOutcome Push(const v1::ContributionInfo& info,
                       const std::vector<float>& elements,
                       const CallBounds& bounds) {
    return client_->Push(info, codec::F32Bytes(elements), bounds);
  }

  Digest128 ComputeDigest(int32_t fragment,
                          const std::vector<float>& elements) {
    return RangeDigest(*layout_, fragment,
                       {0, layout_->fragment_block_count(fragment)}, elements);
  }

  void ServeEverywhere(int32_t fragment, int64_t version,
                       const std::vector<float>& elements) {
    for (auto& server : servers_) {
      server->SetVersion(fragment, version, elements);
    }
  }

  const uint32_t seed_;
  std::mt19937 random_;
  absl::Duration stall_timeout_ = absl::Seconds(60);
  BandwidthCaps caps_;
  bool whole_units_ = false;
  int stream_count_ = 1;
  std::string run_uid_;
  std::unique_ptr<RunLayout> layout_;
  std::vector<std::unique_ptr<LoopbackParameterServer>> servers_;
  std::unique_ptr<ParameterClient> client_;
};

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// --- Push --------------------------------------------------------------------

TEST_F(ParameterClientTest, PushesEveryBlockToTheShardThatHoldsIt) {
  UseLayout({{300 * kBlock + 7, 12, 900 * kBlock - 1, 4097}, {5000, 1}});
  StartServers(3);
  for (int32_t fragment : {0, 1}) {
    const std::vector<float> elements = Elements(fragment);
    const absl::Time begin = absl::Now();
    const TransferOutcome outcome =
        Push(Info(fragment, 9), elements, Soon());
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    EXPECT_TRUE(SameBits(Held(fragment, 9), elements));
    for (const ShardOutcome& shard : outcome.shards) {
      EXPECT_EQ(shard.attempt_count, 1);
      EXPECT_GE(shard.last_payload, begin);
      EXPECT_LE(shard.last_payload, absl::Now());
    }
  }
  EXPECT_EQ(client_->counters().sent_payload_bytes,
            layout_->element_count() * 4);
}

TEST_F(ParameterClientTest, PushesTheBytesOfEveryCodecInWholeBlocks) {
  UseLayout({{300 * kBlock + 7, 12, 900 * kBlock - 1, 4097}});
  StartServers(3);
  int64_t seq = 0;
  int64_t sent = 0;
  for (const codec::CodecId id : codec::AllCodecs()) {
    const EncodedLayout layout(*layout_, 0, codec::GetCodec(id));
    std::vector<char> encoded(layout.byte_count());
    for (char& byte : encoded) byte = static_cast<char>(random_());
    v1::ContributionInfo info = Info(0, ++seq);
    info.set_codec(static_cast<v1::Codec>(id));
    const TransferOutcome outcome = client_->Push(info, encoded, Soon());
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    std::vector<char> held;
    for (const auto& server : servers_) {
      const std::vector<char> part = server->received().at({0, seq}).encoded;
      held.insert(held.end(), part.begin(), part.end());
    }
    EXPECT_TRUE(held == encoded) << codec::CodecName(id);
    sent += layout.byte_count();
    EXPECT_EQ(client_->counters().sent_payload_bytes, sent);
    encoded.pop_back();
    info.mutable_key()->set_seq(++seq);
    EXPECT_EQ(client_->Push(info, encoded, Soon()).status.code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(ParameterClientTest, SaysWhoPushesWhatAndWhere) {
  UseLayout({{2 * kBlock}});
  StartServers(2);
  ASSERT_TRUE(Push(Info(0, 4), Elements(0), Soon()).status.ok());
  for (int32_t shard : {0, 1}) {
    const v1::PushHeader header = servers_[shard]->received().at({0, 4}).header;
    EXPECT_EQ(header.run_id(), "run-1");
    EXPECT_EQ(header.island_id(), "island-1");
    EXPECT_EQ(header.island_epoch(), 3);
    EXPECT_EQ(header.info().SerializeAsString(),
              Info(0, 4).SerializeAsString());
    EXPECT_EQ(header.layout_fingerprint(), layout_->fingerprint());
    EXPECT_EQ(header.placement_epoch(), 5);
    EXPECT_EQ(header.shard(), shard);
    EXPECT_EQ(servers_[shard]->session(), "01ab");
  }
}

TEST_F(ParameterClientTest, LeavesOutShardsThatHoldNothingOfTheFragment) {
  UseLayout({{10}});
  StartServers(3);
  const TransferOutcome outcome =
      Push(Info(0, 1), Elements(0), Soon());
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.shards.size(), 1);
  int stream_count = 0;
  for (const auto& server : servers_) stream_count += server->stream_count();
  EXPECT_EQ(stream_count, 1);
}

TEST_F(ParameterClientTest, PushesOnlyWhatIsMissingAfterAStreamBroke) {
  UseLayout({{1024 * kBlock}});
  StartServers(1);
  servers_[0]->FailNext({Fault::kEnd, 2, absl::UnavailableError("oops")});
  servers_[0]->FailNext({Fault::kEnd, 1, absl::ResourceExhaustedError("full")});
  const std::vector<float> elements = Elements(0);
  const TransferOutcome outcome = Push(Info(0, 1), elements, Soon());
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_TRUE(SameBits(Held(0, 1), elements));
  EXPECT_EQ(outcome.shards[0].attempt_count, 3);
  EXPECT_EQ(servers_[0]->payload_bytes(), 1024 * kBlock * 4);
}

TEST_F(ParameterClientTest, SendsNothingAgainThatIsStored) {
  UseLayout({{600 * kBlock}});
  StartServers(2);
  const std::vector<float> elements = Elements(0);
  ASSERT_TRUE(Push(Info(0, 1), elements, Soon()).status.ok());
  const int chunk_count =
      servers_[0]->chunk_count() + servers_[1]->chunk_count();
  ASSERT_TRUE(Push(Info(0, 1), elements, Soon()).status.ok());
  EXPECT_EQ(servers_[0]->chunk_count() + servers_[1]->chunk_count(),
            chunk_count);
}

TEST_F(ParameterClientTest, WhatIsNewDoesNotWaitForTheAnswerToItsHeader) {
  UseLayout({{1024 * kBlock}});
  StartServers(1);
  servers_[0]->FailNext({Fault::kLateAnswer, 3, {}});
  const std::vector<float> elements = Elements(0);
  const TransferOutcome outcome = PushAsNew(Info(0, 1), elements);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_TRUE(SameBits(Held(0, 1), elements));
  EXPECT_EQ(outcome.shards[0].attempt_count, 1);
  EXPECT_EQ(servers_[0]->payload_bytes(), 1024 * kBlock * 4);
}

TEST_F(ParameterClientTest, WhatIsNewIsAskedForAfterAStreamBroke) {
  UseLayout({{1024 * kBlock}});
  StartServers(1);
  servers_[0]->FailNext({Fault::kEnd, 2, absl::UnavailableError("oops")});
  servers_[0]->FailNext({Fault::kEnd, 0, absl::UnavailableError("oops")});
  const std::vector<float> elements = Elements(0);
  const TransferOutcome outcome = PushAsNew(Info(0, 1), elements);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_TRUE(SameBits(Held(0, 1), elements));
  EXPECT_EQ(servers_[0]->payload_bytes(), 1024 * kBlock * 4);
  // A wrong `is_new` only sends too much.
  EXPECT_TRUE(PushAsNew(Info(0, 1), elements).status.ok());
  EXPECT_TRUE(SameBits(Held(0, 1), elements));
}

TEST_F(ParameterClientTest, APushBeginsWithTheChunksThatTheOneBeforeCameTo) {
  UseLayout({{1024 * kBlock}});
  StartServers(1);
  const std::vector<float> elements = Elements(0);
  ASSERT_TRUE(Push(Info(0, 1), elements, Soon()).status.ok());
  const int first_count = servers_[0]->chunk_count();
  ASSERT_TRUE(Push(Info(0, 2), elements, Soon()).status.ok());
  // Growing from 16 KiB would take four quick chunks for each doubling.
  EXPECT_LT(servers_[0]->chunk_count() - first_count, first_count);
}

TEST_F(ParameterClientTest, TwoClientsDrawOtherWaits) {
  EXPECT_NE(ParameterClientOptions().seed, ParameterClientOptions().seed);
}

TEST_F(ParameterClientTest, TriesAgainWhatMayPass) {
  UseLayout({{2 * kBlock}});
  StartServers(2);
  for (const absl::StatusCode code :
       {absl::StatusCode::kUnavailable, absl::StatusCode::kResourceExhausted,
        absl::StatusCode::kDataLoss, absl::StatusCode::kFailedPrecondition,
        absl::StatusCode::kNotFound, absl::StatusCode::kDeadlineExceeded,
        absl::StatusCode::kCancelled}) {
    servers_[1]->FailNext({Fault::kEnd, 0, absl::Status(code, "for now")});
  }
  EXPECT_TRUE(Push(Info(0, 1), Elements(0), Soon()).status.ok());
}

TEST_F(ParameterClientTest, EndsEverythingWhenAShardRefuses) {
  UseLayout({{2 * kBlock}});
  StartServers(2);
  int64_t seq = 0;
  for (const absl::StatusCode code :
       {absl::StatusCode::kInvalidArgument, absl::StatusCode::kAborted,
        absl::StatusCode::kPermissionDenied,
        absl::StatusCode::kUnauthenticated}) {
    servers_[0]->FailNext({Fault::kHang, 0, {}});
    servers_[1]->FailNext({Fault::kEnd, 0, absl::Status(code, "no")});
    const TransferOutcome outcome =
        Push(Info(0, ++seq), Elements(0), Soon());
    EXPECT_EQ(outcome.status.code(), code) << outcome.status;
    ASSERT_EQ(outcome.shards.size(), 2);
    EXPECT_EQ(outcome.shards[0].status.code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(outcome.shards[1].status.code(), code);
    EXPECT_EQ(outcome.shards[1].attempt_count, 1);
  }
}

TEST_F(ParameterClientTest, EndsIfAShardStaysThatOfAnotherRun) {
  UseLayout({{kBlock}});
  StartServers(1);
  const absl::Status other = Refuse(absl::StatusCode::kFailedPrecondition,
                                    "OTHER_RUN", "another run");
  // A server that learns of the run soon delays a push and does not end it.
  for (int i = 0; i < 6; ++i) servers_[0]->FailNext({Fault::kEnd, 0, other});
  EXPECT_TRUE(Push(Info(0, 1), Elements(0), Soon()).status.ok());
  for (int i = 0; i < 20; ++i) servers_[0]->FailNext({Fault::kEnd, 0, other});
  const TransferOutcome outcome = Push(Info(0, 2), Elements(0), Soon());
  EXPECT_TRUE(absl::IsFailedPrecondition(outcome.status)) << outcome.status;
  ASSERT_TRUE(GetReason(outcome.status).has_value()) << outcome.status;
  EXPECT_EQ(GetReason(outcome.status)->reason, "OTHER_RUN");
}

TEST_F(ParameterClientTest, EveryCallNamesTheRunByItsUid) {
  UseLayout({{2 * kBlock}});
  run_uid_ = "uid-1";
  StartServers(1);
  const std::vector<float> elements = Elements(0);
  ASSERT_TRUE(Push(Info(0, 4), elements, Soon()).status.ok());
  ASSERT_TRUE(client_->Import(0, elements, Soon()).status.ok());
  ServeEverywhere(0, 1, elements);
  std::vector<float> out(elements.size());
  ASSERT_TRUE(client_
                  ->Pull(0, 1, ComputeDigest(0, elements), absl::MakeSpan(out),
                         Soon())
                  .status.ok());
  const auto received = servers_[0]->received();
  EXPECT_EQ(received.at({0, 4}).header.run_uid(), "uid-1");
  EXPECT_EQ(received.at({0, 0}).import_header.run_uid(), "uid-1");
  EXPECT_EQ(servers_[0]->pulled_run_uid(), "uid-1");
  v1::Run run;
  run.set_run_id("run-2");
  run.set_run_uid("uid-2");
  EXPECT_EQ(MakeRunOptions(run).run_id, "run-2");
  EXPECT_EQ(MakeRunOptions(run).run_uid, "uid-2");
}

TEST_F(ParameterClientTest, GivesUpOnAChecksumThatNeverMatches) {
  UseLayout({{kBlock}});
  StartServers(1);
  for (int i = 0; i < 20; ++i) {
    servers_[0]->FailNext({Fault::kEnd, 0, absl::DataLossError("bad disk")});
  }
  const TransferOutcome outcome =
      Push(Info(0, 1), Elements(0), Soon());
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kDataLoss);
  EXPECT_LT(servers_[0]->stream_count(), 20);
}

TEST_F(ParameterClientTest, RefusesWhatDoesNotFitTheLayout) {
  UseLayout({{100}});
  StartServers(1);
  const std::vector<float> elements(100);
  const std::vector<float> other(101);
  v1::ContributionInfo no_codec = Info(0, 1);
  no_codec.clear_codec();
  for (const TransferOutcome& outcome :
       {Push(Info(0, 1), other, Soon()),
        Push(Info(1, 1), elements, Soon()),
        Push(Info(-1, 1), elements, Soon()),
        Push(no_codec, elements, Soon())}) {
    EXPECT_EQ(outcome.status.code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(servers_[0]->stream_count(), 0);
}

TEST_F(ParameterClientTest, StopsWhenToldToWhileAServerIsAway) {
  UseLayout({{kBlock}});
  StartServers(1);
  servers_[0].reset();
  std::stop_source stop;
  CallBounds bounds;
  bounds.stop = stop.get_token();
  TransferOutcome outcome;
  const std::vector<float> elements = Elements(0);
  std::thread thread(
      [&] { outcome = Push(Info(0, 1), elements, bounds); });
  stop.request_stop();
  thread.join();
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kCancelled);
  servers_.clear();
}

TEST_F(ParameterClientTest, StopsInTheMiddleOfAStreamThatDoesNotMove) {
  UseLayout({{64 * 64 * kBlock}});  // Far more than any window.
  StartServers(1);
  servers_[0]->FailNext({Fault::kHang, 1, {}});
  std::stop_source stop;
  CallBounds bounds;
  bounds.stop = stop.get_token();
  TransferOutcome outcome;
  auto elements =
      std::make_unique<std::vector<float>>(layout_->fragment_element_count(0));
  std::thread thread(
      [&] { outcome = Push(Info(0, 1), *elements, bounds); });
  EXPECT_TRUE(servers_[0]->WaitForChunks(1));
  stop.request_stop();
  thread.join();
  elements.reset();
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kCancelled);
}

TEST_F(ParameterClientTest, StopsAtItsDeadlineAndSaysWhatWasWrong) {
  UseLayout({{kBlock}});
  StartServers(1);
  ShardRoutes nowhere = Routes();
  nowhere.shards[0].clear_address();
  client_->SetRoutes(nowhere);
  CallBounds bounds;
  bounds.deadline = absl::Now() + absl::Milliseconds(500);
  const TransferOutcome outcome =
      Push(Info(0, 1), Elements(0), bounds);
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(outcome.status.message().find("shard 0 is away"), std::string::npos)
      << outcome.status;
}

TEST_F(ParameterClientTest, StopsWhenNothingMovesAndSaysWhatWasWrong) {
  UseLayout({{kBlock}});
  StartServers(1);
  ShardRoutes nowhere = Routes();
  nowhere.shards[0].clear_address();
  client_->SetRoutes(nowhere);
  CallBounds bounds;
  bounds.idle_max = absl::Milliseconds(30);
  std::vector<float> out(kBlock);
  const TransferOutcome outcome =
      client_->Pull(0, 1, std::nullopt, absl::MakeSpan(out), bounds);
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(outcome.status.message().find("nothing has moved for 30ms"),
            std::string::npos)
      << outcome.status;
  EXPECT_NE(outcome.status.message().find("shard 0 is away"), std::string::npos)
      << outcome.status;
}

// A shard without an address, and one that accepts the call and never answers.
TEST_F(ParameterClientTest, SaysSoonWhatItWaitsFor) {
  for (const bool is_away : {true, false}) {
    SCOPED_TRACE(is_away);
    UseLayout({{kBlock, kBlock}});
    servers_.clear();
    StartServers(2);
    if (is_away) {
      ShardRoutes routes = Routes();
      routes.shards[1].clear_address();
      client_->SetRoutes(routes);
    } else {
      servers_[1]->FailNext({.kind = Fault::kHang});
    }
    std::stop_source stop;
    CallBounds bounds;
    bounds.stop = stop.get_token();
    std::vector<TransferWait> said;
    bounds.on_waiting = [&](const TransferWait& waiting) {
      said.push_back(waiting);
      stop.request_stop();
    };
    const std::vector<float> elements = Elements(0);
    ServeEverywhere(0, 1, elements);
    std::vector<float> out(elements.size());
    client_->Pull(0, 1, std::nullopt, absl::MakeSpan(out), bounds);
    ASSERT_EQ(said.size(), 1);
    EXPECT_EQ(said[0].shard, 1);
    EXPECT_GE(said[0].span, kWaitingAfter);
    EXPECT_EQ(said[0].last_error.ok(), !is_away) << said[0].last_error;
  }
}

TEST_F(ParameterClientTest, FollowsAShardToItsNewAddress) {
  UseLayout({{kBlock}});
  StartServers(1);
  const ShardRoutes here = Routes();
  ShardRoutes away = here;
  away.shards[0].clear_address();
  client_->SetRoutes(away);
  const std::vector<float> elements = Elements(0);
  TransferOutcome outcome;
  std::thread thread(
      [&] { outcome = Push(Info(0, 1), elements, Soon()); });
  client_->SetRoutes(here);
  thread.join();
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
}

TEST_F(ParameterClientTest, GivesUpAStreamThatDoesNotMoveAndOpensAnother) {
  stall_timeout_ = absl::Milliseconds(500);
  UseLayout({{3 * 64 * kBlock}});
  StartServers(1);
  servers_[0]->FailNext({Fault::kHang, 1, {}});
  const std::vector<float> elements = Elements(0);
  const TransferOutcome outcome = Push(Info(0, 1), elements, Soon());
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_TRUE(SameBits(Held(0, 1), elements));
}

// --- Pull --------------------------------------------------------------------

TEST_F(ParameterClientTest, PullsWhatTheShardsServe) {
  UseLayout({{300 * kBlock + 7, 12, 900 * kBlock - 1, 4097}, {5000, 1}});
  StartServers(3);
  for (int32_t fragment : {0, 1}) {
    const std::vector<float> elements = Elements(fragment);
    ServeEverywhere(fragment, 6, elements);
    std::vector<float> out(elements.size());
    const TransferOutcome outcome =
        client_->Pull(fragment, 6, ComputeDigest(fragment, elements),
                      absl::MakeSpan(out), Soon());
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    EXPECT_TRUE(SameBits(out, elements));
  }
  EXPECT_EQ(client_->counters().received_payload_bytes,
            layout_->element_count() * 4);
}

TEST_F(ParameterClientTest, APullAsksForTheChunksThatTheOneBeforeCameTo) {
  UseLayout({{1024 * kBlock}});
  StartServers(1);
  const std::vector<float> elements = Elements(0);
  ServeEverywhere(0, 1, elements);
  std::vector<float> out(elements.size());
  const auto pull = [&] {
    const TransferOutcome outcome = client_->Pull(
        0, 1, ComputeDigest(0, elements), absl::MakeSpan(out), Soon());
    EXPECT_TRUE(outcome.status.ok()) << outcome.status;
    return servers_[0]->first_chunk_bytes();
  };
  const int64_t first = pull();
  EXPECT_GT(first, 0);
  EXPECT_GT(pull(), first);
}

TEST_F(ParameterClientTest, PullsOnFromTheFirstBlockMissing) {
  UseLayout({{1024 * kBlock}});
  StartServers(1);
  const std::vector<float> elements = Elements(0);
  ServeEverywhere(0, 1, elements);
  servers_[0]->FailNext({Fault::kEnd, 2, absl::UnavailableError("oops")});
  servers_[0]->FailNext({Fault::kCorruptChecksum, 1, {}});
  servers_[0]->FailNext({Fault::kEnd, 1, absl::OkStatus()});
  std::vector<float> out(elements.size());
  const TransferOutcome outcome = client_->Pull(
      0, 1, ComputeDigest(0, elements), absl::MakeSpan(out), Soon());
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_TRUE(SameBits(out, elements));
  EXPECT_EQ(outcome.shards[0].payload_bytes, 16 << 20);
}

TEST_F(ParameterClientTest, StartsOverWhenAPartIsNotThatOfItsDigest) {
  UseLayout({{2 * kBlock}});
  StartServers(2);
  const std::vector<float> elements = Elements(0);
  ServeEverywhere(0, 1, elements);
  servers_[1]->FailNext({Fault::kCorruptDigest, -1, {}});
  std::vector<float> out(elements.size());
  const TransferOutcome outcome = client_->Pull(
      0, 1, ComputeDigest(0, elements), absl::MakeSpan(out), Soon());
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_TRUE(SameBits(out, elements));
  EXPECT_EQ(outcome.shards[1].attempt_count, 2);
}

TEST_F(ParameterClientTest, NoticesParametersThatWereNotCommitted) {
  UseLayout({{2 * kBlock}});
  StartServers(2);
  const std::vector<float> elements = Elements(0);
  ServeEverywhere(0, 1, elements);
  std::vector<float> other = elements;
  other[random_() % other.size()] += 1;
  servers_[random_() % 2]->SetVersion(0, 1, other);
  if (SameBits(other, elements)) return;
  servers_[0]->SetVersion(0, 1, other);
  servers_[1]->SetVersion(0, 1, other);
  std::vector<float> out(elements.size());
  EXPECT_EQ(
      client_
          ->Pull(0, 1, ComputeDigest(0, elements), absl::MakeSpan(out), Soon())
          .status.code(),
      absl::StatusCode::kDataLoss);
  EXPECT_TRUE(client_->Pull(0, 1, std::nullopt, absl::MakeSpan(out), Soon())
                  .status.ok());
}

TEST_F(ParameterClientTest, WaitsForAVersionThatAShardDoesNotHaveYet) {
  UseLayout({{kBlock}});
  StartServers(1);
  const std::vector<float> elements = Elements(0);
  std::vector<float> out(elements.size());
  TransferOutcome outcome;
  std::thread thread([&] {
    outcome = client_->Pull(0, 1, std::nullopt, absl::MakeSpan(out), Soon());
  });
  ServeEverywhere(0, 1, elements);
  thread.join();
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_TRUE(SameBits(out, elements));
}

TEST_F(ParameterClientTest, ReturnsAtOnceWhenAVersionIsGone) {
  UseLayout({{kBlock}});
  StartServers(1);
  ServeEverywhere(0, 1, Elements(0));
  servers_[0]->FailNext({Fault::kEnd, 0, absl::OutOfRangeError("released")});
  std::vector<float> out(kBlock);
  EXPECT_EQ(client_->Pull(0, 1, std::nullopt, absl::MakeSpan(out), Soon())
                .status.code(),
            absl::StatusCode::kOutOfRange);
}

// --- Several streams ---------------------------------------------------------

TEST_F(ParameterClientTest, SeveralStreamsPushALargePartAndEachByteOnce) {
  UseLayout({{1100 * kBlock}, {20 * kBlock}});
  stream_count_ = 4;
  StartServers(1);
  for (const int32_t fragment : {0, 1}) {
    const int before = servers_[0]->stream_count();
    const int64_t bytes_before = servers_[0]->payload_bytes();
    const std::vector<float> elements = Elements(fragment);
    const TransferOutcome outcome = Push(Info(fragment, 1), elements, Soon());
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    EXPECT_TRUE(SameBits(Held(fragment, 1), elements));
    ASSERT_EQ(outcome.shards.size(), 1);
    // The second one is not worth a second stream.
    EXPECT_EQ(servers_[0]->stream_count() - before, fragment == 0 ? 4 : 1);
    const auto bytes = static_cast<int64_t>(elements.size() * sizeof(float));
    EXPECT_EQ(servers_[0]->payload_bytes() - bytes_before, bytes);
    EXPECT_EQ(outcome.shards[0].payload_bytes, bytes);
  }
}

TEST_F(ParameterClientTest, AStreamThatBreaksLeavesTheOthersAlone) {
  UseLayout({{1100 * kBlock}});
  stream_count_ = 3;
  StartServers(1);
  std::uniform_int_distribution<int> chunks(0, 20);
  constexpr int kBreaks = 8;
  for (int64_t seq = 1; seq <= 5; ++seq) {
    for (int i = 0; i < kBreaks; ++i) {
      servers_[0]->FailNext(
          {Fault::kEnd, chunks(random_), absl::UnavailableError("oops")});
    }
    const int64_t bytes_before = servers_[0]->payload_bytes();
    const std::vector<float> elements = Elements(0);
    const TransferOutcome outcome = Push(Info(0, seq), elements, Soon());
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    EXPECT_TRUE(SameBits(Held(0, seq), elements));
    // No stream sends again the chunks that a broken stream delivered, except
    // for the one that the shard was receiving when the client asked it.
    const auto bytes = static_cast<int64_t>(elements.size() * sizeof(float));
    const int64_t sent_bytes = servers_[0]->payload_bytes() - bytes_before;
    EXPECT_GE(sent_bytes, bytes);
    EXPECT_LE(sent_bytes, bytes + kBreaks * codec::kChunkPayloadBytesMax / 2);
  }
}

TEST_F(ParameterClientTest, SeveralStreamsPullALargePartAndEachByteOnce) {
  UseLayout({{1100 * kBlock + 5}, {20 * kBlock}});
  stream_count_ = 4;
  StartServers(1);
  for (const int32_t fragment : {0, 1}) {
    const int before = servers_[0]->stream_count();
    const std::vector<float> elements = Elements(fragment);
    ServeEverywhere(fragment, 1, elements);
    std::vector<float> out(elements.size());
    const TransferOutcome outcome =
        client_->Pull(fragment, 1, ComputeDigest(fragment, elements),
                      absl::MakeSpan(out), Soon());
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    EXPECT_TRUE(SameBits(out, elements));
    EXPECT_EQ(servers_[0]->stream_count() - before, fragment == 0 ? 4 : 1);
    ASSERT_EQ(outcome.shards.size(), 1);
    EXPECT_EQ(outcome.shards[0].payload_bytes,
              static_cast<int64_t>(elements.size() * sizeof(float)));
  }
}

TEST_F(ParameterClientTest, AStripeThatBreaksGoesOnWhereItWas) {
  UseLayout({{1100 * kBlock}});
  stream_count_ = 3;
  StartServers(1);
  std::uniform_int_distribution<int> chunks(0, 8);
  for (int64_t version = 1; version <= 5; ++version) {
    for (int i = 0; i < 8; ++i) {
      servers_[0]->FailNext(
          {Fault::kEnd, chunks(random_), absl::UnavailableError("oops")});
    }
    const std::vector<float> elements = Elements(0);
    ServeEverywhere(0, version, elements);
    std::vector<float> out(elements.size());
    const TransferOutcome outcome = client_->Pull(
        0, version, ComputeDigest(0, elements), absl::MakeSpan(out), Soon());
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    EXPECT_TRUE(SameBits(out, elements));
    EXPECT_EQ(outcome.shards[0].payload_bytes,
              static_cast<int64_t>(elements.size() * sizeof(float)));
  }
}

TEST_F(ParameterClientTest, StripesThatAreNotThoseOfTheDigestArePulledAgain) {
  UseLayout({{1100 * kBlock}});
  stream_count_ = 3;
  StartServers(1);
  const std::vector<float> elements = Elements(0);
  ServeEverywhere(0, 1, elements);
  // Whichever stream is the last one.
  for (int i = 0; i < 3; ++i) {
    servers_[0]->FailNext({Fault::kCorruptDigest, -1, {}});
  }
  std::vector<float> out(elements.size());
  const TransferOutcome outcome = client_->Pull(
      0, 1, ComputeDigest(0, elements), absl::MakeSpan(out), Soon());
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_TRUE(SameBits(out, elements));
  EXPECT_EQ(outcome.shards[0].attempt_count, 4);
  EXPECT_EQ(outcome.shards[0].payload_bytes,
            static_cast<int64_t>(2 * elements.size() * sizeof(float)));
}

// --- Caps --------------------------------------------------------------------

TEST_F(ParameterClientTest, WhatIsCappedArrivesAsWhatIsNot) {
  UseLayout({{300 * kBlock + 17}});
  caps_ = {.up_bytes_per_second = 2e7, .down_bytes_per_second = 3e7};
  StartServers(2);
  servers_[0]->FailNext({Fault::kEnd, 3, absl::UnavailableError("oops")});
  const std::vector<float> elements = Elements(0);
  const TransferOutcome pushed = Push(Info(0, 1), elements, Soon());
  ASSERT_TRUE(pushed.status.ok()) << pushed.status;
  EXPECT_TRUE(SameBits(Held(0, 1), elements));
  // A fortieth of a second is 500 kB: no chunk is larger.
  EXPECT_GE(servers_[0]->chunk_count() + servers_[1]->chunk_count(), 10);
  ServeEverywhere(0, 1, elements);
  servers_[1]->FailNext({Fault::kEnd, 1, absl::UnavailableError("oops")});
  std::vector<float> out(elements.size());
  const TransferOutcome pulled = client_->Pull(0, 1, ComputeDigest(0, elements),
                                               absl::MakeSpan(out), Soon());
  ASSERT_TRUE(pulled.status.ok()) << pulled.status;
  EXPECT_TRUE(SameBits(out, elements));
}

TEST_F(ParameterClientTest, ACallThatACapKeepsWaitingStopsWhenToldTo) {
  UseLayout({{64 * kBlock}});
  // A block takes more than a second, the whole longer than any patience.
  caps_ = {kCapBytesPerSecondMin, kCapBytesPerSecondMin};
  StartServers(1);
  const std::vector<float> elements = Elements(0);
  ServeEverywhere(0, 1, elements);
  std::vector<float> out(elements.size());
  for (const bool push : {true, false}) {
    std::stop_source stop;
    CallBounds bounds = Soon();
    bounds.stop = stop.get_token();
    TransferOutcome outcome;
    std::jthread call([&] {
      outcome = push ? Push(Info(0, 1), elements, bounds)
                     : client_->Pull(0, 1, {}, absl::MakeSpan(out), bounds);
    });
    if (push) {
      EXPECT_TRUE(servers_[0]->WaitForChunks(1));
    } else {
      EXPECT_TRUE(servers_[0]->WaitForStreams(2));
    }
    stop.request_stop();
    call.join();
    EXPECT_EQ(outcome.status.code(), absl::StatusCode::kCancelled)
        << outcome.status;
  }
}

TEST_F(ParameterClientTest, UnderALowCapAUnitIsSentInParts) {
  UseLayout({{64 * kBlock}});
  whole_units_ = true;
  caps_.up_bytes_per_second = 50e3;  // A unit of f32 takes 20 s.
  StartServers(1);
  const std::vector<float> elements = Elements(0);
  std::stop_source stop;
  CallBounds bounds = Soon();
  bounds.stop = stop.get_token();
  std::jthread call([&] { Push(Info(0, 1), elements, bounds); });
  EXPECT_TRUE(servers_[0]->WaitForChunks(1));
  stop.request_stop();
  call.join();
  EXPECT_EQ(servers_[0]->payload_bytes(),
            servers_[0]->chunk_count() * kBlock *
                static_cast<int64_t>(sizeof(float)));
}

TEST_F(ParameterClientTest, PartsOfUnitsAreTheContributionAndEachComesOnce) {
  UseLayout({{150 * kBlock + 17}, {kBlock}});
  whole_units_ = true;
  // A fortieth of a second is 12 blocks, and there are three streams.
  caps_.up_bytes_per_second = 8e6;
  stream_count_ = 3;
  StartServers(1);
  const std::vector<float> elements = Elements(0);
  const TransferOutcome pushed = Push(Info(0, 1), elements, Soon());
  ASSERT_TRUE(pushed.status.ok()) << pushed.status;
  EXPECT_TRUE(SameBits(Held(0, 1), elements));
  EXPECT_GE(servers_[0]->chunk_count(), 13);
  EXPECT_EQ(servers_[0]->payload_bytes(),
            static_cast<int64_t>(elements.size() * sizeof(float)));
}

TEST_F(ParameterClientTest, TheLeastCapGrowsWithTheServers) {
  UseLayout({{10}});
  ParameterClientOptions options;
  options.caps.up_bytes_per_second = 50e3;
  options.shard_count = 24;
  EXPECT_TRUE(MakeParameterClient(options, *layout_).ok());
  options.caps.up_bytes_per_second = kCapBytesPerSecondMin;
  options.shard_count = 7;
  EXPECT_TRUE(MakeParameterClient(options, *layout_).ok());
  options.shard_count = 24;
  const absl::Status refused = MakeParameterClient(options, *layout_).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("24 servers"), std::string::npos) << refused;
}

TEST_F(ParameterClientTest, ACapThatWouldEndStreamsIsRefused) {
  UseLayout({{10}});
  for (const double cap : {-1.0, 1.0, kCapBytesPerSecondMin - 1, 0.0 / 0.0}) {
    ParameterClientOptions options;
    options.shard_count = 1;
    options.caps.down_bytes_per_second = cap;
    EXPECT_EQ(MakeParameterClient(options, *layout_).status().code(),
              absl::StatusCode::kInvalidArgument)
        << cap;
  }
}

// --- Import ------------------------------------------------------------------

TEST_F(ParameterClientTest, ImportsVersionZero) {
  UseLayout({{300 * kBlock + 7}, {5000, 1}});
  StartServers(2);
  const std::vector<float> elements = Elements(1);
  const TransferOutcome outcome = client_->Import(1, elements, Soon());
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_TRUE(SameBits(Held(1, 0), elements));
  for (size_t shard = 0; shard < servers_.size(); ++shard) {
    const auto received = servers_[shard]->received().at({1, 0});
    EXPECT_EQ(received.import_header.shard(), static_cast<int32_t>(shard));
    EXPECT_EQ(Digest128::FromProto(received.import_header.digest()),
              RangeDigest(*layout_, 1, layout_->ShardBlocks(1, shard, 2),
                          ToFloats(received.encoded)));
  }
}

// --- Many at once ------------------------------------------------------------

TEST_F(ParameterClientTest, MovesSeveralFragmentsAtOnceThroughFailures) {
  UseLayout({{700 * kBlock}, {300 * kBlock + 1}, {5}, {90 * kBlock, 3}});
  StartServers(3);
  for (auto& server : servers_) {
    for (int i = 0; i < 6; ++i) {
      server->FailNext({Fault::kEnd, static_cast<int>(random_() % 3),
                        absl::UnavailableError("now and then")});
    }
  }
  std::vector<std::vector<float>> elements;
  for (int32_t f = 0; f < 4; ++f) elements.push_back(Elements(f));
  std::vector<TransferOutcome> outcomes(4);
  std::vector<std::thread> threads;
  for (int32_t f = 0; f < 4; ++f) {
    threads.emplace_back([&, f] {
      outcomes[f] = Push(Info(f, 1), elements[f], Soon());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int32_t f = 0; f < 4; ++f) {
    ASSERT_TRUE(outcomes[f].status.ok()) << outcomes[f].status;
    EXPECT_TRUE(SameBits(Held(f, 1), elements[f])) << f;
  }
}

}  // namespace
}  // namespace atl::server
