#include "base/mirror/mirror_names.h"

#include <cstdint>
#include <string>

#include "gtest/gtest.h"

namespace atl::mirror {
namespace {

const CheckpointPlace kPlace = {"0123456789abcdef0123456789abcdef", 2, 15};

TEST(MirrorNamesTest, NamesAreThoseOfTheDesign) {
  EXPECT_EQ(ManifestName(kPlace),
            "0123456789abcdef0123456789abcdef/2/15/manifest.json");
  EXPECT_EQ(PartName(kPlace, 1, 0, "abc"),
            "0123456789abcdef0123456789abcdef/2/15/shard-1-fragment-0-abc"
            ".safetensors");
  EXPECT_EQ(PartName(kPlace, 1, 0, "abc").find(ShardPrefix(kPlace, 1)), 0u);
  EXPECT_NE(PartName(kPlace, 11, 0, "abc").find(ShardPrefix(kPlace, 1)), 0u);
}

TEST(MirrorNamesTest, OnlyAManifestsNameIsParsed) {
  EXPECT_EQ(ParseManifestName(ManifestName(kPlace)), kPlace);
  const std::string uid = kPlace.run_uid;
  for (const std::string& name :
       {std::string(), uid + "/2/15/", uid + "/2/15/manifest.json.tmp",
        uid + "/02/15/manifest.json", uid + "/+2/15/manifest.json",
        uid + "/0/15/manifest.json", uid + "/2/0/manifest.json",
        uid + "/2/-1/manifest.json", uid + "/2/ 15/manifest.json",
        uid + "/2/99999999999999999999/manifest.json",
        "x/" + uid + "/2/15/manifest.json",
        uid.substr(1) + "/2/15/manifest.json"}) {
    EXPECT_EQ(ParseManifestName(name), std::nullopt) << name;
  }
}

TEST(MirrorNamesTest, OnlyAPartsNameIsParsed) {
  const std::string sha256(64, 'a');
  const std::string name = PartName(kPlace, 1, 0, sha256);
  EXPECT_EQ(ParsePartName(name), kPlace);
  for (const std::string& wrong :
       {ManifestName(kPlace), "x/" + name, name + ".tmp",
        PartName(kPlace, 1, 0, sha256 + "a"), PartName(kPlace, 1, 0, "../x"),
        PlaceName(kPlace) + "shard-01-fragment-0-" + sha256 + ".safetensors",
        PlaceName(kPlace) + "shard-1-fragment-0-" + sha256,
        PlaceName(kPlace) + "model.safetensors",
        PlaceName({"run", 2, 15}) + name.substr(PlaceName(kPlace).size())}) {
    EXPECT_EQ(ParsePartName(wrong), std::nullopt) << wrong;
  }
  EXPECT_EQ(ParseManifestName(name), std::nullopt);
}

TEST(MirrorNamesTest, OnlyAClusterObjectsNameIsParsed) {
  const std::string prefix = ClusterPrefix(kPlace.run_uid);
  const std::string name = ClusterName({kPlace.run_uid, 15});
  EXPECT_EQ(name, "cluster/" + kPlace.run_uid + "/00000000000000000015.json");
  EXPECT_EQ(name.find(prefix), 0u);
  EXPECT_EQ(ClustersPrefix(), "cluster/");
  EXPECT_EQ(ParseClusterName(name), (ClusterPlace{kPlace.run_uid, 15}));
  const ClusterPlace largest = {kPlace.run_uid, INT64_MAX};
  EXPECT_EQ(ParseClusterName(ClusterName(largest)), largest);
  EXPECT_LT(name, ClusterName({kPlace.run_uid, 101}));
  for (const std::string& wrong :
       {prefix, prefix + "15.json", prefix + "000000000000000000015.json",
        prefix + "00000000000000000000.json",
        prefix + "-0000000000000000015.json",
        prefix + "99999999999999999999.json", name + ".tmp", "x/" + name,
        name.substr(1), std::string("cluster/a/00000000000000000015.json")}) {
    EXPECT_EQ(ParseClusterName(wrong), std::nullopt) << wrong;
  }
  EXPECT_EQ(ParseManifestName(name), std::nullopt);
  EXPECT_EQ(ParsePartName(name), std::nullopt);
}

TEST(MirrorNamesTest, OnlyAnOwnersNameIsParsed) {
  const std::string& uid = kPlace.run_uid;
  const std::string name = OwnerName({uid, 15});
  EXPECT_EQ(name, uid + "/owner/00000000000000000015.json");
  EXPECT_EQ(name.find(OwnersPrefix(uid)), 0u);
  EXPECT_EQ(ParseOwnerName(name), (OwnerPlace{uid, 15}));
  EXPECT_LT(name, OwnerName({uid, 101}));
  for (const std::string& wrong :
       {OwnersPrefix(uid), uid + "/owner/15.json", name + ".tmp", "x/" + name,
        name.substr(1), OwnerName({uid, 0}),
        OwnerName({uid, kOwnerEpochMax + 1}), OwnerName({"run", 15})}) {
    EXPECT_EQ(ParseOwnerName(wrong), std::nullopt) << wrong;
  }
  EXPECT_EQ(ParseManifestName(name), std::nullopt);
  EXPECT_EQ(ParsePartName(name), std::nullopt);
}

}  // namespace
}  // namespace atl::mirror
