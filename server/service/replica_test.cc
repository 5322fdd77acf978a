// Lossy downlink codecs: islands hold the shards' replica bit for bit.

#include <string>
#include <vector>

#include "base/codec/codec.h"
#include "base/layout/digest.h"
#include "gtest/gtest.h"
#include "server/service/testing/test_cluster.h"

namespace atl::server {
namespace {

#define ASSERT_OK(expr)                                     \
  do {                                                      \
    const absl::Status assert_ok_status = (expr);           \
    ASSERT_TRUE(assert_ok_status.ok()) << assert_ok_status; \
  } while (false)

v1::Run ReplicaRun(codec::CodecId down) {
  v1::Run run = SmallRun();
  run.mutable_spec()->mutable_exchange()->set_down(
      static_cast<v1::Codec>(down));
  run.mutable_spec()->mutable_exchange()->set_seed(11);
  return run;
}

class Follower {
 public:
  explicit Follower(TestCluster& cluster)
      : cluster_(cluster),
        replicas_(cluster.layout().fragment_count()),
        versions_(replicas_.size(), -1) {}

  // Pulls `version` of all fragments; returns the bytes, -1 after an error.
  int64_t Follow(int64_t version) {
    int64_t bytes = 0;
    for (size_t f = 0; f < replicas_.size(); ++f) {
      const auto pulled = cluster_.PullReplica(static_cast<int32_t>(f), version,
                                               versions_[f], replicas_[f]);
      EXPECT_TRUE(pulled.ok()) << pulled.status();
      if (!pulled.ok()) return -1;
      versions_[f] = version;
      bytes += *pulled;
    }
    return bytes;
  }

  const std::vector<std::vector<float>>& replicas() const { return replicas_; }

 private:
  TestCluster& cluster_;
  std::vector<std::vector<float>> replicas_;
  std::vector<int64_t> versions_;
};

int64_t FullBytes(const TestCluster& cluster) {
  return cluster.layout().element_count() * 4;
}

// Raw bits, because -0 is not 0.
std::string Bits(const std::vector<std::vector<float>>& replicas) {
  std::string bits;
  for (const auto& replica : replicas) {
    bits.append(reinterpret_cast<const char*>(replica.data()),
                replica.size() * 4);
  }
  return bits;
}

std::string ComputeReplicas(const v1::Run& run, int server_count,
                            int merge_threads, int rounds) {
  TestCluster cluster(run, server_count, merge_threads);
  EXPECT_TRUE(cluster.StartAll().ok());
  EXPECT_TRUE(cluster.Begin().ok());
  Follower island(cluster);
  EXPECT_EQ(island.Follow(0), FullBytes(cluster));
  for (int v = 0; v < rounds; ++v) {
    EXPECT_TRUE(cluster.Round(v, 2).ok());
    EXPECT_LT(island.Follow(v + 1), FullBytes(cluster));
  }
  Follower joiner(cluster);
  EXPECT_EQ(joiner.Follow(rounds), FullBytes(cluster));
  EXPECT_EQ(Bits(joiner.replicas()), Bits(island.replicas()));
  return Bits(island.replicas());
}

class ReplicaTest : public testing::TestWithParam<codec::CodecId> {};

TEST_P(ReplicaTest, DependsNeitherOnShardsNorOnThreadsNorOnTheWay) {
  const v1::Run run = ReplicaRun(GetParam());
  const std::string one = ComputeReplicas(run, 1, 1, 3);
  EXPECT_EQ(ComputeReplicas(run, 2, 2, 3), one);
  EXPECT_EQ(ComputeReplicas(run, 3, 1, 3), one);
  EXPECT_NE(ComputeReplicas(run, 1, 1, 2), one);
}

INSTANTIATE_TEST_SUITE_P(
    Codecs, ReplicaTest,
    testing::Values(codec::CodecId::kBf16, codec::CodecId::kBf16Stochastic,
                    codec::CodecId::kInt8, codec::CodecId::kE3m0,
                    codec::CodecId::kTwoBit, codec::CodecId::kTopK),
    [](const auto& codec) {
      return std::string(codec::CodecName(codec.param));
    });

TEST(ReplicaServerTest, ParametersDoNotDependOnTheReplicaOfThem) {
  // The contributions are the same: here they do not depend on the replica.
  std::string sha256[2];
  for (const bool lossy : {false, true}) {
    TestCluster cluster(
        ReplicaRun(lossy ? codec::CodecId::kInt8 : codec::CodecId::kF32), 2);
    ASSERT_OK(cluster.StartAll());
    ASSERT_OK(cluster.Begin());
    for (int v = 0; v < 2; ++v) ASSERT_OK(cluster.Round(v, 2));
    sha256[lossy] = *cluster.Sha256();
    Follower island(cluster);
    island.Follow(2);
    // With a lossless codec the replica is the parameters.
    const auto theta = cluster.Pull(0, 2);
    ASSERT_OK(theta.status());
    EXPECT_EQ(island.replicas()[0] == *theta, !lossy);
  }
  EXPECT_EQ(sha256[0], sha256[1]);
}

TEST(ReplicaServerTest, WhoWasAwayForLongerThanTheRingGetsTheReplicaInFull) {
  TestCluster cluster(ReplicaRun(codec::CodecId::kInt8), 2);
  ASSERT_OK(cluster.StartAll());
  ASSERT_OK(cluster.Begin());
  Follower steady(cluster), away(cluster), longer_away(cluster);
  steady.Follow(0);
  away.Follow(0);
  longer_away.Follow(0);
  int64_t steady_bytes = 0;
  for (int v = 1; v <= 3; ++v) {
    ASSERT_OK(cluster.Round(v - 1, 2));
    steady_bytes += steady.Follow(v);
  }
  // Three deltas at once take as many bytes as one after the other.
  EXPECT_EQ(away.Follow(3), steady_bytes);
  EXPECT_EQ(Bits(away.replicas()), Bits(steady.replicas()));
  ASSERT_OK(cluster.Round(3, 2));
  EXPECT_LT(steady.Follow(4), FullBytes(cluster) / 3);
  EXPECT_EQ(longer_away.Follow(4), FullBytes(cluster));
  EXPECT_EQ(Bits(longer_away.replicas()), Bits(steady.replicas()));
}

TEST(ReplicaServerTest, RestartsAndPowerCutsChangeNoBitOfIt) {
  const v1::Run run = ReplicaRun(codec::CodecId::kE3m0);
  const std::string undisturbed = ComputeReplicas(run, 2, 1, 3);
  TestCluster cluster(run, 2);
  ASSERT_OK(cluster.StartAll());
  ASSERT_OK(cluster.Begin());
  Follower island(cluster);
  island.Follow(0);
  ASSERT_OK(cluster.Round(0, 2));
  cluster.Stop(1);
  ASSERT_OK(cluster.Start(1));
  EXPECT_LT(island.Follow(1), FullBytes(cluster) / 4);
  ASSERT_OK(cluster.Round(1, 2));
  cluster.CutPower(0);
  ASSERT_OK(cluster.Start(0));
  // Without the ring, the newest version's delta is made again.
  EXPECT_LT(island.Follow(2), FullBytes(cluster) / 4);
  ASSERT_OK(cluster.Round(2, 2));
  EXPECT_LT(island.Follow(3), FullBytes(cluster) / 4);
  EXPECT_EQ(Bits(island.replicas()), undisturbed);
}

TEST(ReplicaServerTest, ACommitThatWasNotPersistedMakesTheSameReplicaAgain) {
  const v1::Run run = ReplicaRun(codec::CodecId::kBf16Stochastic);
  std::string replicas[2];
  for (const bool cut : {false, true}) {
    TestCluster cluster(run, 1);
    ASSERT_OK(cluster.StartAll());
    ASSERT_OK(cluster.Begin());
    ASSERT_OK(cluster.Round(0, 1));
    Follower island(cluster);
    island.Follow(1);
    for (int32_t f = 0; f < 2; ++f) {
      const auto gradient = cluster.Gradient(f, 0, 1);
      const auto info = cluster.Info(f, 0, 1, gradient);
      ASSERT_OK(cluster.Push(info, gradient));
      const auto digest = cluster.Seal(f, 1, {info});
      ASSERT_OK(digest.status());
      if (cut) {
        // The coordinator commits while the shard is down.
        cluster.CutPower(0);
        cluster.AddCommit(f, 1, *digest);
        ASSERT_OK(cluster.Start(0));
        const int64_t seq = cluster.commit_seq();
        ASSERT_OK(cluster
                      .WaitForReport(0,
                                     [seq](const v1::ShardReport& r) {
                                       return r.persisted_commit_seq() == seq;
                                     })
                      .status());
      } else {
        ASSERT_OK(cluster.Commit(f, 1, *digest));
      }
    }
    EXPECT_LT(island.Follow(2), FullBytes(cluster));
    replicas[cut] = Bits(island.replicas());
  }
  EXPECT_EQ(replicas[0], replicas[1]);
}

TEST(ReplicaServerTest, AnAbortedAttemptLeavesNothingInTheReplica) {
  TestCluster cluster(ReplicaRun(codec::CodecId::kInt8), 1);
  ASSERT_OK(cluster.StartAll());
  ASSERT_OK(cluster.Begin());
  Follower island(cluster);
  island.Follow(0);
  std::vector<v1::ContributionInfo> infos;
  for (int32_t slot = 0; slot < 2; ++slot) {
    const auto gradient = cluster.Gradient(0, slot, 0);
    infos.push_back(cluster.Info(0, slot, 0, gradient));
    ASSERT_OK(cluster.Push(infos.back(), gradient));
  }
  ASSERT_OK(cluster.Seal(0, 0, infos).status());
  cluster.plan().clear_seals();
  cluster.plan().mutable_open_rounds(0)->set_attempt(1);
  const auto second = cluster.Seal(0, 0, {infos[1]}, /*attempt=*/1);
  ASSERT_OK(second.status());
  ASSERT_OK(cluster.Commit(0, 0, *second, /*attempt=*/1));
  std::vector<float> chained = island.replicas()[0], full;
  ASSERT_OK(cluster.PullReplica(0, 1, 0, chained).status());
  ASSERT_OK(cluster.PullReplica(0, 1, -1, full).status());
  EXPECT_EQ(chained, full);
}

TEST(ReplicaServerTest, ADamagedDeltaIsReplacedByTheReplicaInFull) {
  TestCluster cluster(ReplicaRun(codec::CodecId::kBf16), 1);
  ASSERT_OK(cluster.StartAll());
  ASSERT_OK(cluster.Begin());
  Follower island(cluster);
  island.Follow(0);
  ASSERT_OK(cluster.Round(0, 1));
  cluster.Stop(0);
  const std::string path = TestCluster::Names(0).deltas() + "/f0-v1.dlt";
  ASSERT_TRUE(cluster.fs(0).Exists(path));
  {
    auto file = *cluster.fs(0).OpenForWrite(path);
    ASSERT_OK(file->WriteAt(4096 + 9000, "!!"));
  }
  ASSERT_OK(cluster.Start(0));
  const int64_t bytes = island.Follow(1);
  EXPECT_GT(bytes, FullBytes(cluster) / 2);
  Follower joiner(cluster);
  joiner.Follow(1);
  EXPECT_EQ(Bits(island.replicas()), Bits(joiner.replicas()));
}

TEST(ReplicaServerTest, APinnedVersionHasItsReplica) {
  TestCluster cluster(ReplicaRun(codec::CodecId::kInt8), 2);
  ASSERT_OK(cluster.StartAll());
  ASSERT_OK(cluster.Begin());
  Follower island(cluster);
  island.Follow(0);
  ASSERT_OK(cluster.Round(0, 1));
  island.Follow(1);
  v1::Pin* pin = cluster.plan().add_pins();
  pin->set_pin_id("kept");
  for (int f = 0; f < 2; ++f) {
    v1::FragmentVersion* version = pin->add_cut();
    version->set_fragment(f);
    version->set_version(1);
  }
  for (int v = 1; v < 5; ++v) ASSERT_OK(cluster.Round(v, 1));
  std::vector<float> replica;
  ASSERT_OK(cluster.PullReplica(0, 1, -1, replica).status());
  EXPECT_EQ(replica, island.replicas()[0]);
  // Its delta is gone, but this and the one before are not needed.
  replica.clear();
  EXPECT_TRUE(
      absl::IsOutOfRange(cluster.PullReplica(0, 2, 1, replica).status()));
}

TEST(ReplicaServerTest, WhatTheRingTakesDoesNotGrow) {
  TestCluster cluster(ReplicaRun(codec::CodecId::kInt8), 1);
  ASSERT_OK(cluster.StartAll());
  ASSERT_OK(cluster.Begin());
  for (int v = 0; v < 8; ++v) {
    ASSERT_OK(cluster.Round(v, 1));
    const auto names = cluster.fs(0).List(TestCluster::Names(0).deltas());
    ASSERT_OK(names.status());
    // Each of two fragments has three, one in progress and one spare.
    EXPECT_LE(names->size(), 10u) << v;
  }
}

}  // namespace
}  // namespace atl::server
