// Consecutive rounds in little memory: the next version is made in place of the
// newest, with the same bits as versions in files.

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status/check.h"
#include "gtest/gtest.h"
#include "server/merge/testing/merge_bench.h"
#include "server/store/records/run_records.h"

namespace atl::server {
namespace {

constexpr int64_t kElements = MergeBench::kElements;
constexpr int kIslands = 2;
constexpr int64_t kRounds = 4;

struct Bench : MergeBench {
  Bench(v1::Codec down, int64_t memory_bytes, unsigned the_seed)
      : MergeBench(v1::DURABILITY_PROCESS, v1::CODEC_F32, down, memory_bytes),
        seed(the_seed) {}

  // Stores the contributions to version `v` + 1; returns their seal.
  v1::Seal Push(int64_t v) {
    v1::Seal seal;
    seal.set_version(v);
    for (int i = 0; i < kIslands; ++i) {
      std::mt19937 random(seed + static_cast<unsigned>(v * kIslands + i));
      std::normal_distribution<float> normal;
      std::vector<float> vector(kElements);
      for (float& element : vector) element = normal(random);
      v1::ContributionInfo info;
      info.mutable_key()->set_run_epoch(1);
      info.mutable_key()->set_slot(i);
      info.mutable_key()->set_seq(v + 1);
      info.set_anchor_version(v);
      info.set_codec(v1::CODEC_F32);
      Store(info, {reinterpret_cast<const char*>(vector.data()),
                   kElements * sizeof(float)});
      v1::SealedContribution* sealed = seal.add_contributions();
      *sealed->mutable_key() = info.key();
      sealed->set_weight(0.5f);
    }
    return seal;
  }

  void Commit(const v1::Seal& seal) {
    store->versions().Commit(0, seal.version() + 1, seal.version() + 1);
  }

  void Persist(const v1::Seal& seal) {
    v1::Commit commit;
    commit.set_commit_seq(seal.version() + 1);
    commit.set_version(seal.version() + 1);
    std::vector<ContributionKey> keys;
    for (const auto& sealed : seal.contributions()) {
      keys.push_back(ContributionKey::FromProto(sealed.key()));
    }
    CHECK(store->Persist(1, commit, keys).ok());
  }

  VersionFile& File(int64_t version) {
    return *store->versions().Find(0, version)->file;
  }

  const unsigned seed;
};

// For runs whose islands hold theta, and runs with a replica.
class CarriedRoundsTest : public testing::TestWithParam<v1::Codec> {
 protected:
  CarriedRoundsTest() : seed_(std::random_device()()) {}

  bool has_replica() const { return GetParam() != v1::CODEC_F32; }
  // Theta, state, replica and two deltas of bf16; or theta twice and state.
  int64_t bytes_max() const {
    return (has_replica() ? 3 + 1 : 3) * ImagePool::AsBytes(kElements);
  }

  void ExpectSameVersion(Bench& a, Bench& b, int64_t version) {
    for (int array = 0; array <= a.store->versions().state_count(); ++array) {
      const std::vector<float> of_a = a.Read(version, array);
      const std::vector<float> of_b = b.Read(version, array);
      EXPECT_EQ(
          std::memcmp(of_a.data(), of_b.data(), kElements * sizeof(float)), 0)
          << "version " << version << " array " << array;
    }
  }

  const unsigned seed_;
};

TEST_P(CarriedRoundsTest, TheNextVersionIsMadeInThePlaceOfTheNewest) {
  SCOPED_TRACE(seed_);
  Bench files(GetParam(), 0, seed_);
  Bench bench(GetParam(), 64 << 20, seed_);
  for (int64_t v = 0; v < kRounds; ++v) {
    const v1::Seal seal = bench.Push(v);
    const PreparedFact expected = files.Merge(files.Push(v));
    PreparedFact fact = bench.Merge(seal);
    VersionFile& made = bench.File(v + 1);
    EXPECT_TRUE(made.carries(1));
    EXPECT_TRUE(made.InMemory());
    EXPECT_EQ(made.carries(0), has_replica());
    if (has_replica()) {
      EXPECT_TRUE(made.carries(2));
    }
    // The version before is read from its file, also for a repeated merge.
    ExpectSameVersion(bench, files, v);
    if (v % 2 == 1) {
      bench.store->DiscardVersion(0, v + 1);
      fact = bench.Merge(seal);
      EXPECT_FALSE(bench.File(v + 1).carries(1));
    }
    EXPECT_EQ(fact.digest, expected.digest);
    EXPECT_EQ(fact.replica_digest, expected.replica_digest);
    EXPECT_LE(bench.images->bytes(), bytes_max());
    for (Bench* one : {&bench, &files}) {
      one->Commit(seal);
      one->Persist(seal);
    }
    ExpectSameVersion(bench, files, v + 1);
    // As a shard releases versions.
    for (Bench* one : {&bench, &files}) one->store->versions().Remove(0, v - 1);
  }
  bench.Open();
  ExpectSameVersion(bench, files, kRounds);
  ExpectSameVersion(bench, files, kRounds - 1);
}

// Every second file has no replica, and needs the file before.
TEST_P(CarriedRoundsTest, AReplicaThatIsLeftOutIsMadeOfTheVersionBefore) {
  if (!has_replica()) GTEST_SKIP() << "no replica";
  SCOPED_TRACE(seed_);
  Bench files(GetParam(), 0, seed_);
  Bench bench(GetParam(), 64 << 20, seed_);
  for (int64_t v = 0; v < kRounds; ++v) {
    const v1::Seal seal = bench.Push(v);
    bench.Merge(seal);
    files.Merge(files.Push(v));
    for (Bench* one : {&bench, &files}) {
      one->Commit(seal);
      one->Persist(seal);
    }
    EXPECT_EQ(bench.File(v + 1).replica_left_out(), v % 2 == 0);
    EXPECT_FALSE(files.File(v + 1).replica_left_out());
    bench.File(v + 1).DropImage();
    ExpectSameVersion(bench, files, v + 1);
    bench.store->versions().Remove(0, v - 1);
    EXPECT_FALSE(bench.store->versions().Find(0, v - 1).has_value());
    // Version v - 1 stays as long as v's replica is made from it.
    EXPECT_EQ(bench.fs.Exists(MergeBench::Names().VersionPath(0, v - 1)),
              v % 2 == 1);
    bench.Open();
    ExpectSameVersion(bench, files, v + 1);
    bench.store->versions().Remove(0, v - 1);
    ExpectSameVersion(bench, files, v);
  }
  // Version 3's replica is made from version 2's, which is damaged here.
  bench.store->versions().Remove(0, 4);
  auto file = *bench.fs.OpenForWrite(MergeBench::Names().VersionPath(0, 2));
  ASSERT_TRUE(file->WriteAt(4096 + 2 * (kElements * 4 + 4096), "xxxx").ok());
  std::vector<float> elements(kElements);
  EXPECT_TRUE(absl::IsDataLoss(
      bench.File(3).Read(2, bench.store->range(0).blocks(), elements.data())));
}

TEST_P(CarriedRoundsTest, WithoutTheVersionBeforeANewestReplicaIsDataLoss) {
  if (!has_replica()) GTEST_SKIP() << "no replica";
  Bench bench(GetParam(), 64 << 20, seed_);
  const v1::Seal seal = bench.Push(0);
  bench.Merge(seal);
  bench.Commit(seal);
  bench.Persist(seal);
  bench.store.reset();
  ASSERT_TRUE(bench.fs.Remove(MergeBench::Names().VersionPath(0, 0)).ok());
  const auto run = ReadRun(bench.records);
  ASSERT_TRUE(run.ok()) << run.status();
  const auto opened =
      RunStore::Open(bench.fs, bench.records, "data", *run, 1, bench.images);
  EXPECT_TRUE(absl::IsDataLoss(opened.status())) << opened.status();
}

TEST_P(CarriedRoundsTest, WhatTheFileDoesNotHaveStaysAndTheBoundHolds) {
  SCOPED_TRACE(seed_);
  Bench files(GetParam(), 0, seed_);
  Bench bench(GetParam(), 64 << 20, seed_);
  std::vector<v1::Seal> seals;
  for (int64_t v = 0; v < kRounds; ++v) {
    seals.push_back(bench.Push(v));
    const PreparedFact expected = files.Merge(files.Push(v));
    const PreparedFact fact = bench.Merge(seals.back());
    EXPECT_EQ(fact.digest, expected.digest);
    EXPECT_EQ(fact.replica_digest, expected.replica_digest);
    EXPECT_EQ(bench.File(v + 1).carries(1), v == 0);
    EXPECT_LE(bench.images->bytes(), bytes_max());
    for (Bench* one : {&bench, &files}) one->Commit(seals.back());
    ExpectSameVersion(bench, files, v + 1);
  }
  for (const v1::Seal& seal : seals) bench.Persist(seal);
  bench.Open();
  ExpectSameVersion(bench, files, kRounds);
}

INSTANTIATE_TEST_SUITE_P(Down, CarriedRoundsTest,
                         testing::Values(v1::CODEC_F32, v1::CODEC_BF16),
                         [](const auto& info) {
                           return v1::Codec_Name(info.param);
                         });

}  // namespace
}  // namespace atl::server
