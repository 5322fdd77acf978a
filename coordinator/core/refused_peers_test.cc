#include "coordinator/core/refused_peers.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(2'000'000);

v1::Fault OtherCluster() {
  v1::Fault fault;
  fault.set_code("OTHER_CLUSTER");
  fault.set_expected("cluster b");
  fault.set_found("cluster a");
  return fault;
}

v1::GetClusterResponse List(const RefusedPeers& peers, absl::Time now) {
  v1::GetClusterResponse response;
  peers.List(now, response);
  return response;
}

TEST(RefusedPeersTest, APeerIsListedAndLoggedOnceAMinute) {
  RefusedPeers peers;
  const PeerName island = {"island", "a", "run"};
  EXPECT_EQ(peers.Note(island, OtherCluster(), kStart),
            "refused island a of run run: OTHER_CLUSTER: expected cluster b, "
            "found cluster a");
  EXPECT_EQ(peers.Note(island, OtherCluster(), kStart + absl::Seconds(59)), "");
  EXPECT_NE(peers.Note(island, OtherCluster(), kStart + absl::Seconds(60)), "");
  const v1::GetClusterResponse listed =
      List(peers, kStart + absl::Minutes(10));
  ASSERT_EQ(listed.refused_peers_size(), 1);
  EXPECT_EQ(listed.refused_peers(0).role(), "island");
  EXPECT_EQ(listed.refused_peers(0).name(), "a");
  EXPECT_EQ(listed.refused_peers(0).run_id(), "run");
  EXPECT_EQ(listed.refused_peers(0).fault().code(), "OTHER_CLUSTER");
  EXPECT_EQ(listed.refused_peers(0).time().seconds(), 2'000'060);
  EXPECT_EQ(List(peers, kStart + absl::Minutes(11)).refused_peers_size(), 0);
}

TEST(RefusedPeersTest, AServersFaultStaysUntilItIsTaken) {
  RefusedPeers peers;
  peers.Note({"server", "s0", ""}, OtherCluster(), kStart);
  peers.Note({"island", "a", "run"}, OtherCluster(), kStart);
  const auto all = [](const std::string&) { return true; };
  ASSERT_NE(peers.FindServer(all), nullptr);
  EXPECT_EQ(peers.FindServer([](const std::string& id) { return id != "s0"; }),
            nullptr);
  peers.Forget("server", "s0");
  EXPECT_EQ(peers.FindServer(all), nullptr);
}

TEST(RefusedPeersTest, NoCallerFillsTheMemoryOrTheLog) {
  RefusedPeers peers;
  int line_count = 0;
  for (int i = 0; i < 1000; ++i) {
    line_count += !peers.Note({"island", absl::StrCat("i", i), "run"},
                              OtherCluster(), kStart)
                       .empty();
  }
  EXPECT_EQ(line_count, RefusedPeers::kIslandsMax);
  EXPECT_EQ(List(peers, kStart).refused_peers_size(), 64);
  // Islands leave room for servers, and old ones for new ones.
  EXPECT_NE(peers.Note({"server", "s0", ""}, OtherCluster(), kStart), "");
  EXPECT_NE(peers.Note({"island", "new", "run"}, OtherCluster(),
                       kStart + RefusedPeers::kListedFor),
            "");
  EXPECT_EQ(
      List(peers, kStart + RefusedPeers::kListedFor).refused_peers_size(), 1);
  // A text that is no name is not noted.
  EXPECT_EQ(peers.Note({"island", "a\nb", "run"}, OtherCluster(), kStart), "");
  EXPECT_EQ(peers.Note({"island", "", "run"}, OtherCluster(), kStart), "");
}

TEST(RefusedPeersTest, WhatACallerSaysIsQuoted) {
  RefusedPeers peers;
  v1::Fault fault = OtherCluster();
  fault.set_found("cluster \x1b[2J\n");
  EXPECT_THAT(peers.Note({"server", "s0", ""}, fault, kStart),
              testing::EndsWith("found cluster \\033[2J\\n"));
}

}  // namespace
}  // namespace atl::coordinator
