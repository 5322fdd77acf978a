#include "cli/ca/issued_list.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "base/rpc/certificates/revocation_list.h"
#include "cli/ca/authority_directory.h"
#include "cli/ca/ca_files.h"
#include "cli/ca/certificate_directory.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

class IssuedListTest : public ::testing::Test {
 protected:
  IssuedListTest()
      : now_(absl::Now()),
        root_(::testing::TempDir() + "/" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(root_);
    EXPECT_TRUE(InitCa(Path("ca"), "", now_, absl::Hours(240)).ok());
  }

  std::string Path(const std::string& name) const { return root_ + "/" + name; }

  Ca Read() const { return ReadCa(Path("ca"), now_).value(); }

  void Issue(const std::string& id, const std::string& out,
             absl::Duration lifetime = absl::Hours(24)) const {
    IssueOptions options;
    options.role = Role::kOperator;
    options.id = id;
    options.out = Path(out);
    options.lifetime = lifetime;
    const auto issued = IssueFiles(Read(), options, now_);
    ASSERT_TRUE(issued.ok()) << issued.status();
  }

  bool IsRevoked(const std::string& out) const {
    const Ca ca = Read();
    return rpc::RevocationList::Read(ca.crl_pem, ca.service.cert_pem)
        ->FindTime(ReadFileIn(Path(out), kTlsCertFile).value())
        .has_value();
  }

  absl::Status Revoke(const std::vector<std::string>& which) const {
    return RevokeCertificates(Read(), which, now_).status();
  }

  const absl::Time now_;
  const std::string root_;
};

TEST_F(IssuedListTest, RecordsWhatIsIssuedAndRenewed) {
  Issue("anna", "anna");
  Issue("berta", "berta");
  ASSERT_TRUE(RenewFiles(Read(), {Path("anna")}, now_, absl::Hours(48)).ok());
  const auto issued = ListIssued(Read());
  ASSERT_TRUE(issued.ok()) << issued.status();
  ASSERT_EQ(issued->size(), 3u);
  EXPECT_EQ((*issued)[0].common_name, "atoll:operator:anna");
  EXPECT_EQ((*issued)[1].common_name, "atoll:operator:berta");
  EXPECT_EQ((*issued)[2].common_name, "atoll:operator:anna");
  EXPECT_NE((*issued)[0].serial, (*issued)[2].serial);
  EXPECT_GT((*issued)[2].end, (*issued)[0].end);
  EXPECT_FALSE((*issued)[0].revoked.has_value());
}

TEST_F(IssuedListTest, RevokesEveryCertificateOfAName) {
  Issue("anna", "anna");
  Issue("anna", "annas-second");
  Issue("berta", "berta");
  ASSERT_TRUE(Revoke({"operator:anna"}).ok());
  EXPECT_TRUE(IsRevoked("anna"));
  EXPECT_TRUE(IsRevoked("annas-second"));
  EXPECT_FALSE(IsRevoked("berta"));
  const auto issued = ListIssued(Read());
  ASSERT_EQ(issued->size(), 3u);
  EXPECT_TRUE((*issued)[0].revoked.has_value());
  EXPECT_FALSE((*issued)[2].revoked.has_value());
}

TEST_F(IssuedListTest, RevokesByFileDirectoryAndSerialNumber) {
  for (const char* id : {"a", "b", "c"}) Issue(id, id);
  // As of a version that did not record.
  const std::string serial = (*ListIssued(Read()))[2].serial;
  ASSERT_TRUE(Revoke({Path("a"), Path("b/tls.crt")}).ok());
  ASSERT_TRUE(Revoke({serial}).ok());
  for (const char* id : {"a", "b", "c"}) EXPECT_TRUE(IsRevoked(id)) << id;
  std::filesystem::remove(Path("ca/issued.txt"));
  Issue("d", "d");
  std::filesystem::remove(Path("ca/issued.txt"));
  ASSERT_TRUE(Revoke({Path("d")}).ok());
  EXPECT_TRUE(IsRevoked("d"));
}

TEST_F(IssuedListTest, KeepsTheTimeOfTheFirstRevocation) {
  Issue("anna", "anna");
  ASSERT_TRUE(Revoke({"operator:anna"}).ok());
  const auto again = RevokeCertificates(Read(), {"operator:anna"},
                                        now_ + absl::Hours(1));
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_EQ(again->size(), 1u);
  EXPECT_LT(*again->front().revoked, now_ + absl::Minutes(1));
}

TEST_F(IssuedListTest, RevokesNothingIfOneIsUnknown) {
  Issue("anna", "anna");
  EXPECT_EQ(Revoke({"operator:anna", "operator:zoe"}).code(),
            absl::StatusCode::kNotFound);
  EXPECT_FALSE(HoldsFile(Path("ca"), kCrlFile));
  ASSERT_TRUE(InitCa(Path("other"), "", now_, absl::Hours(240)).ok());
  IssueOptions options;
  options.id = "eve";
  options.out = Path("eve");
  options.lifetime = absl::Hours(1);
  ASSERT_TRUE(
      IssueFiles(ReadCa(Path("other"), now_).value(), options, now_).ok());
  EXPECT_EQ(Revoke({Path("eve")}).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(IssuedListTest, NewDirectoriesAndRenewedOnesHaveTheList) {
  Issue("anna", "anna");
  Issue("berta", "berta");
  EXPECT_FALSE(HoldsFile(Path("berta"), kCrlFile));
  ASSERT_TRUE(Revoke({"operator:anna"}).ok());
  Issue("clara", "clara");
  ASSERT_TRUE(RenewFiles(Read(), {Path("berta")}, now_, absl::Hours(48)).ok());
  const std::string list = ReadFileIn(Path("ca"), kCrlFile).value();
  EXPECT_EQ(ReadFileIn(Path("clara"), kCrlFile).value(), list);
  EXPECT_EQ(ReadFileIn(Path("berta"), kCrlFile).value(), list);
}

}  // namespace
}  // namespace atl::cli
