// A live merge has the bits of a merge from the log, in any order of arrival.

#include "server/live_merge/live_merger.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "base/codec/codec.h"
#include "base/io/testing/fake_file_system.h"
#include "base/status/check.h"
#include "gtest/gtest.h"
#include "server/merge/testing/merge_bench.h"
#include "server/store/records/run_records.h"

namespace atl::server {
namespace {

// Three cells.
constexpr int64_t kElements = MergeBench::kElements;
constexpr int kIslands = 4;

v1::ContributionInfo Info(int32_t slot, v1::Codec codec) {
  v1::ContributionInfo info;
  info.mutable_key()->set_run_epoch(1);
  info.mutable_key()->set_slot(slot);
  info.mutable_key()->set_seq(1);
  info.set_codec(codec);
  return info;
}

// A store with version 0.
struct Bench : MergeBench {
  explicit Bench(v1::Durability durability, v1::Codec codec = v1::CODEC_F32,
                 v1::Codec down = v1::CODEC_F32)
      : MergeBench(durability, codec, down, 64 << 20) {}

  void Open() {
    const absl::Status opened = TryOpen();
    CHECK(opened.ok()) << opened;
  }
  absl::Status TryOpen() {
    store.reset();
    const auto run = ReadRun(records);
    CHECK(run.ok());
    auto made = RunStore::Open(fs, records, "data", *run,
                               optimizer->state_count(), images);
    if (!made.ok()) return made.status();
    store = *std::move(made);
    return LiveMerger::MakeAgain(*store, *optimizer);
  }

  // Names of the files of version 1 and of its sum.
  std::vector<std::string> Unfinished() {
    std::vector<std::string> found;
    for (const char* directory : {"versions", "sums"}) {
      const auto names =
          fs.List(MergeBench::Names().directory() + "/" + directory);
      if (!names.ok()) continue;
      for (const std::string& name : *names) {
        if (name.find("f0-v1") == 0) found.push_back(name);
      }
    }
    return found;
  }

  // The delta of version 1; empty if it is not held.
  std::string ReadDelta() {
    const auto chain = store->versions().deltas()->Chain(0, 0, 1);
    if (chain.empty()) return "";
    std::string bytes(chain[0]->payload_bytes(), '\0');
    CHECK(chain[0]->Read(store->range(0).blocks(), bytes.data()).ok());
    return bytes;
  }
};

class LiveMergerTest : public testing::Test {
 protected:
  LiveMergerTest() : seed_(std::random_device()()), random_(seed_) {
    std::normal_distribution<float> normal;
    for (int i = 0; i < kIslands; ++i) {
      set_.keys.push_back(
          ContributionKey::FromProto(Info(i, v1::CODEC_F32).key()));
      set_.weights.push_back(0.1f * static_cast<float>(i + 1));
      vectors_.emplace_back(kElements);
      for (float& element : vectors_.back()) element = normal(random_);
    }
    UseCodec(v1::CODEC_F32);
  }

  void ExpectThatItOutlivesTheProcess(int64_t memory_bytes);

  void UseCodec(v1::Codec number) {
    codec_ = number;
    encoded_.clear();
    const codec::Codec& codec = *codec::FindCodec(number);
    for (const std::vector<float>& vector : vectors_) {
      std::vector<char>& bytes = encoded_.emplace_back();
      for (int64_t begin = 0; begin < kElements; begin += 4096) {
        const auto values = absl::MakeConstSpan(vector).subspan(begin, 4096);
        const size_t offset = bytes.size();
        bytes.resize(offset + codec.EncodedBytes(values.size()));
        CHECK(codec.Encode({}, values, absl::MakeSpan(bytes).subspan(offset)) ==
              codec::BlockFault::kNone);
      }
    }
  }

  // The result of a merge from the log.
  PreparedFact MergeFromLog(Bench& bench) {
    v1::Seal seal;
    for (int i = 0; i < kIslands; ++i) {
      bench.Store(Info(i, codec_), {encoded_[i].data(), encoded_[i].size()});
      v1::SealedContribution* sealed = seal.add_contributions();
      *sealed->mutable_key() = set_.keys[i].ToProto();
      sealed->set_weight(set_.weights[i]);
    }
    return bench.Merge(seal);
  }

  std::shared_ptr<LiveMerger> MakeLiveMerger(Bench& bench) {
    auto made =
        LiveMerger::Create(*bench.store, *bench.optimizer, *bench.rule, set_);
    CHECK(made.ok()) << made.status();
    return *std::move(made);
  }

  // Offers a cell in pieces of any size, as a stream may receive it.
  void Offer(Bench& bench, LiveMerger& live_merger, int index, int64_t cell,
             std::function<void()> taken) {
    const IndexRange blocks = live_merger.CellBlocks(cell);
    ASSERT_EQ(live_merger.ToCells(blocks), (IndexRange{cell, cell + 1}));
    const EncodedRange& range = bench.store->encoded(0);
    absl::string_view left(
        encoded_[index].data() + range.ByteOffset(blocks.begin),
        range.ByteCount(blocks));
    auto chunk = std::make_shared<rpc::ReceivedChunk>();
    std::mt19937 random(static_cast<unsigned>(seed_ + 64 * index + cell));
    while (!left.empty()) {
      chunk->payload.push_back(left.substr(0, 1 + random() % 30000));
      left.remove_prefix(chunk->payload.back().size());
    }
    live_merger.Offer(index, cell, rpc::PayloadReader(*chunk),
                      [chunk, taken = std::move(taken)] { taken(); });
  }

  const unsigned seed_;
  std::mt19937 random_;
  LiveSet set_;
  v1::Codec codec_ = v1::CODEC_F32;
  std::vector<std::vector<float>> vectors_;
  std::vector<std::vector<char>> encoded_;
};

void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}

TEST_F(LiveMergerTest, AnyOrderOfArrivalGivesTheBitsOfTheLog) {
  SCOPED_TRACE(seed_);
  Bench log(v1::DURABILITY_PROCESS);
  const PreparedFact expected = MergeFromLog(log);
  for (int repeat = 0; repeat < 3; ++repeat) {
    Bench bench(v1::DURABILITY_ISLAND);
    const auto live_merger = MakeLiveMerger(bench);
    std::vector<std::pair<int, int64_t>> arrivals;
    for (int i = 0; i < kIslands; ++i) {
      for (int64_t cell = 0; cell < 3; ++cell) arrivals.push_back({i, cell});
    }
    std::shuffle(arrivals.begin(), arrivals.end(), random_);
    int taken = 0;
    for (const auto& [index, cell] : arrivals) {
      Offer(bench, *live_merger, index, cell, [&taken] { ++taken; });
    }
    EXPECT_EQ(taken, kIslands * 3);
    const auto made = live_merger->Publish(0);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(made->digest, expected.digest);
    EXPECT_EQ(made->norm_squared, expected.norm_squared);
    ExpectSameBits(bench.Read(1, 0), log.Read(1, 0));
    ExpectSameBits(bench.Read(1, 1), log.Read(1, 1));
  }
}

TEST_F(LiveMergerTest, ACellWaitsUntilItIsWholeWhileSomebodyGoesOn) {
  SCOPED_TRACE(seed_);
  Bench log(v1::DURABILITY_PROCESS);
  const PreparedFact expected = MergeFromLog(log);
  Bench bench(v1::DURABILITY_ISLAND);
  const auto live_merger = MakeLiveMerger(bench);
  for (int i = 0; i < kIslands; ++i) live_merger->Join(i);
  int taken = 0;
  const auto count = [&taken] { ++taken; };
  // All but the last island wait for it.
  for (int i = 0; i + 1 < kIslands; ++i) {
    for (int64_t cell = 0; cell < 3; ++cell) {
      Offer(bench, *live_merger, i, cell, count);
    }
    live_merger->Crowd(i, 1);
  }
  EXPECT_EQ(taken, 0);
  for (int64_t cell = 2; cell >= 0; --cell) {
    Offer(bench, *live_merger, kIslands - 1, cell, count);
    EXPECT_EQ(taken, kIslands * (3 - cell));
  }
  const auto made = live_merger->Publish(0);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->digest, expected.digest);
  ExpectSameBits(bench.Read(1, 1), log.Read(1, 1));
}

TEST_F(LiveMergerTest, IslandsThatWaitForEachOtherAreFolded) {
  SCOPED_TRACE(seed_);
  Bench log(v1::DURABILITY_PROCESS);
  const PreparedFact expected = MergeFromLog(log);
  for (const bool one_left : {false, true}) {
    Bench bench(v1::DURABILITY_ISLAND);
    const auto live_merger = MakeLiveMerger(bench);
    for (int i = 0; i < kIslands; ++i) live_merger->Join(i);
    std::vector<int> taken(kIslands, 0);
    const auto offer = [&](int i, int64_t cell) {
      Offer(bench, *live_merger, i, cell, [&taken, i] { ++taken[i]; });
    };
    // Each island brings one cell, not all the same, and waits.
    for (int i = 0; i < kIslands; ++i) offer(i, i % 3);
    for (int i = 0; i + 1 < kIslands; ++i) live_merger->Crowd(i, 1);
    EXPECT_EQ(taken, std::vector<int>(kIslands, 0));
    if (one_left) {
      live_merger->Leave(kIslands - 1, false);
    } else {
      live_merger->Crowd(kIslands - 1, 1);
    }
    // Only the first contribution can be folded.
    EXPECT_EQ(taken, (std::vector<int>{1, 0, 0, 0}));
    live_merger->Crowd(0, -1);
    offer(0, 1);
    EXPECT_EQ(taken, (std::vector<int>{1, 0, 0, 0}));
    live_merger->Crowd(0, 1);
    EXPECT_EQ(taken, (std::vector<int>{2, 1, 0, 0}));
    for (int i = 0; i < kIslands; ++i) {
      for (int64_t cell = 0; cell < 3; ++cell) {
        if (cell == i % 3 || (i == 0 && cell == 1)) continue;
        offer(i, cell);
      }
    }
    EXPECT_EQ(taken, std::vector<int>(kIslands, 3));
    const auto made = live_merger->Publish(0);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(made->digest, expected.digest);
    ExpectSameBits(bench.Read(1, 0), log.Read(1, 0));
    ExpectSameBits(bench.Read(1, 1), log.Read(1, 1));
  }
}

TEST_F(LiveMergerTest, EveryCodecGivesTheBitsOfTheLog) {
  SCOPED_TRACE(seed_);
  for (const codec::CodecId id : codec::AllCodecs()) {
    UseCodec(static_cast<v1::Codec>(id));
    Bench log(v1::DURABILITY_PROCESS, codec_);
    const PreparedFact expected = MergeFromLog(log);
    Bench bench(v1::DURABILITY_ISLAND, codec_);
    const auto live_merger = MakeLiveMerger(bench);
    for (int64_t cell = 2; cell >= 0; --cell) {
      for (int i = kIslands - 1; i >= 0; --i) {
        Offer(bench, *live_merger, i, cell, [] {});
      }
    }
    const auto made = live_merger->Publish(0);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(made->digest, expected.digest) << codec::CodecName(id);
    ExpectSameBits(bench.Read(1, 0), log.Read(1, 0));
  }
}

TEST_F(LiveMergerTest, BlocksAreInCellsCountedFromTheFirst) {
  Bench bench(v1::DURABILITY_ISLAND);
  const auto live_merger = MakeLiveMerger(bench);
  EXPECT_EQ(live_merger->ToCells({0, 128}), (IndexRange{0, 2}));
  EXPECT_EQ(live_merger->ToCells({64, 151}), (IndexRange{1, 3}));
  EXPECT_EQ(live_merger->ToCells({0, 63}), (IndexRange{0, 1}));
  EXPECT_EQ(live_merger->ToCells({63, 65}), (IndexRange{0, 2}));
  EXPECT_EQ(live_merger->ToCells({64, 65}), (IndexRange{1, 2}));
}

TEST_F(LiveMergerTest, ThreadsThatBringContributionsGiveTheSameBits) {
  SCOPED_TRACE(seed_);
  Bench log(v1::DURABILITY_PROCESS);
  const PreparedFact expected = MergeFromLog(log);
  Bench bench(v1::DURABILITY_ISLAND);
  const auto live_merger = MakeLiveMerger(bench);
  std::atomic<int> taken{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kIslands; ++i) {
    threads.emplace_back([&, i] {
      for (int64_t cell = 0; cell < 3; ++cell) {
        Offer(bench, *live_merger, i, cell, [&taken] { ++taken; });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken, kIslands * 3);
  const auto made = live_merger->Publish(0);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->digest, expected.digest);
  ExpectSameBits(bench.Read(1, 1), log.Read(1, 1));
}

// By its sum; or by its own file, if the optimizer's state or the whole version
// does not fit the memory.
TEST_F(LiveMergerTest, APreparedVersionOutlivesTheProcess) {
  for (const int64_t memory_mib : {64, 5, 0}) {
    SCOPED_TRACE(memory_mib);
    ExpectThatItOutlivesTheProcess(memory_mib << 20);
  }
}

TEST_F(LiveMergerTest, ADamagedSumIsGivenUp) {
  Bench bench(v1::DURABILITY_ISLAND);
  {
    const auto live_merger = MakeLiveMerger(bench);
    for (int i = 0; i < kIslands; ++i) {
      for (int64_t cell = 0; cell < 3; ++cell) {
        Offer(bench, *live_merger, i, cell, [] {});
      }
    }
    ASSERT_TRUE(
        bench.store->versions().RecordPrepared(*live_merger->Publish(0)).ok());
  }
  auto sum = *bench.fs.OpenForWrite(MergeBench::Names().SumPath(0, 1));
  ASSERT_TRUE(sum->WriteAt(4096 + 77, "x").ok());
  bench.Open();
  EXPECT_TRUE(bench.store->Recovered().prepared_here.empty());
  EXPECT_FALSE(bench.store->versions().Find(0, 1).has_value());
}

void LiveMergerTest::ExpectThatItOutlivesTheProcess(int64_t memory_bytes) {
  Bench bench(v1::DURABILITY_ISLAND);
  bench.images = ImagePool::Create(memory_bytes);
  bench.Open();
  PreparedFact fact;
  {
    const auto live_merger = MakeLiveMerger(bench);
    for (int i = 0; i < kIslands; ++i) {
      for (int64_t cell = 0; cell < 3; ++cell) {
        Offer(bench, *live_merger, i, cell, [] {});
      }
    }
    fact = *live_merger->Publish(2);
    ASSERT_TRUE(bench.store->versions().RecordPrepared(fact).ok());
  }
  const auto theta = bench.Read(1, 0);
  const auto momentum = bench.Read(1, 1);
  bench.Open();
  const RecoveredShard recovered = bench.store->Recovered();
  EXPECT_EQ(recovered.prepared_here.count(0), 1);
  ASSERT_EQ(recovered.prepared.size(), 1);
  EXPECT_EQ(recovered.prepared[0].attempt, 2);
  ExpectSameBits(bench.Read(1, 0), theta);
  ExpectSameBits(bench.Read(1, 1), momentum);
  // It can be made durable.
  v1::Commit commit;
  commit.set_commit_seq(1);
  commit.set_version(1);
  ASSERT_TRUE(bench.store->Persist(1, commit, {}).ok());
  bench.Open();
  EXPECT_EQ(bench.store->Recovered().versions[0], 1);
  ExpectSameBits(bench.Read(1, 1), momentum);
}

TEST_F(LiveMergerTest,
       AReplicaAndItsDeltaAreThoseOfTheLogAndOutliveTheProcess) {
  SCOPED_TRACE(seed_);
  Bench log(v1::DURABILITY_PROCESS, codec_, v1::CODEC_BF16_STOCHASTIC);
  const PreparedFact expected = MergeFromLog(log);
  Bench bench(v1::DURABILITY_ISLAND, codec_, v1::CODEC_BF16_STOCHASTIC);
  {
    const auto live_merger = MakeLiveMerger(bench);
    for (int64_t cell = 2; cell >= 0; --cell) {
      for (int i = 0; i < kIslands; ++i) {
        Offer(bench, *live_merger, i, cell, [] {});
      }
    }
    const auto made = live_merger->Publish(0);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(made->replica_digest, expected.replica_digest);
    EXPECT_NE(made->replica_digest, made->digest);
    ASSERT_TRUE(bench.store->versions().RecordPrepared(*made).ok());
  }
  const std::string delta = log.ReadDelta();
  EXPECT_EQ(delta.size(), kElements * 2);
  for (const bool again : {false, true}) {
    if (again) bench.Open();
    ExpectSameBits(bench.Read(1, bench.store->versions().replica_array()),
                   log.Read(1, log.store->versions().replica_array()));
    // The delta was in memory only: it is made again from the versions.
    EXPECT_EQ(bench.ReadDelta(), delta) << again;
  }
}

TEST_F(LiveMergerTest, WithoutItsRecordAPreparedVersionIsMadeAgain) {
  Bench bench(v1::DURABILITY_ISLAND);
  {
    const auto live_merger = MakeLiveMerger(bench);
    for (int i = 0; i < kIslands; ++i) {
      for (int64_t cell = 0; cell < 3; ++cell) {
        Offer(bench, *live_merger, i, cell, [] {});
      }
    }
    ASSERT_TRUE(live_merger->Publish(0).ok());
  }
  bench.Open();
  EXPECT_TRUE(bench.store->Recovered().prepared_here.empty());
  EXPECT_FALSE(bench.store->versions().Find(0, 1).has_value());
}

// A read error does not prove that the file is damaged.
TEST_F(LiveMergerTest, WhatTheDiskDoesNotGiveNowIsThereForAnotherStart) {
  for (const int64_t memory_mib : {64, 0}) {
    Bench bench(v1::DURABILITY_ISLAND);
    bench.images = ImagePool::Create(memory_mib << 20);
    bench.Open();
    {
      const auto live_merger = MakeLiveMerger(bench);
      for (int i = 0; i < kIslands; ++i) {
        for (int64_t cell = 0; cell < 3; ++cell) {
          Offer(bench, *live_merger, i, cell, [] {});
        }
      }
      ASSERT_TRUE(bench.store->versions()
                      .RecordPrepared(*live_merger->Publish(2))
                      .ok());
    }
    const auto theta = bench.Read(1, 0);
    const auto momentum = bench.Read(1, 1);
    using Call = FakeFileSystem::Fault::Call;
    // Header, table, elements.
    for (const auto& [call, pass_count] :
         std::vector<std::pair<Call, int>>{{Call::kOpen, 0},
                                           {Call::kRead, 0},
                                           {Call::kRead, 1},
                                           {Call::kRead, 7}}) {
      SCOPED_TRACE(testing::Message()
                   << memory_mib << " MiB, " << static_cast<int>(call)
                   << " after " << pass_count);
      FakeFileSystem::Fault fault;
      fault.call = call;
      fault.path_part = memory_mib == 0 ? "f0-v1.ver" : "f0-v1.sum";
      fault.error_number = EIO;
      fault.pass_count = pass_count;
      bench.fs.AddFault(std::move(fault));
      const absl::Status opened = bench.TryOpen();
      EXPECT_TRUE(absl::IsUnavailable(opened)) << opened;
      EXPECT_NE(opened.message().find("f0-v1"), std::string::npos) << opened;
      EXPECT_NE(opened.message().find("Input/output error"), std::string::npos);
    }
    bench.Open();
    EXPECT_EQ(bench.store->Recovered().prepared_here.count(0), 1);
    ExpectSameBits(bench.Read(1, 0), theta);
    ExpectSameBits(bench.Read(1, 1), momentum);
  }
}

TEST_F(LiveMergerTest, WhatIsGivenUpIsNotLeftOnTheDisk) {
  Bench bench(v1::DURABILITY_ISLAND);
  auto live_merger = MakeLiveMerger(bench);
  Offer(bench, *live_merger, 0, 0, [] {});
  EXPECT_EQ(bench.Unfinished().size(), 2u);
  live_merger = nullptr;
  EXPECT_EQ(bench.Unfinished(), std::vector<std::string>());
  // Nor if the disk is too full for the second file.
  FakeFileSystem::Fault fault;
  fault.call = FakeFileSystem::Fault::Call::kReserve;
  fault.path_part = ".sum";
  fault.error_number = ENOSPC;
  bench.fs.AddFault(std::move(fault));
  EXPECT_FALSE(
      LiveMerger::Create(*bench.store, *bench.optimizer, *bench.rule, set_)
          .ok());
  EXPECT_EQ(bench.Unfinished(), std::vector<std::string>());
}

TEST_F(LiveMergerTest, AnAttemptThatEndsLateLeavesTheNextOneItsFiles) {
  Bench bench(v1::DURABILITY_ISLAND);
  auto older = MakeLiveMerger(bench);
  const auto live_merger = MakeLiveMerger(bench);
  older = nullptr;
  // The memory does not suffice for both: the later one has no sum.
  EXPECT_EQ(bench.Unfinished(), std::vector<std::string>({"f0-v1.ver.tmp"}));
  for (int i = 0; i < kIslands; ++i) {
    for (int64_t cell = 0; cell < 3; ++cell) {
      Offer(bench, *live_merger, i, cell, [] {});
    }
  }
  const auto made = live_merger->Publish(0);
  ASSERT_TRUE(made.ok()) << made.status();
  // As if it could not be recorded: it may be published again.
  bench.store->Unpublish(0, 1);
  EXPECT_FALSE(bench.store->versions().Find(0, 1).has_value());
  ASSERT_TRUE(live_merger->Publish(1).ok());
  v1::Commit commit;
  commit.set_commit_seq(1);
  commit.set_version(1);
  EXPECT_TRUE(bench.store->Persist(1, commit, {}).ok());
}

TEST_F(LiveMergerTest, WhoMergedLiveAndEndsLateLeavesTheNextSumItsFile) {
  Bench bench(v1::DURABILITY_ISLAND);
  auto older = MakeLiveMerger(bench);
  for (int i = 0; i < kIslands; ++i) {
    for (int64_t cell = 0; cell < 3; ++cell) {
      Offer(bench, *older, i, cell, [] {});
    }
  }
  ASSERT_TRUE(older->Publish(0).ok());
  bench.store->DiscardVersion(0, 1);  // The round is aborted.
  const auto again = bench.store->sums().New(0, 1);
  ASSERT_TRUE(again.ok()) << again.status();
  const auto later = bench.store->sums().New(0, 3);
  ASSERT_TRUE(later.ok()) << later.status();
  older = nullptr;  // Its last stream ends.
  EXPECT_TRUE(bench.fs.Exists((*again)->path()));
  EXPECT_TRUE(bench.fs.Exists((*later)->path()));
}

TEST_F(LiveMergerTest, AMergeThatFailsLeavesNoFile) {
  Bench bench(v1::DURABILITY_PROCESS);
  MergeFromLog(bench);
  bench.store->DiscardVersion(0, 1);
  bench.store->DropSpares();
  v1::Seal seal;
  v1::SealedContribution* sealed = seal.add_contributions();
  *sealed->mutable_key() = set_.keys[0].ToProto();
  sealed->set_weight(1);
  FakeFileSystem::Fault fault;
  fault.call = FakeFileSystem::Fault::Call::kRead;
  fault.path_part = ".seg";
  fault.error_number = EIO;
  fault.pass_count = 2;
  bench.fs.AddFault(std::move(fault));
  EXPECT_FALSE(
      bench.merger.Merge(*bench.store, *bench.optimizer, *bench.rule, seal)
          .ok());
  EXPECT_EQ(bench.Unfinished(), std::vector<std::string>());
}

// The disk has space again, but the refused bytes are gone.
TEST_F(LiveMergerTest, ASumThatMetAFullDiskHasToComeAgain) {
  Bench bench(v1::DURABILITY_ISLAND);
  const auto live_merger = MakeLiveMerger(bench);
  FakeFileSystem::Fault fault;
  fault.call = FakeFileSystem::Fault::Call::kWrite;
  fault.path_part = ".sum";
  fault.error_number = ENOSPC;
  bench.fs.AddFault(std::move(fault));
  for (int i = 0; i < kIslands; ++i) {
    for (int64_t cell = 0; cell < 3; ++cell) {
      Offer(bench, *live_merger, i, cell, [] {});
    }
  }
  // UNAVAILABLE tells the shard to ask for the contributions again.
  EXPECT_TRUE(absl::IsUnavailable(live_merger->Publish(0).status()));
  EXPECT_TRUE(absl::IsUnavailable(live_merger->Publish(1).status()));
}

TEST_F(LiveMergerTest, ARoundThatLacksACellIsNotPublished) {
  Bench bench(v1::DURABILITY_ISLAND);
  const auto live_merger = MakeLiveMerger(bench);
  Offer(bench, *live_merger, 0, 0, [] {});
  EXPECT_FALSE(live_merger->Publish(0).ok());
}

}  // namespace
}  // namespace atl::server
