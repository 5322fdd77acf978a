#include "coordinator/gate/grant_check.h"

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/time/proto_time.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1'700'000'000);

v1::CertificateGrant Grant() {
  v1::CertificateGrant grant;
  v1::EnrolledIdentity& identity = *grant.mutable_identity();
  identity.set_cluster_id("c1");
  identity.set_run_id("spring");
  identity.set_run_uid("u1");
  identity.set_role(v1::ENROLLED_ROLE_ISLAND);
  identity.set_name("attic");
  grant.set_serial("0123456789abcdef");
  *grant.mutable_begin_time() = ToProto(kStart);
  *grant.mutable_end_time() = ToProto(kStart + absl::Hours(24));
  return grant;
}

TEST(GrantCheckTest, MakesExactlyWhatIsGranted) {
  const rpc::CertificateSpec spec = CheckGrant(Grant()).value();
  EXPECT_EQ(spec.common_name, "atoll:island:attic");
  EXPECT_EQ(spec.uris,
            std::vector<std::string>({"atoll://c1/run/u1/island/attic"}));
  EXPECT_TRUE(spec.hosts.empty());
  EXPECT_TRUE(spec.client_auth);
  EXPECT_FALSE(spec.server_auth);
  EXPECT_EQ(spec.serial, "0123456789abcdef");
  EXPECT_EQ(spec.begin, kStart);
  EXPECT_EQ(spec.end, kStart + absl::Hours(24));
}

TEST(GrantCheckTest, AReaderMayBeGranted) {
  v1::CertificateGrant grant = Grant();
  grant.mutable_identity()->set_role(v1::ENROLLED_ROLE_READER);
  EXPECT_EQ(CheckGrant(grant).value().common_name, "atoll:reader:attic");
}

TEST(GrantCheckTest, RefusesAnyOtherKind) {
  using Change = std::function<void(v1::CertificateGrant&)>;
  const std::vector<Change> kTable = {
      [](auto& g) { g.clear_identity(); },
      [](auto& g) {
        g.mutable_identity()->set_role(v1::ENROLLED_ROLE_UNSPECIFIED);
      },
      [](auto& g) {
        g.mutable_identity()->set_role(static_cast<v1::EnrolledRole>(3));
      },
      [](auto& g) { g.mutable_identity()->clear_run_uid(); },
      [](auto& g) { g.mutable_identity()->clear_cluster_id(); },
      [](auto& g) { g.mutable_identity()->set_run_uid("a/b"); },
      [](auto& g) { g.mutable_identity()->set_cluster_id("/any"); },
      [](auto& g) { g.mutable_identity()->clear_name(); },
      [](auto& g) { g.mutable_identity()->set_name("a:b"); },
      [](auto& g) { g.mutable_identity()->set_name("a/b"); },
      [](auto& g) { g.clear_serial(); },
      [](auto& g) { g.set_serial("short"); },
      [](auto& g) { g.set_serial(std::string(16, '\0')); },
      [](auto& g) { g.clear_begin_time(); },
      [](auto& g) { g.clear_end_time(); },
      [](auto& g) { *g.mutable_end_time() = g.begin_time(); },
      [](auto& g) {
        *g.mutable_end_time() =
            ToProto(kStart + kGrantedMax + absl::Seconds(1));
      },
  };
  for (size_t i = 0; i < kTable.size(); ++i) {
    v1::CertificateGrant grant = Grant();
    kTable[i](grant);
    EXPECT_EQ(CheckGrant(grant).status().code(), absl::StatusCode::kInternal)
        << i;
  }
}

}  // namespace
}  // namespace atl::coordinator
