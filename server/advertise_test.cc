#include "server/advertise.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace atl::server {
namespace {

std::string Address(absl::string_view advertise,
                    absl::string_view server_id = "atoll-server-2") {
  const auto address = ResolveAdvertise(advertise, server_id, 7401);
  EXPECT_TRUE(address.ok()) << address.status();
  return address.value_or("");
}

void ExpectRefused(absl::string_view advertise, absl::string_view named,
                   absl::string_view server_id = "atoll-server-2") {
  const auto address = ResolveAdvertise(advertise, server_id, 7401);
  ASSERT_TRUE(absl::IsInvalidArgument(address.status())) << *address;
  const absl::string_view message = address.status().message();
  EXPECT_EQ(message.find(absl::StrCat("\"", advertise, "\": ")), 0) << message;
  EXPECT_NE(message.find(named), absl::string_view::npos) << message;
}

TEST(AdvertiseTest, AnAddressWithoutPlaceholdersStays) {
  EXPECT_EQ(Address("s0.example.org:7401"), "s0.example.org:7401");
  EXPECT_EQ(Address("[fd00::1]:7401"), "[fd00::1]:7401");
}

TEST(AdvertiseTest, PlaceholdersAreReplacedWhereverTheyAre) {
  EXPECT_EQ(Address("{server-id}.atoll-server.ns.svc:{port}"),
            "atoll-server-2.atoll-server.ns.svc:7401");
  EXPECT_EQ(Address("s{ordinal}.example.org:443"), "s2.example.org:443");
  EXPECT_EQ(Address("node.example.org:{ordinal+30400}"),
            "node.example.org:30402");
  EXPECT_EQ(Address("{ordinal}{ordinal+1}.org:{port}"), "23.org:7401");
}

TEST(AdvertiseTest, TheOrdinalIsTheNumberAtTheIdsEnd) {
  EXPECT_EQ(Address("h:{ordinal+1}", "s0"), "h:1");
  EXPECT_EQ(Address("h:{ordinal}", "v2-s012"), "h:12");
  EXPECT_EQ(Address("h:{ordinal}", "42"), "h:42");
}

TEST(AdvertiseTest, AnIdWithoutANumberHasNoOrdinal) {
  ExpectRefused("h:{ordinal+30000}", "it is server-a", "server-a");
  ExpectRefused("h:{ordinal}", "it is 99999999999999999999",
                "99999999999999999999");
}

TEST(AdvertiseTest, AnUnknownPlaceholderIsNamed) {
  ExpectRefused("{pod}:7401", "{pod}");
  ExpectRefused("{}:7401", "{}");
  ExpectRefused("h:{ordinal+}", "{ordinal+}");
  ExpectRefused("h:{ordinal+-1}", "{ordinal+-1}");
  ExpectRefused("h:{ordinal-1}", "{ordinal-1}");
  ExpectRefused("h:{ordinal+99999999999999999}", "{ordinal+9999");
  ExpectRefused("{Port}:7401", "{Port}");
}

TEST(AdvertiseTest, ABraceAloneIsNamed) {
  ExpectRefused("{server-id:7401", "{server-id:7401");
  ExpectRefused("server-id}:7401", "}:7401");
  ExpectRefused("{{port}}:1", "{{port}");
}

TEST(AdvertiseTest, AResultThatCannotBeDialledIsNamed) {
  ExpectRefused("{server-id}", "dial atoll-server-2");
  ExpectRefused("h:0", "dial h:0");
  ExpectRefused("h:{ordinal+65535}", "dial h:65537");
  ExpectRefused(":{port}", "dial :7401");
}

}  // namespace
}  // namespace atl::server
