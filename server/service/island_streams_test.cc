// Streams of level ISLAND between the steps of a round.

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/failpoint/test_point.h"
#include "base/layout/digest.h"
#include "base/layout/layout.h"
#include "base/rpc/call.h"
#include "base/rpc/status.h"
#include "base/status/refusal.h"
#include "base/sync/testing/notification.h"
#include "gtest/gtest.h"
#include "server/service/testing/test_cluster.h"

namespace atl::server {
namespace {

constexpr absl::Duration kPatience = TestCluster::kPatience;

v1::Run IslandRun() {
  v1::Run run = SmallRun();
  run.mutable_spec()->set_durability(v1::DURABILITY_ISLAND);
  return run;
}

class RawPush {
 public:
  RawPush(TestCluster& cluster, const v1::ContributionInfo& info,
          bool to_twin = false, absl::Duration patience = kPatience)
      : info_(info), stub_(cluster.Stub(0)) {
    context_.AddMetadata(rpc::kSessionMetadata,
                         rpc::ToHex(TestCluster::Secret(info.key().slot())));
    context_.set_deadline(absl::ToChronoTime(absl::Now() + patience));
    stream_ = stub_->PushOuterGradient(&context_);
    v1::PushOuterGradientRequest request;
    *request.mutable_header() = cluster.Header(info, 0);
    if (to_twin) request.mutable_header()->set_run_id(TestCluster::kTwin);
    stream_->Write(request);
  }

  // The blocks that the server asks for; empty if the stream ends first.
  std::vector<IndexRange> AskedFor() {
    v1::PushOuterGradientResponse answer;
    std::vector<IndexRange> missing;
    if (!stream_->Read(&answer)) return missing;
    for (const v1::BlockRange& range : answer.missing()) {
      missing.push_back({range.begin(), range.end()});
    }
    return missing;
  }
  // `encoding` of the blocks; empty: zeros in f32.
  void Send(IndexRange blocks, absl::Span<const char> encoding = {}) {
    v1::PushOuterGradientRequest request;
    v1::Chunk& chunk = *request.mutable_chunk();
    *chunk.mutable_key() = info_.key();
    chunk.set_codec(info_.codec());
    chunk.set_first_block(blocks.begin);
    chunk.set_block_count(static_cast<int32_t>(blocks.size()));
    chunk.set_payload(std::string(blocks.size() * 4096 * sizeof(float), 0));
    if (!encoding.empty()) {
      chunk.set_payload(std::string(encoding.begin(), encoding.end()));
    }
    SumChunk(chunk);
    stream_->Write(request);
  }
  // Half-closes; returns how the server ends it.
  absl::Status Finish() {
    stream_->WritesDone();
    return AwaitEnd();
  }
  // Returns how the server ends it, without half-closing.
  absl::Status AwaitEnd() {
    v1::PushOuterGradientResponse answer;
    while (stream_->Read(&answer)) {
    }
    return rpc::FromGrpc(stream_->Finish());
  }

 private:
  const v1::ContributionInfo info_;
  grpc::ClientContext context_;
  std::unique_ptr<v1::ParameterService::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::PushOuterGradientRequest,
                                           v1::PushOuterGradientResponse>>
      stream_;
};

class IslandStreamsTest : public testing::Test {
 protected:
  void Begin(const std::function<void(ParameterServer::Options&)>& change =
                 [](auto&) {},
             const v1::Run& run = IslandRun(), bool twin = false) {
    cluster_ = std::make_unique<TestCluster>(run, 1);
    change(cluster_->options());
    if (twin) cluster_->AddTwin();
    absl::Status begun = cluster_->StartAll();
    if (begun.ok()) begun = cluster_->Begin();
    ASSERT_TRUE(begun.ok()) << begun;
  }

  v1::ContributionInfo Info(int32_t fragment, int32_t slot) {
    return cluster_->Info(fragment, slot, 0,
                         cluster_->Gradient(fragment, slot, 0));
  }
  absl::Status Push(int32_t fragment, int32_t slot) {
    return cluster_->Push(Info(fragment, slot),
                         cluster_->Gradient(fragment, slot, 0));
  }

  void SealRound(int32_t fragment, int count) {
    infos_.clear();
    for (int32_t slot = 0; slot < count; ++slot) {
      infos_.push_back(Info(fragment, slot));
    }
    cluster_->AddSeal(fragment, 0, infos_);
  }

  // Plays version 0's round of `fragment` with islands [0, `count`), of which
  // those from `first` on push now; returns version 1's digest.
  Digest128 Round(int32_t fragment, int count, int first = 0) {
    SealRound(fragment, count);
    std::vector<absl::Status> pushed(count);
    std::vector<std::thread> islands;
    for (int32_t slot = first; slot < count; ++slot) {
      islands.emplace_back(
          [&, slot] { pushed[slot] = Push(fragment, slot); });
    }
    const std::optional<Digest128> digest = CommitRound(fragment);
    for (std::thread& island : islands) island.join();
    // A stream that arrives after the COMMIT gets ALREADY_DECIDED.
    for (const absl::Status& status : pushed) {
      EXPECT_TRUE(status.ok() || absl::IsAborted(status)) << status;
    }
    return digest.value_or(Digest128());
  }

  // Commits the prepared round of version 0; returns version 1's digest.
  std::optional<Digest128> CommitRound(int32_t fragment) {
    const auto digest = cluster_->WaitForPrepared(fragment, 0);
    EXPECT_TRUE(digest.ok()) << digest.status();
    if (!digest.ok()) return std::nullopt;
    const absl::Status committed = cluster_->Commit(fragment, 0, *digest);
    EXPECT_TRUE(committed.ok()) << committed;
    return committed.ok() ? std::optional(*digest) : std::nullopt;
  }

  // The digest of fragment 0's round of islands [0, `count`) with ample memory;
  // then restarts with `live_merge_bytes_max` and seals the round.
  Digest128 SealRoundWithRoom(int64_t live_merge_bytes_max, int count) {
    Begin();
    const Digest128 expected = Round(0, count);
    Begin([&](auto& options) {
      options.live_merge_bytes_max = live_merge_bytes_max;
    });
    SealRound(0, count);
    return expected;
  }

  // `slot`'s gradient in a block of fragment 0; only the fourth is short.
  std::vector<char> EncodedBlock(int32_t slot, int64_t block) {
    const std::vector<char> all =
        cluster_->Encode(0, cluster_->Gradient(0, slot, 0));
    const auto begin = all.begin() + block * 16384;
    return {begin, begin + 16384};
  }

  // Sends the gradient of `slot` in fragment 0, the second cell first.
  void SendAll(RawPush& push, int32_t slot) {
    const std::vector<char> all =
        cluster_->Encode(0, cluster_->Gradient(0, slot, 0));
    const absl::Span<const char> encoded(all);
    const size_t first = encoded.size() - 15 * 16384;
    push.Send({64, 79}, encoded.subspan(first));
    push.Send({0, 64}, encoded.subspan(0, first));
  }

  // Repeats a push until the server asks for `expected`, then does `also`. The
  // server may need a moment to see that the last stream has ended.
  void WaitToBeAskedFor(
      const v1::ContributionInfo& info, const std::vector<IndexRange>& expected,
      const std::function<void(RawPush&)>& also = [](auto&) {}) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (true) {
      RawPush push(*cluster_, info);
      const bool asked = push.AskedFor() == expected;
      if (asked) also(push);
      const absl::Status ended = push.Finish();
      if (asked) return;
      ASSERT_FALSE(ended.ok());
      ASSERT_LT(absl::Now(), deadline);
    }
  }

  bool WaitForHeld(const std::function<bool(int64_t bytes)>& done) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (!done(cluster_->server(0).receive_budget().bytes())) {
      if (absl::Now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }

  static void ExpectCommitted(RawPush& push) {
    const absl::Status ended = push.Finish();
    EXPECT_TRUE(ended.ok()) << ended;
  }

  void ExpectNothingIsHeld() {
    EXPECT_TRUE(WaitForHeld([](int64_t bytes) { return bytes == 0; }));
    EXPECT_EQ(cluster_->server(0).receive_budget().over_budget_bytes(), 0);
    EXPECT_FALSE(cluster_->server(0).receive_budget().AnyoneWaits());
  }

  std::unique_ptr<TestCluster> cluster_;
  std::vector<v1::ContributionInfo> infos_;  // Of the last sealed round.
};

// Another thread may start the set as soon as the last header is bound.
TEST_F(IslandStreamsTest, AStreamMayBeToldToBeginAsSoonAsItIsListed) {
  Notification told;
  const ScopedTestHook hook([&](absl::string_view point) {
    if (point == "a live merge begins") told.Notify();
    if (point == "an upload is listed") told.WaitWithTimeout(kPatience);
  });
  Begin();
  Round(1, 1);
  EXPECT_TRUE(told.HasBeenNotified());
  cluster_->Stop(0);
}

// The set that the stream finds is given up before the stream has joined it.
TEST_F(IslandStreamsTest, AStreamThatFindsASetThatIsGivenUpPushesAgain) {
  Begin();
  const v1::ContributionInfo info = Info(1, 0);
  cluster_->AddSeal(1, 0, {info});
  RawPush first(*cluster_, info);
  ASSERT_FALSE(first.AskedFor().empty());
  Notification given_up, answered;
  std::atomic<int> found_count{0};
  const ScopedTestHook hook([&](absl::string_view point) {
    if (point == "a set is found" && found_count++ == 0) {
      v1::Seal& seal = *cluster_->plan().mutable_seals(0);
      seal.set_attempt(1);
      seal.mutable_contributions(0)->set_weight(0.5f);
      cluster_->Publish();
      given_up.WaitWithTimeout(kPatience);
    }
    if (point == "a set is given up") {
      given_up.Notify();
      answered.WaitWithTimeout(kPatience);
    }
  });
  RawPush second(*cluster_, info);
  EXPECT_TRUE(second.AskedFor().empty()) << "for a set that nobody merges";
  answered.Notify();
  const absl::Status ended = second.Finish();
  EXPECT_TRUE(absl::IsUnavailable(ended)) << ended;
  EXPECT_TRUE(absl::IsUnavailable(first.Finish()));
  EXPECT_TRUE(given_up.HasBeenNotified());
  cluster_->Stop(0);
}

// The next contribution is admitted cell by cell; the others wait.
TEST_F(IslandStreamsTest, ARoundClosesWithTheSameBitsWithoutMemoryToWaitIn) {
  Begin();
  const Digest128 expected = Round(0, 3);
  Begin([](auto& options) { options.live_merge_bytes_max = 0; });
  EXPECT_EQ(Round(0, 3), expected);
  ExpectNothingIsHeld();
}

// Without budget a stream waits at its header, and is admitted in merge order.
TEST_F(IslandStreamsTest, WithoutRoomIslandsAreAskedOneAfterTheOther) {
  std::atomic<int> waiting_count{0};
  Notification both_wait;
  const ScopedTestHook hook([&](absl::string_view point) {
    if (point == "an upload waits for room" && ++waiting_count == 2) {
      both_wait.Notify();
    }
  });
  const Digest128 expected = SealRoundWithRoom(0, 3);
  RawPush third(*cluster_, infos_[2]);
  RawPush second(*cluster_, infos_[1]);
  RawPush first(*cluster_, infos_[0]);
  RawPush* const pushes[] = {&first, &second, &third};
  ASSERT_TRUE(both_wait.WaitWithTimeout(kPatience));
  const std::vector<IndexRange> all = {{0, 79}};
  for (int slot = 0; slot < 3; ++slot) {
    ASSERT_EQ(pushes[slot]->AskedFor(), all) << slot;
    // The later ones are not asked before it is complete.
    EXPECT_EQ(cluster_->server(0).receive_budget().AnyoneWaits(), slot < 2)
        << slot;
    SendAll(*pushes[slot], slot);
  }
  ASSERT_EQ(CommitRound(0), expected);
  for (RawPush* push : pushes) ExpectCommitted(*push);
  ExpectNothingIsHeld();
  cluster_->Stop(0);
}

// The COMMIT may be persisted before the waiting streams are told.
TEST_F(IslandStreamsTest, WhoWasMergedIsToldSoWhoeverTellsIt) {
  Notification persisted;
  const ScopedTestHook hook([&](absl::string_view point) {
    if (point == "a commit is persisted") persisted.Notify();
    if (point == "commits are applied") persisted.WaitWithTimeout(kPatience);
  });
  Begin();
  const v1::ContributionInfo info = Info(0, 0);
  cluster_->AddSeal(0, 0, {info});
  RawPush push(*cluster_, info);
  ASSERT_FALSE(push.AskedFor().empty());
  SendAll(push, 0);
  ASSERT_TRUE(CommitRound(0).has_value());
  ExpectCommitted(push);
  EXPECT_TRUE(persisted.WaitWithTimeout(TestCluster::kPatience));
  cluster_->Stop(0);
}

// A stream that waits between chunks goes on too, here at the second cell.
TEST_F(IslandStreamsTest, AStreamThatFindsNoRoomForItsNextChunkIsReadLater) {
  Notification waits;
  const ScopedTestHook hook([&](absl::string_view point) {
    if (point == "an upload is not read for want of room") waits.Notify();
  });
  const Digest128 expected = SealRoundWithRoom(1200000, 2);
  RawPush first(*cluster_, infos_[0]);
  RawPush second(*cluster_, infos_[1]);
  const std::vector<IndexRange> all = {{0, 79}};
  ASSERT_EQ(second.AskedFor(), all);
  std::thread sender([&] { SendAll(second, 1); });  // Not read yet.
  EXPECT_TRUE(waits.WaitWithTimeout(kPatience));
  EXPECT_EQ(cluster_->server(0).receive_budget().bytes(), 15 * 16384);
  EXPECT_EQ(first.AskedFor(), all);
  SendAll(first, 0);
  sender.join();
  ASSERT_EQ(CommitRound(0), expected);
  for (RawPush* push : {&first, &second}) ExpectCommitted(*push);
  ExpectNothingIsHeld();
  cluster_->Stop(0);
}

// An idle stream keeps its reservation until the watchdog ends it.
TEST_F(IslandStreamsTest, OfAContributionFewStreamsReserveRoomAtATime) {
  Notification waits;
  const ScopedTestHook hook([&](absl::string_view point) {
    if (point == "an upload waits for room") waits.Notify();
  });
  const Digest128 expected = SealRoundWithRoom(64 << 20, 2);
  std::deque<RawPush> firsts, seconds;
  firsts.emplace_back(*cluster_, infos_[0]);
  const std::vector<IndexRange> all = {{0, 79}};
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(seconds.emplace_back(*cluster_, infos_[1]).AskedFor(), all) << i;
  }
  RawPush fifth(*cluster_, infos_[1]);
  ASSERT_TRUE(waits.WaitWithTimeout(kPatience));
  EXPECT_EQ(cluster_->server(0).receive_budget().bytes(), 4 << 20);
  EXPECT_FALSE(cluster_->server(0).receive_budget().IsScarce());
  // The next contribution reserves nothing.
  ASSERT_EQ(firsts.front().AskedFor(), all);
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(firsts.emplace_back(*cluster_, infos_[0]).AskedFor(), all) << i;
  }
  EXPECT_EQ(cluster_->server(0).receive_budget().bytes(), 4 << 20);
  const std::vector<char> encoded =
      cluster_->Encode(0, cluster_->Gradient(0, 1, 0));
  const size_t last_bytes = 15 * 16384;
  const auto cells = absl::MakeConstSpan(encoded);
  seconds.front().Send({64, 79}, cells.last(last_bytes));
  EXPECT_EQ(fifth.AskedFor(), (std::vector<IndexRange>{{0, 64}}));
  fifth.Send({0, 64}, cells.first(cells.size() - last_bytes));
  SendAll(firsts.front(), 0);
  ASSERT_EQ(CommitRound(0), expected);
  for (RawPush& push : firsts) ExpectCommitted(push);
  for (RawPush& push : seconds) ExpectCommitted(push);
  ExpectCommitted(fifth);
  ExpectNothingIsHeld();
  cluster_->Stop(0);
}

// Its cells wait for those of another island.
TEST_F(IslandStreamsTest, AStreamThatIsNotReadReservesNothing) {
  v1::Run run = IslandRun();
  run.mutable_spec()->mutable_exchange()->set_up(v1::CODEC_BF16);
  run.mutable_spec()->mutable_layout()->mutable_tensors(2)->set_shape(0, 2000);
  Begin([](auto&) {}, run);
  SealRound(0, 2);
  RawPush first(*cluster_, infos_[0]);
  RawPush second(*cluster_, infos_[1]);
  // A chunk of one cell is half of its reservation.
  const int64_t cell_bytes = 64 * 8192;
  const int64_t first_cell_bytes = cell_bytes - 8192 + 12 * 2;
  const auto send = [&](RawPush& push, int32_t slot) {
    ASSERT_FALSE(push.AskedFor().empty());
    const std::vector<char> encoded =
        cluster_->Encode(0, cluster_->Gradient(0, slot, 0));
    absl::Span<const char> left(encoded);
    for (int64_t cell = 0; cell < 4; ++cell) {
      const int64_t bytes = cell == 0 ? first_cell_bytes : cell_bytes;
      push.Send({64 * cell, 64 * cell + 64}, left.first(bytes));
      left.remove_prefix(bytes);
    }
  };
  send(second, 1);
  EXPECT_TRUE(WaitForHeld([&](int64_t held) {
    return held == first_cell_bytes + 3 * cell_bytes;
  }));
  send(first, 0);
  for (RawPush* push : {&first, &second}) {
    const absl::Status ended = push->Finish();
    EXPECT_TRUE(absl::IsUnavailable(ended)) << ended;
  }
  ExpectNothingIsHeld();
  cluster_->Stop(0);
}

// Otherwise all could hold begun cells while they wait for memory.
TEST_F(IslandStreamsTest, AStreamThatGoesOnWithACellNeedsNoMoreRoom) {
  Notification waits;
  const ScopedTestHook hook([&](absl::string_view point) {
    if (point == "an upload is not read for want of room") waits.Notify();
  });
  // Budget for the first cell, of 64 blocks, and nothing else.
  Begin([](auto& options) { options.live_merge_bytes_max = 1100000; });
  SealRound(0, 2);
  RawPush first(*cluster_, infos_[0]);
  RawPush second(*cluster_, infos_[1]);
  const std::vector<IndexRange> all = {{0, 79}};
  ASSERT_EQ(second.AskedFor(), all);
  ASSERT_EQ(first.AskedFor(), all);
  const std::vector<char> encoded =
      cluster_->Encode(0, cluster_->Gradient(0, 1, 0));
  const size_t block_bytes = 16384;
  const int64_t cell_bytes = 63 * block_bytes + 48;
  second.Send({0, 1}, absl::MakeConstSpan(encoded).first(block_bytes));
  std::thread sender([&] {
    second.Send({1, 64},
                absl::MakeConstSpan(encoded).subspan(
                    block_bytes, cell_bytes - block_bytes));
  });
  EXPECT_TRUE(waits.WaitWithTimeout(kPatience));
  EXPECT_EQ(cluster_->server(0).receive_budget().bytes(), cell_bytes);
  const std::vector<char> firsts =
      cluster_->Encode(0, cluster_->Gradient(0, 0, 0));
  first.Send({0, 64}, absl::MakeConstSpan(firsts).first(cell_bytes));
  // The complete cell that waited is merged, which frees budget for the next.
  EXPECT_TRUE(WaitForHeld([](int64_t held) { return held == 1 << 20; }));
  EXPECT_TRUE(absl::IsUnavailable(first.Finish()));
  sender.join();
  EXPECT_TRUE(absl::IsUnavailable(second.Finish()));
  ExpectNothingIsHeld();
  cluster_->Stop(0);
}

// They wait for a set that is given up, or have ended themselves.
TEST_F(IslandStreamsTest, WhoWaitsForRoomEndsWithItsSet) {
  std::atomic<int> waiting_count{0};
  Notification both_wait;
  const ScopedTestHook hook([&](absl::string_view point) {
    if (point == "an upload waits for room" && ++waiting_count == 2) {
      both_wait.Notify();
    }
  });
  Begin([](auto& options) { options.live_merge_bytes_max = 0; });
  SealRound(0, 3);
  RawPush first(*cluster_, infos_[0]);
  RawPush second(*cluster_, infos_[1]);
  auto third = std::make_unique<RawPush>(*cluster_, infos_[2]);
  ASSERT_TRUE(both_wait.WaitWithTimeout(kPatience));
  third.reset();
  v1::Seal& seal = *cluster_->plan().mutable_seals(0);
  seal.set_attempt(1);
  seal.mutable_contributions(0)->set_weight(0.5f);
  cluster_->Publish();
  for (RawPush* push : {&first, &second}) {
    const absl::Status ended = push->AwaitEnd();
    EXPECT_TRUE(absl::IsUnavailable(ended)) << ended;
    const auto reason = GetReason(ended);
    ASSERT_TRUE(reason.has_value()) << ended;
    EXPECT_EQ(reason->reason, "SET_CHANGED");
  }
  // They leave a moment after their status.
  const absl::Time deadline = absl::Now() + kPatience;
  while (cluster_->server(0).receive_budget().AnyoneWaits()) {
    ASSERT_LT(absl::Now(), deadline);
    std::this_thread::yield();
  }
  ExpectNothingIsHeld();
  cluster_->Stop(0);
}

// A link that breaks within every cell still completes it.
TEST_F(IslandStreamsTest, WhatCameBeforeAStreamEndedIsNotAskedForAgain) {
  Begin();
  const Digest128 expected = Round(0, 2);
  Begin();
  SealRound(0, 2);
  RawPush first(*cluster_, infos_[0]);
  for (int64_t block = 0; block < 3; ++block) {
    WaitToBeAskedFor(infos_[1], {{block, 79}}, [&](RawPush& push) {
      push.Send({block, block + 1}, EncodedBlock(1, block));
    });
  }
  WaitToBeAskedFor(infos_[1], {{3, 79}});
  EXPECT_GT(cluster_->server(0).receive_budget().bytes(), 0);
  EXPECT_TRUE(absl::IsUnavailable(first.Finish()));
  cluster_->plan().clear_seals();
  EXPECT_EQ(Round(0, 2), expected);
}

TEST_F(IslandStreamsTest, CellsThatNobodyFinishesAreGivenUpForWhoNeedsRoom) {
  Notification gone;
  const ScopedTestHook hook([&](absl::string_view point) {
    if (point == "an upload is gone") gone.Notify();
  });
  // Budget for the first cell, of 64 blocks, but not for the second.
  Begin([](auto& options) { options.live_merge_bytes_max = 1100000; });
  SealRound(0, 2);
  RawPush first(*cluster_, infos_[0]);
  const std::vector<IndexRange> all = {{0, 79}};
  const int64_t cell_bytes = 63 * 16384 + 48;
  {
    RawPush second(*cluster_, infos_[1]);
    ASSERT_EQ(first.AskedFor(), all);
    ASSERT_EQ(second.AskedFor(), all);
    second.Send({0, 1});
    // Its end would not be read without budget for what comes first.
    ASSERT_TRUE(WaitForHeld([&](int64_t held) { return held == cell_bytes; }));
  }
  // The block is kept until the other island needs the budget.
  ASSERT_TRUE(gone.WaitWithTimeout(kPatience));
  EXPECT_EQ(cluster_->server(0).receive_budget().bytes(), cell_bytes);
  first.Send({64, 65});
  EXPECT_TRUE(WaitForHeld([](int64_t held) { return held == 15 * 16384; }));
  EXPECT_TRUE(absl::IsUnavailable(first.Finish()));
  cluster_->Stop(0);
}

// Two runs on a server with budget for one contribution's first cell and
// nothing else; each merges two islands.
class TwinStreamsTest : public IslandStreamsTest {
 protected:
  TwinStreamsTest()
      : hook_([this](absl::string_view point) {
          if (point == "an upload is not read for want of room") {
            is_paused_.Notify();
          }
          if (point == "an upload waits for room") waits_.Notify();
        }) {}

  void SetUp() override {
    Begin([](auto& options) { options.live_merge_bytes_max = 1100000; },
          IslandRun(), /*twin=*/true);
    SealRound(0, 2);
    *cluster_->twin_plan().mutable_seals() = cluster_->plan().seals();
    cluster_->Publish();
    const absl::Status planned = cluster_->WaitForPlan(0);
    ASSERT_TRUE(planned.ok()) << planned;
    // Its blocks must wait for longer than the twin's streams.
    first_.emplace(*cluster_, infos_[0], /*to_twin=*/false, 2 * kPatience);
    second_.emplace(*cluster_, infos_[1]);
    ASSERT_EQ(first_->AskedFor(), all_);
    ASSERT_EQ(second_->AskedFor(), all_);
  }

  // The second island's first cell waits for the first island's, so the stream
  // is paused; the twin's second island waits.
  void FillRoom() {
    const std::vector<char> encoded =
        cluster_->Encode(0, cluster_->Gradient(0, 1, 0));
    second_->Send({0, 64}, absl::MakeConstSpan(encoded).first(kCellBytes));
    ASSERT_TRUE(is_paused_.WaitWithTimeout(kPatience));
    BeginTwin();
    ASSERT_TRUE(waits_.WaitWithTimeout(kPatience));
    EXPECT_EQ(cluster_->server(0).receive_budget().bytes(), kCellBytes);
  }
  void BeginTwin() {
    twins_first_.emplace(*cluster_, infos_[0], /*to_twin=*/true);
    twins_second_.emplace(*cluster_, infos_[1], /*to_twin=*/true);
  }
  void TearDown() override { cluster_->Stop(0); }

  static constexpr int64_t kCellBytes = 63 * 16384 + 48;
  const std::vector<IndexRange> all_ = {{0, 79}};
  Notification is_paused_, waits_;
  const ScopedTestHook hook_;
  std::optional<RawPush> first_, second_, twins_first_, twins_second_;
};

TEST_F(TwinStreamsTest, WhatARunHasMergedIsRoomForAnother) {
  FillRoom();
  SendAll(*first_, 0);
  // If two streams are equal, the one that has waited longer goes first.
  second_->Send({64, 79});
  EXPECT_EQ(twins_second_->AskedFor(), all_);
}

TEST_F(TwinStreamsTest, WhatARunGivesUpIsRoomForAnother) {
  FillRoom();
  v1::Seal& seal = *cluster_->plan().mutable_seals(0);
  seal.set_attempt(1);
  seal.mutable_contributions(0)->set_weight(0.25f);
  cluster_->Publish();
  EXPECT_EQ(twins_second_->AskedFor(), all_);
  EXPECT_TRUE(absl::IsUnavailable(second_->AwaitEnd()));
}

TEST_F(TwinStreamsTest, WhatARunCanFoldIsFoldedForAnother) {
  EXPECT_TRUE(absl::IsUnavailable(second_->Finish()));  // Reserves nothing.
  first_->Send({64, 79});
  ASSERT_TRUE(WaitForHeld([](int64_t held) { return held == 15 * 16384; }));
  BeginTwin();
  EXPECT_EQ(twins_second_->AskedFor(), all_);
  EXPECT_EQ(cluster_->server(0).receive_budget().bytes(), 1 << 20);
}

// Otherwise other runs would never find budget.
TEST_F(IslandStreamsTest, ARunThatEndsHoldsNothing) {
  for (const bool planned : {true, false}) {
    SCOPED_TRACE(planned);
    Begin();
    SealRound(0, 2);
    RawPush first(*cluster_, infos_[0]);
    RawPush second(*cluster_, infos_[1]);
    ASSERT_FALSE(first.AskedFor().empty());
    ASSERT_FALSE(second.AskedFor().empty());
    first.Send({4, 5});     // A part of a cell.
    second.Send({64, 79});  // A cell that waits for the other island.
    ASSERT_TRUE(WaitForHeld([](int64_t bytes) { return bytes > 1200000; }));
    if (planned) {
      cluster_->plan().set_run_state(v1::RUN_STATE_CANCELLED);
      cluster_->Publish();
    } else {
      cluster_->PublishWithoutRun();
    }
    // Either the set is given up first, or its contributions are dropped.
    for (RawPush* push : {&first, &second}) {
      const absl::Status ended = push->Finish();
      EXPECT_TRUE(absl::IsUnavailable(ended) || absl::IsAborted(ended))
          << ended;
    }
    EXPECT_TRUE(WaitForHeld([](int64_t bytes) { return bytes == 0; }));
  }
}

// Each island has two streams, and all others wait for it.
TEST_F(IslandStreamsTest, MoreStreamsThanPlacesLiveMerge) {
  Begin([](auto& options) { options.stream_limits.stream_count_max = 3; });
  Round(0, 4);
}

TEST_F(IslandStreamsTest, ARoundThatWaitsTakesNoPlaceFromAnother) {
  Begin([](auto& options) { options.stream_limits.stream_count_max = 2; });
  std::atomic<int> waiting_count{0};
  Notification all_wait;
  const ScopedTestHook hook([&](absl::string_view point) {
    if (point == "an upload waits for others" && ++waiting_count == 2) {
      all_wait.Notify();
    }
  });
  absl::Status early = absl::UnknownError("");
  std::thread island([&] { early = Push(0, 0); });
  EXPECT_TRUE(all_wait.WaitWithTimeout(kPatience));
  Round(1, 1);
  Round(0, 2, /*first=*/1);
  island.join();
  EXPECT_TRUE(early.ok() || absl::IsAborted(early)) << early;
  cluster_->Stop(0);
}

}  // namespace
}  // namespace atl::server
