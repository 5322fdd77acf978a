#include "base/rpc/certificates/revocation_list.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "base/rpc/certificates/authority.h"
#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

class RevocationListTest : public ::testing::Test {
 protected:
  RevocationListTest()
      : now_(absl::FromUnixSeconds(absl::ToUnixSeconds(absl::Now()))),
        ca_(MakeAuthority("a CA", now_, now_ + absl::Hours(9)).value()) {}

  std::string Issue(const KeyAndCertificate& ca,
                    const std::string& serial = "") const {
    CertificateSpec spec;
    spec.common_name = "atoll:operator:anna";
    spec.begin = now_;
    spec.end = now_ + absl::Hours(1);
    spec.serial = serial;
    return IssueCertificate(ca, spec)->cert_pem;
  }

  std::string Revoke(const std::vector<std::string>& certificates) const {
    std::vector<RevokedCertificate> revoked;
    for (const std::string& pem : certificates) {
      revoked.push_back({ReadSerial(pem).value(), now_});
    }
    return MakeRevocationList(ca_, revoked, now_).value();
  }

  const absl::Time now_;
  const KeyAndCertificate ca_;
};

TEST_F(RevocationListTest, NamesWhatWasRevokedAndNothingElse) {
  const std::string stolen = Issue(ca_);
  const std::string good = Issue(ca_);
  const auto list = RevocationList::Read(Revoke({stolen}), ca_.cert_pem);
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(list->FindTime(stolen), now_);
  EXPECT_TRUE(list->Check(good).ok());
  const absl::Status status = list->Check(stolen);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_TRUE(absl::StrContains(status.message(), "was revoked at")) << status;
  ASSERT_EQ(list->entries().size(), 1u);
  EXPECT_EQ(list->entries()[0].serial, ReadSerial(stolen).value());
  EXPECT_EQ(list->entries()[0].time, now_);
}

TEST_F(RevocationListTest, IsEmptyWithoutAFile) {
  const auto list = RevocationList::Read("", ca_.cert_pem);
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_TRUE(list->entries().empty());
}

TEST_F(RevocationListTest, AnEmptyListIsAListToo) {
  EXPECT_TRUE(RevocationList::Read(Revoke({}), ca_.cert_pem).ok());
}

TEST_F(RevocationListTest, CountsForTheCertificatesOfItsOwnCa) {
  const auto other =
      MakeAuthority("another CA", now_, now_ + absl::Hours(9)).value();
  const std::string serial(16, '\7');
  const std::string stolen = Issue(ca_, serial);
  const auto list = RevocationList::Read(Revoke({stolen}),
                                         other.cert_pem + ca_.cert_pem);
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_FALSE(list->Check(stolen).ok());
  EXPECT_TRUE(list->Check(Issue(other, serial)).ok());
}

TEST_F(RevocationListTest, RefusesAListThatNoTrustedCaSigned) {
  // It has the name of the CA, and not its key.
  const auto thief = MakeAuthority("a CA", now_, now_ + absl::Hours(9)).value();
  const absl::Status status =
      RevocationList::Read(Revoke({}), thief.cert_pem).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "no CA of ca.crt signed"))
      << status;
}

TEST_F(RevocationListTest, RefusesWhatIsNoList) {
  const std::string list = Revoke({Issue(ca_)});
  for (const std::string& text :
       {std::string("x"), ca_.cert_pem, list.substr(0, list.size() / 2),
        list + list.substr(0, list.size() / 2)}) {
    EXPECT_EQ(RevocationList::Read(text, ca_.cert_pem).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
}

TEST_F(RevocationListTest, RefusesASerialNumberThatIsNone) {
  for (const char* serial : {"", "xyz", "0g", "1 2"}) {
    EXPECT_EQ(MakeRevocationList(ca_, {{serial, now_}}, now_).status().code(),
              absl::StatusCode::kInvalidArgument)
        << serial;
  }
}

}  // namespace
}  // namespace atl::rpc
