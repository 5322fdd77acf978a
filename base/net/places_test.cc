#include "base/net/places.h"

#include <optional>
#include <string>

#include "gtest/gtest.h"

namespace atl::net {
namespace {

constexpr Places::Limits kLimits = {.count_max = 8,
                                    .stranger_max = 4,
                                    .network_stranger_max = 3,
                                    .address_stranger_max = 2,
                                    .name_max = 3};

TEST(PlacesTest, AnAddressGivesUpItsOldestStranger) {
  Places places(kLimits);
  const Places::Id first = places.Add("a").id;
  places.Add("b");
  places.Add("a");
  EXPECT_EQ(places.Add("a").ended, first);
  EXPECT_EQ(places.count(), 3);
}

TEST(PlacesTest, StrangersDoNotTakeTheOthersPlaces) {
  Places places(kLimits);
  const Places::Id first = places.Add("a").id;
  places.Add("a");
  places.Add("b");
  places.Add("c");
  // "a" has the most.
  EXPECT_EQ(places.Add("d").ended, first);
  EXPECT_EQ(places.stranger_count(), 4);
}

TEST(PlacesTest, AFloodFromOneAddressEndsNoOtherAddress) {
  Places places(kLimits);
  const Places::Id other = places.Add("b").id;
  for (int i = 0; i < 100; ++i) {
    EXPECT_NE(places.Add("a").ended, other) << i;
  }
}

// An IPv6 address in the network `network` of 48 bits, in the host `host` there.
std::string Ipv6(char network, char host, char interface = 0) {
  std::string bytes(16, '\0');
  bytes[5] = network;
  bytes[7] = host;
  bytes[15] = interface;
  return bytes;
}

TEST(PlacesTest, AHostOfIpv6CountsAsOneAddress) {
  Places places(kLimits);
  const Places::Id first = places.Add(Ipv6(1, 1, 1)).id;
  places.Add(Ipv6(1, 1, 2));
  EXPECT_EQ(places.Add(Ipv6(1, 1, 3)).ended, first);
}

TEST(PlacesTest, ANetworkOfIpv6HasABoundToo) {
  Places places(kLimits);
  const Places::Id first = places.Add(Ipv6(1, 1)).id;
  places.Add(Ipv6(1, 2));
  places.Add(Ipv6(1, 3));
  EXPECT_EQ(places.Add(Ipv6(2, 1)).ended, std::nullopt);
  EXPECT_EQ(places.Add(Ipv6(1, 4)).ended, first);
}

TEST(PlacesTest, AFloodFromANetworkOfIpv6EndsNoOther) {
  Places places(kLimits);
  const Places::Id other = places.Add("a").id;
  for (int i = 0; i < 100; ++i) {
    EXPECT_NE(places.Add(Ipv6(1, static_cast<char>(i))).ended, other) << i;
  }
  // All strangers' places are taken, and "a" is the oldest.
  EXPECT_NE(places.Add("b").ended, other);
}

TEST(PlacesTest, WithoutAnAddressEachCountsByItself) {
  Places places(kLimits);
  const Places::Id first = places.Add("").id;
  for (int i = 1; i < 4; ++i) EXPECT_EQ(places.Add("").ended, std::nullopt);
  EXPECT_EQ(places.Add("").ended, first);
}

TEST(PlacesTest, AProvenOneIsNoLongerItsAddresss) {
  Places places(kLimits);
  for (int i = 0; i < 6; ++i) {
    const Places::Added added = places.Add("a");
    EXPECT_EQ(added.ended, std::nullopt) << i;
    places.Prove(added.id, i % 2 == 0 ? "x" : "y");
  }
  EXPECT_EQ(places.count(), 6);
  EXPECT_EQ(places.stranger_count(), 0);
}

TEST(PlacesTest, ANameGivesUpItsOldest) {
  Places places(kLimits);
  const Places::Id first = places.Add("a").id;
  places.Prove(first, "x");
  for (int i = 0; i < 2; ++i) places.Prove(places.Add("a").id, "x");
  EXPECT_EQ(places.Prove(first, "x"), std::nullopt);
  EXPECT_EQ(places.Prove(places.Add("b").id, "x"), first);
  EXPECT_EQ(places.count(), 3);
}

TEST(PlacesTest, AFullPortMakesRoomAmongStrangersFirst) {
  Places places(kLimits);
  for (int i = 0; i < 7; ++i) {
    places.Prove(places.Add("a").id, i < 3 ? "x" : i < 6 ? "y" : "z");
  }
  const Places::Id stranger = places.Add("a").id;
  EXPECT_EQ(places.Add("b").ended, stranger);
}

TEST(PlacesTest, WithoutStrangersTheGreatestNameGivesOneUp) {
  Places places(kLimits);
  std::optional<Places::Id> first;
  for (const char* name : {"z", "y", "y", "x", "x", "x", "w", "w"}) {
    const Places::Id id = places.Add("a").id;
    places.Prove(id, name);
    if (name[0] == 'x' && !first.has_value()) first = id;
  }
  EXPECT_EQ(places.Add("b").ended, first);
}

TEST(PlacesTest, TheRemovedHaveNoPlace) {
  Places places(kLimits);
  const Places::Id id = places.Add("a").id;
  places.Remove(id);
  places.Remove(id);
  EXPECT_EQ(places.Prove(id, "x"), std::nullopt);
  EXPECT_EQ(places.count(), 0);
  EXPECT_EQ(places.stranger_count(), 0);
}

}  // namespace
}  // namespace atl::net
