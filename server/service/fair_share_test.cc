// One caller cannot keep others out.

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/rpc/call.h"
#include "base/rpc/channel.h"
#include "base/rpc/status.h"
#include "base/rpc/testing/test_certificates.h"
#include "base/status/refusal.h"
#include "base/sync/testing/notification.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "server/client/transfer.h"
#include "server/core/released_reads.h"
#include "server/service/testing/expect_no_place.h"
#include "server/service/testing/test_cluster.h"

namespace atl::server {
namespace {

constexpr absl::Duration kPatience = TestCluster::kPatience;
constexpr int kPlaces = 8;

template <typename Stream>
struct Idle {
  Idle() {
    context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
  }

  grpc::ClientContext context;
  std::unique_ptr<Stream> stream;
};
using IdlePush = Idle<grpc::ClientReaderWriter<v1::PushOuterGradientRequest,
                                               v1::PushOuterGradientResponse>>;
using IdlePull = Idle<grpc::ClientReader<v1::PullParametersResponse>>;

class FairShareTest : public testing::Test {
 protected:
  FairShareTest() : authority_(MakeDirectory()) {}

  static std::string MakeDirectory() {
    const std::string path =
        testing::TempDir() + "/" +
        testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(path);
    return path;
  }

  // A server that never calls a stream too slow.
  void Begin(int place_count = kPlaces) {
    cluster_ = std::make_unique<TestCluster>(SmallRun(), 1);
    cluster_->UseTls(
        [this](const std::string& name) { return authority_.Issue(name); });
    cluster_->options().stream_limits.stream_count_max = place_count;
    cluster_->options().stream_limits.window = absl::Hours(1);
    absl::Status begun = cluster_->StartAll();
    if (begun.ok()) begun = cluster_->Begin();
    ASSERT_TRUE(begun.ok()) << begun;
    for (int32_t slot = 0; slot < 8; ++slot) {
      rpc::ChannelOptions options = cluster_->Channel(slot);
      options.receive_window_bytes = 64 << 10;  // The most that is sent unread.
      auto channel =
          rpc::MakeChannel(cluster_->server(0).address(), options);
      ASSERT_TRUE(channel.ok()) << channel.status();
      stubs_.push_back(v1::ParameterService::NewStub(*channel));
    }
  }

  absl::Status Push(int32_t slot) {
    const std::vector<float> gradient = cluster_->Gradient(0, slot, 0);
    return cluster_->Push(cluster_->Info(0, slot, 0, gradient), gradient);
  }

  // A push that has its place and its first answer.
  std::unique_ptr<IdlePush> BeginPush(int32_t slot) {
    auto push = std::make_unique<IdlePush>();
    push->context.AddMetadata(rpc::kSessionMetadata,
                              rpc::ToHex(TestCluster::Secret(slot)));
    push->stream = stubs_[slot]->PushOuterGradient(&push->context);
    v1::PushOuterGradientRequest request;
    *request.mutable_header() = cluster_->Header(
        cluster_->Info(0, slot, 0, cluster_->Gradient(0, slot, 0)), 0);
    push->stream->Write(request);
    v1::PushOuterGradientResponse answer;
    EXPECT_TRUE(push->stream->Read(&answer));
    return push;
  }
  // A pull larger than all buffers; only its header is read.
  std::unique_ptr<IdlePull> BeginPull(int32_t slot) {
    auto pull = std::make_unique<IdlePull>();
    v1::PullParametersRequest request;
    request.set_run_id(SmallRun().run_id());
    request.set_version(-1);
    request.set_layout_fingerprint(cluster_->layout().fingerprint());
    pull->stream = stubs_[slot]->PullParameters(&pull->context, request);
    v1::PullParametersResponse header;
    EXPECT_TRUE(pull->stream->Read(&header));
    return pull;
  }

  static absl::Status WaitForEnd(IdlePush& push) {
    v1::PushOuterGradientResponse answer;
    while (push.stream->Read(&answer)) {
    }
    return rpc::FromGrpc(push.stream->Finish());
  }
  static absl::Status WaitForEnd(IdlePull& pull) {
    v1::PullParametersResponse response;
    while (pull.stream->Read(&response)) {
    }
    return rpc::FromGrpc(pull.stream->Finish());
  }

  rpc::TestAuthority authority_;
  std::unique_ptr<TestCluster> cluster_;
  std::vector<std::unique_ptr<v1::ParameterService::Stub>> stubs_;
};

TEST_F(FairShareTest, AMemberThatPushesOnEveryPlaceKeepsNobodyOut) {
  Begin();
  std::vector<std::unique_ptr<IdlePush>> held;
  for (int i = 0; i < kPlaces; ++i) held.push_back(BeginPush(1));
  // Its next stream finds no place.
  IdlePush refused;
  refused.stream = stubs_[1]->PushOuterGradient(&refused.context);
  ExpectNoPlace(WaitForEnd(refused));
  // Every other member gets a place, several at a time.
  std::vector<absl::Status> pushed(8);
  std::vector<std::thread> islands;
  for (int32_t slot = 2; slot < 8; ++slot) {
    islands.emplace_back([&, slot] { pushed[slot] = Push(slot); });
  }
  for (std::thread& island : islands) island.join();
  for (const absl::Status& status : pushed) EXPECT_TRUE(status.ok()) << status;
  // The newest were displaced, with the reason; the rest go on.
  ExpectNoPlace(WaitForEnd(*held.back()));
  v1::PushOuterGradientRequest rest;
  EXPECT_TRUE(held.front()->stream->Write(rest));
}

TEST_F(FairShareTest, AMemberThatPullsOnEveryPlaceKeepsNobodyOut) {
  Begin();
  std::vector<std::unique_ptr<IdlePull>> held;
  for (int i = 0; i < kPlaces; ++i) held.push_back(BeginPull(1));
  const auto pulled = cluster_->Pull(0, 0, /*slot=*/2);
  EXPECT_TRUE(pulled.ok()) << pulled.status();
  // Cancelled because it reads nothing, or it reads the reason.
  const absl::Status end = WaitForEnd(*held.back());
  if (!absl::IsCancelled(end)) ExpectNoPlace(end);
  EXPECT_TRUE(WaitForEnd(*held.front()).ok());
}

TEST_F(FairShareTest, MoreMembersThanPlacesTakeTurns) {
  constexpr int kLate = 6;
  Begin(/*place_count=*/2);
  // Two hold the places until all others have been refused.
  const std::unique_ptr<IdlePush> first[] = {BeginPush(6), BeginPush(7)};
  std::atomic<int> refused_count{0};
  Notification all_refused;
  std::vector<absl::Status> pushed(kLate), pulled(kLate);
  std::vector<std::thread> islands;
  for (int32_t slot = 0; slot < kLate; ++slot) {
    islands.emplace_back([&, slot] {
      bool is_refused = false;
      CallBounds bounds;
      bounds.deadline = absl::Now() + kPatience;
      bounds.on_waiting = [&](const TransferWait& waiting) {
        if (std::exchange(is_refused, true)) return;
        ExpectNoPlace(waiting.last_error);
        if (++refused_count == kLate) all_refused.Notify();
      };
      const std::vector<float> gradient = cluster_->Gradient(0, slot, 0);
      const auto client = cluster_->Client(slot);
      ASSERT_TRUE(client.ok()) << client.status();
      pushed[slot] = (*client)
                         ->Push(cluster_->Info(0, slot, 0, gradient),
                                cluster_->Encode(0, gradient), bounds)
                         .status;
      pulled[slot] = cluster_->Pull(0, 0, slot).status();
    });
  }
  EXPECT_TRUE(all_refused.WaitWithTimeout(kPatience));
  for (const auto& push : first) {
    push->context.TryCancel();
    EXPECT_TRUE(absl::IsCancelled(WaitForEnd(*push)));
  }
  for (std::thread& island : islands) island.join();
  for (const absl::Status& status : pushed) EXPECT_TRUE(status.ok()) << status;
  for (const absl::Status& status : pulled) EXPECT_TRUE(status.ok()) << status;
}

TEST_F(FairShareTest, WhoMovesNothingHoldsUpNeitherACommitNorTheEnd) {
  Begin();
  const auto push = BeginPush(1);
  const auto pull = BeginPull(2);
  for (int64_t v = 0; v < 3; ++v) {
    const absl::Status played = cluster_->Round(v, 1);
    ASSERT_TRUE(played.ok()) << played;
  }
  cluster_->Stop(0);
  // The stop ends the push; the push's own deadline does not.
  const absl::Status end = WaitForEnd(*push);
  EXPECT_FALSE(end.ok());
  EXPECT_TRUE(!absl::IsDeadlineExceeded(end) ||
              absl::StrContains(end.message(), "moved less than"))
      << end;
}

// --- Released versions -------------------------------------------------------

class SlowReadersTest : public FairShareTest {
 protected:
  static constexpr int kMax = ReleasedReads::kVersionCountMax;

  // Makes version `version` + 1; the one before stays held.
  void Round(int64_t version) {
    const absl::Status played = cluster_->Round(version, 1);
    ASSERT_TRUE(played.ok()) << played;
  }

  // Bytes on the disk, once they are at most `bytes_max`.
  int64_t ReceiveBudget(int64_t bytes_max) {
    // Before the readers give up.
    const absl::Time deadline = absl::Now() + kPatience / 2;
    int64_t held = cluster_->fs(0).HeldBytes();
    while (held > bytes_max && absl::Now() < deadline) {
      std::this_thread::yield();
      held = cluster_->fs(0).HeldBytes();
    }
    return held;
  }

  static void ExpectReleased(const absl::Status& end) {
    // Cancelled because it reads nothing, or it reads the reason.
    if (absl::IsCancelled(end)) return;
    EXPECT_EQ(end.code(), absl::StatusCode::kOutOfRange) << end;
    const auto reason = GetReason(end);
    ASSERT_TRUE(reason.has_value()) << end;
    EXPECT_EQ(reason->reason, "VERSION_RELEASED");
  }
};

// As when others need the space.
TEST_F(SlowReadersTest, KeepNothingOfWhatAPinKeptNoLonger) {
  Begin(/*place_count=*/64);
  v1::Pin& pin = *cluster_->plan().add_pins();
  pin.set_pin_id("audit");
  pin.set_commit_seq(cluster_->commit_seq() + 1);
  pin.set_keep_bytes_max(int64_t{1} << 40);
  cluster_->Publish();
  Round(0);
  grpc::ClientContext context;
  v1::PullKeptRequest request;
  request.set_run_id(SmallRun().run_id());
  request.set_layout_fingerprint(cluster_->layout().fingerprint());
  *request.mutable_contribution() =
      cluster_->Info(0, 0, 0, cluster_->Gradient(0, 0, 0)).key();
  rpc::ChannelOptions options;
  options.tls = authority_.Issue("atoll:operator:ada");
  options.peer_role = Role::kServer;
  options.receive_window_bytes = 64 << 10;
  const auto channel =
      rpc::MakeChannel(cluster_->server(0).address(), options);
  ASSERT_TRUE(channel.ok()) << channel.status();
  const auto stub = v1::ParameterService::NewStub(*channel);
  const auto stream = stub->PullKept(&context, request);
  v1::PullKeptResponse response;
  ASSERT_TRUE(stream->Read(&response)) << rpc::FromGrpc(stream->Finish());
  ASSERT_TRUE(response.has_header());
  const int64_t kept_bytes =
      cluster_->layout().element_count() * int64_t{sizeof(float)};
  // Small files may be added meanwhile.
  const int64_t bytes_max = cluster_->fs(0).HeldBytes() - kept_bytes / 2;
  cluster_->plan().clear_pins();
  cluster_->Publish();
  EXPECT_LE(ReceiveBudget(bytes_max), bytes_max);
  while (stream->Read(&response)) {
  }
  const absl::Status end = rpc::FromGrpc(stream->Finish());
  if (absl::IsCancelled(end)) return;  // Cancelled: it read nothing.
  EXPECT_TRUE(absl::IsOutOfRange(end)) << end;
  ASSERT_TRUE(GetReason(end).has_value()) << end;
  EXPECT_EQ(GetReason(end)->reason, "NOT_KEPT");
}

TEST_F(SlowReadersTest, KeepAFewVersionsOnTheDiskAndNotOneARound) {
  Begin(/*place_count=*/64);
  std::vector<std::unique_ptr<IdlePull>> greedy;
  const auto honest = BeginPull(2);
  constexpr int64_t kRounds = 20;
  int64_t held_before = 0;
  for (int64_t v = 0; v < kRounds; ++v) {
    greedy.push_back(BeginPull(1));
    Round(v);
    // The newest, the one before, and kMax late ones.
    if (v == kMax) held_before = cluster_->fs(0).HeldBytes();
  }
  const int64_t bytes_max = held_before + held_before / 2;
  EXPECT_LE(ReceiveBudget(bytes_max), bytes_max);
  for (int64_t v = 0; v < kRounds; ++v) {
    const absl::Status end = WaitForEnd(*greedy[v]);
    if (v >= kMax && v < kRounds - 1) {
      ExpectReleased(end);
    } else {
      EXPECT_TRUE(end.ok()) << v << ": " << end;
    }
  }
  EXPECT_TRUE(WaitForEnd(*honest).ok());
}

TEST_F(SlowReadersTest, WhoeverIsToldSoPullsTheNewest) {
  Begin(/*place_count=*/64);
  std::vector<std::unique_ptr<IdlePull>> held;
  for (int64_t v = 0; v < kMax + 3; ++v) {
    held.push_back(BeginPull(static_cast<int32_t>(v)));
    Round(v);
  }
  // If all versions have equally many readers, those of the version that was
  // released last must go.
  ExpectReleased(WaitForEnd(*held[kMax]));
  EXPECT_TRUE(WaitForEnd(*held[kMax - 1]).ok());
  const auto newest = cluster_->Pull(0, kMax + 3, /*slot=*/kMax);
  EXPECT_TRUE(newest.ok()) << newest.status();
}

}  // namespace
}  // namespace atl::server
