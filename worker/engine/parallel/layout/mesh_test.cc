#include "worker/engine/parallel/layout/mesh.h"

#include <algorithm>
#include <iostream>
#include <random>
#include <set>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace atl::engine {
namespace {

Mesh Of(absl::string_view text) {
  absl::StatusOr<Mesh> mesh = Mesh::Parse(text);
  EXPECT_TRUE(mesh.ok()) << mesh.status();
  return *mesh;
}

void ExpectRefused(const absl::Status& status, absl::string_view why) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), why)) << status;
}

Mesh RandomMesh(std::mt19937& random) {
  std::string text;
  for (const char* name :
       {"tp", "cp", "pp", "ep", "dp_shard", "dp_replicate"}) {
    if (random() % 3 == 0) continue;
    text += (text.empty() ? "" : ",") + std::string(name) + "=" +
            std::to_string(1 + random() % 4);
  }
  return Of(text);
}

TEST(MeshTest, ReadsWhatItWrites) {
  EXPECT_EQ(Of("dp_shard=4,tp=2").ToString(), "dp_shard=4,tp=2");
  EXPECT_EQ(Of("tp=2,pp=3,ep=1").ToString(), "pp=3,tp=2");
  EXPECT_EQ(Of("").ToString(), "");
  EXPECT_EQ(Of("").rank_count(), 1);
  EXPECT_EQ(Of("tp=2,pp=3").rank_count(), 6);
}

TEST(MeshTest, RefusesWhatIsNoMesh) {
  ExpectRefused(Mesh::Parse("dp=2").status(), "no dimension \"dp\"");
  ExpectRefused(Mesh::Parse("tp=2,tp=2").status(), "twice");
  for (const char* wrong :
       {"tp", "tp=", "tp=0", "tp=-1", "tp=x", "tp=2=3", "tp=99999999999"}) {
    ExpectRefused(Mesh::Parse(wrong).status(), "is not a dimension");
  }
  for (const char* wrong : {",", "tp=2,", " tp=2"}) {
    ExpectRefused(Mesh::Parse(wrong).status(), "no dimension");
  }
  ExpectRefused(Mesh::Parse("tp=65536,pp=65536").status(), "at most 65536");
}

TEST(MeshTest, TpRanksAreNeighboursAndStagesAreFarthest) {
  const Mesh mesh = Of("pp=2,dp_shard=2,tp=2");
  EXPECT_EQ(mesh.FindGroup(0, MeshDimension::kTp), (std::vector<int>{0, 1}));
  EXPECT_EQ(mesh.FindGroup(1, MeshDimension::kDpShard),
            (std::vector<int>{1, 3}));
  EXPECT_EQ(mesh.FindGroup(1, MeshDimension::kPp), (std::vector<int>{1, 5}));
  EXPECT_EQ(mesh.Coordinate(5, MeshDimension::kPp), 1);
}

TEST(MeshTest, ShardsOfExpertsLieApartFromOthers) {
  const Mesh mesh = Of("dp_replicate=2,dp_shard=2,ep=2,cp=2");
  EXPECT_EQ(mesh.FindGroup(0, kShardGroup),
            (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(mesh.FindGroup(0, kExpertShardGroup),
            (std::vector<int>{0, 1, 4, 5}));
  EXPECT_EQ(mesh.FindGroup(0, kBatchGroup).size(), 8);
  EXPECT_EQ(mesh.size(kLossGroup), 16);
}

TEST(MeshTest, GroupsPartitionTheRanksWhateverTheMesh) {
  const uint32_t seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  for (int i = 0; i < 40; ++i) {
    const Mesh mesh = RandomMesh(random);
    if (mesh.rank_count() > 256) continue;
    for (const MeshDimensions dimensions :
         {MeshDimensions(MeshDimension::kPp),
          MeshDimensions(MeshDimension::kTp),
          MeshDimensions(MeshDimension::kEp), MeshDimensions(), kBatchGroup,
          kLossGroup, kShardGroup, kExpertShardGroup}) {
      std::set<int> seen;
      for (int rank = 0; rank < mesh.rank_count(); ++rank) {
        ASSERT_EQ(mesh.RankAt(mesh.ToCoordinates(rank)), rank);
        const std::vector<int> group = mesh.FindGroup(rank, dimensions);
        ASSERT_EQ(group.size(), mesh.size(dimensions));
        ASSERT_TRUE(std::is_sorted(group.begin(), group.end()));
        // Split orders the group by rank, too.
        ASSERT_EQ(group[mesh.RankIn(rank, dimensions)], rank);
        ASSERT_EQ(mesh.ComputeColor(rank, dimensions), group[0]);
        // Members differ only in these dimensions.
        const MeshVector own = mesh.ToCoordinates(rank);
        for (int other : group) {
          const MeshVector theirs = mesh.ToCoordinates(other);
          for (int d = 0; d < kMeshDimensionCount; ++d) {
            ASSERT_TRUE(dimensions.Has(d) || own[d] == theirs[d]);
          }
        }
        if (group[0] == rank) seen.insert(group.begin(), group.end());
      }
      ASSERT_EQ(seen.size(), mesh.rank_count());
    }
  }
}

TEST(MeshTest, SaysWhyAModelDoesNotFit) {
  MeshModel model;
  model.layer_count = 4;
  model.head_count = 8;
  model.kv_head_count = 2;
  model.feed_forward_size = 96;
  model.sequence_length = 32;
  EXPECT_TRUE(Of("pp=4,tp=2,cp=2,dp_shard=7").Validate(model).ok());
  ExpectRefused(Of("pp=5").Validate(model), "pp = 5 is more than the 4 layers");
  ExpectRefused(Of("tp=3").Validate(model),
                "tp = 3 does not divide 8 attention heads");
  ExpectRefused(Of("tp=4").Validate(model), "2 key and value heads");
  ExpectRefused(Of("ep=2").Validate(model), "has no experts");
  ExpectRefused(Of("cp=3").Validate(model), "2 cp = 6 does not divide 32");
  model.expert_count = 8;
  EXPECT_TRUE(Of("ep=4").Validate(model).ok());
  ExpectRefused(Of("ep=3").Validate(model), "8 experts");
  model.feed_forward_size = 97;
  ExpectRefused(Of("tp=2").Validate(model), "97 columns");
  EXPECT_TRUE(Of("tp=2,pp=9").Validate(MeshModel()).ok());
}

}  // namespace
}  // namespace atl::engine
