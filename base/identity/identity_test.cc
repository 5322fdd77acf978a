#include "base/identity/identity.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace atl {
namespace {

constexpr char kCluster[] = "0123456789abcdef0123456789abcdef";
constexpr char kUid[] = "fedcba9876543210fedcba9876543210";

absl::StatusOr<RunScope> Parse(const std::vector<std::string>& uris) {
  return ParseRunScope(uris, Role::kIsland, "attic");
}

TEST(IdentityTest, ParsesWhatItMakes) {
  RunScope enrolled;
  enrolled.cluster_id = kCluster;
  enrolled.run_uid = kUid;
  EXPECT_EQ(
      Parse({MakeEnrolledUri(kCluster, kUid, Role::kIsland, "attic")}).value(),
      enrolled);
  RunScope runs;
  runs.run_ids = {"spring", "autumn"};
  EXPECT_EQ(Parse({MakeRunUri("spring", Role::kIsland, "attic"),
                   MakeRunUri("autumn", Role::kIsland, "attic")})
                .value(),
            runs);
  RunScope any;
  any.any = true;
  EXPECT_EQ(Parse({MakeAnyRunUri(Role::kIsland, "attic")}).value(), any);
}

TEST(IdentityTest, AllowsEveryRunWithoutAUriOfOurs) {
  EXPECT_TRUE(Parse({}).value().any);
  EXPECT_TRUE(Parse({"spiffe://example.org/attic"}).value().any);
}

TEST(IdentityTest, RefusesWhatItDoesNotKnow) {
  const std::string enrolled =
      MakeEnrolledUri(kCluster, kUid, Role::kIsland, "attic");
  const std::vector<std::vector<std::string>> kTable = {
      {"atoll://"},
      {"atoll:///any"},
      {"atoll:///any/island/cellar"},
      {"atoll:///any/operator/attic"},
      {"atoll:///all/island/attic"},
      {"atoll:///run//island/attic"},
      {"atoll:///run/Not An Id/island/attic"},
      {"atoll:///run/spring/x/island/attic"},
      {"atoll://" + std::string(kCluster) + "/any/island/attic"},
      {"atoll://a%20b/run/" + std::string(kUid) + "/island/attic"},
      {enrolled, MakeAnyRunUri(Role::kIsland, "attic")},
      {enrolled, MakeRunUri("spring", Role::kIsland, "attic")},
      {enrolled, MakeEnrolledUri(kUid, kUid, Role::kIsland, "attic")},
      {MakeAnyRunUri(Role::kIsland, "attic"),
       MakeRunUri("spring", Role::kIsland, "attic")},
  };
  for (const std::vector<std::string>& uris : kTable) {
    EXPECT_EQ(Parse(uris).status().code(), absl::StatusCode::kUnauthenticated)
        << uris[0];
  }
}

TEST(EnrolledNameTest, HasThePrefixOnce) {
  EXPECT_EQ(ToEnrolledName("attic"), "e-attic");
  EXPECT_EQ(ToEnrolledName("e-attic"), "e-attic");
  EXPECT_TRUE(IsEnrolledName("e-attic"));
  EXPECT_FALSE(IsEnrolledName("attic"));
}

TEST(EnrolledDigestTest, DependsOnRoleNameAndKey) {
  const std::string key(32, 'k');
  const std::string digest = EnrolledDigest(Role::kIsland, "e-attic", key);
  EXPECT_EQ(digest.size(), 16);
  EXPECT_EQ(digest, EnrolledDigest(Role::kIsland, "e-attic", key));
  EXPECT_NE(digest, EnrolledDigest(Role::kReader, "e-attic", key));
  EXPECT_NE(digest, EnrolledDigest(Role::kIsland, "e-cellar", key));
  EXPECT_NE(digest,
            EnrolledDigest(Role::kIsland, "e-attic", std::string(32, 'x')));
}

}  // namespace
}  // namespace atl
