#include "worker/island/group/island_place.h"

#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace atl::worker {
namespace {

IslandPlace Place(const std::string& mesh, int count, int index,
                  const std::string& rendezvous) {
  IslandPlace place;
  place.mesh = mesh;
  place.process_count = count;
  place.process_index = index;
  place.rendezvous = rendezvous;
  return place;
}

TEST(IslandPlaceTest, GivesTheMesh) {
  EXPECT_EQ(MakeMesh({})->rank_count(), 1);
  EXPECT_EQ(MakeMesh(Place("dp_shard=2", 1, 0, ""))->rank_count(), 2);
  EXPECT_EQ(
      MakeMesh(Place("dp_shard=4,tp=2", 2, 1, "host:29500"))->rank_count(), 8);
}

TEST(IslandPlaceTest, APipelineGetsMicroBatchesThatKeepItBusy) {
  IslandPlace place = Place("pp=2,dp_shard=2", 1, 0, "");
  const engine::Mesh mesh = *MakeMesh(place);
  EXPECT_EQ(MakeMeshOptions(place, mesh, 16).micro_batch_count, 4);
  // Of equal size.
  EXPECT_EQ(MakeMeshOptions(place, mesh, 12).micro_batch_count, 3);
  EXPECT_EQ(MakeMeshOptions(place, mesh, 2).micro_batch_count, 1);
  place.micro_batch_count = 8;
  EXPECT_EQ(MakeMeshOptions(place, mesh, 16).micro_batch_count, 8);
}

TEST(IslandPlaceTest, KnowsAPlainRank) {
  const engine::Mesh one;
  EXPECT_TRUE(IsPlainRank({}, one));
  EXPECT_FALSE(IsPlainRank({}, *engine::Mesh::Parse("tp=2")));
  IslandPlace place;
  place.checkpointing = engine::ActivationCheckpointing::kFull;
  EXPECT_FALSE(IsPlainRank(place, one));
  place = {};
  place.optimizer_directory = "moments";
  EXPECT_FALSE(IsPlainRank(place, one));
  place = {};
  place.micro_batch_count = 2;
  EXPECT_FALSE(IsPlainRank(place, one));
}

TEST(IslandPlaceTest, ProcessesAgreeOnAllButTheirOwnDirectory) {
  const IslandPlace place = Place("tp=2", 2, 0, "h:1");
  const engine::Mesh mesh = *MakeMesh(place);
  IslandPlace other = place;
  other.process_index = 1;
  other.optimizer_directory = "elsewhere";
  EXPECT_EQ(DescribeAgreement(place, mesh), DescribeAgreement(other, mesh));
  other.sharding = engine::ShardingMode::kZero1;
  EXPECT_NE(DescribeAgreement(place, mesh), DescribeAgreement(other, mesh));
}

TEST(IslandPlaceTest, ProcessesAgreeOnTheKindOfTheirDevices) {
  IslandPlace place = Place("tp=2", 2, 0, "h:1");
  IslandPlace other = Place("tp=2", 2, 1, "h:1");
  place.device = "cuda:0";
  other.device = "cuda:1,graphs=off";
  const engine::Mesh mesh = *MakeMesh(place);
  EXPECT_EQ(DescribeAgreement(place, mesh), DescribeAgreement(other, mesh));
  other.device = "cpu";
  const std::string on_cpu = DescribeAgreement(other, mesh);
  EXPECT_NE(DescribeAgreement(place, mesh), on_cpu);
  other.device = "";
  EXPECT_EQ(DescribeAgreement(other, mesh), on_cpu);
  other.device = "gpu";
  EXPECT_TRUE(
      absl::StartsWith(MakeMesh(other).status().message(),
                       "\"gpu\" is not a device: use cpu, cuda or cuda:N"));
}

TEST(IslandPlaceTest, MomentsOnTheHostAreAMeshsMatter) {
  IslandPlace place;
  EXPECT_TRUE(IsPlainRank(place, engine::Mesh()));
  place.optimizer_on_host = true;
  EXPECT_FALSE(IsPlainRank(place, engine::Mesh()));
  EXPECT_TRUE(MakeMeshOptions(place, engine::Mesh(), 8).optimizer_on_host);
  place.optimizer_directory = "/fast";
  EXPECT_FALSE(MakeMesh(place).ok());
}

TEST(IslandPlaceTest, SaysWhatIsWrong) {
  const struct {
    IslandPlace place;
    std::string says;
  } cases[] = {
      {Place("dp=2", 1, 0, ""), "dp"},
      {Place("tp=3", 2, 0, "h:1"), "3 ranks, which 2 processes cannot share"},
      {Place("tp=2", 0, 0, ""), "at least one process"},
      {Place("tp=2", 2, 2, "h:1"), "the last is 1"},
      {Place("tp=2", 2, -1, "h:1"), "process_index is -1"},
      {Place("tp=2", 2, 0, ""), "HOST:PORT"},
      {Place("tp=2", 2, 0, "host"), "HOST:PORT"},
      {Place("tp=2", 2, 0, ":1"), "HOST:PORT"},
      {Place("tp=2", 1, 0, "h:1"), "leave it out"},
  };
  for (const auto& wrong : cases) {
    const absl::Status status = MakeMesh(wrong.place).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StrContains(status.message(), wrong.says)) << status;
  }
}

}  // namespace
}  // namespace atl::worker
