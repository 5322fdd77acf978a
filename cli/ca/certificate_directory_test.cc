#include "cli/ca/certificate_directory.h"

#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "base/rpc/certificates/authority.h"
#include "base/rpc/certificates/tls.h"
#include "cli/ca/ca_files.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

using Files = std::vector<std::string>;

class CertificateDirectoryTest : public ::testing::Test {
 protected:
  CertificateDirectoryTest()
      : now_(absl::Now()),
        root_(::testing::TempDir() + "/" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(root_);
    ca_ = MakeCa("ca");
    old_ca_.root = rpc::MakeAuthority("atoll CA", now_ - absl::Hours(1),
                                      now_ + absl::Hours(240))
                       .value();
    old_ca_.service = old_ca_.root;
  }

  Ca MakeCa(const std::string& name) const {
    EXPECT_TRUE(InitCa(Path(name), "", now_, absl::Hours(240)).ok());
    return ReadCa(Path(name), now_).value();
  }

  std::string Path(const std::string& name) const { return root_ + "/" + name; }

  std::string Read(const std::string& name) const {
    return ReadFileIn(root_, name).value();
  }

  int Mode(const std::string& name) const {
    struct stat found = {};
    EXPECT_EQ(::stat(Path(name).c_str(), &found), 0) << name;
    return found.st_mode & 0777;
  }

  IssueOptions Options(Role role, const std::string& id) const {
    IssueOptions options;
    options.role = role;
    options.id = id;
    options.out = Path(id);
    options.lifetime = absl::Hours(24);
    return options;
  }

  absl::StatusOr<IssuedFiles> Issue(const IssueOptions& options) const {
    return IssueFiles(ca_, options, now_);
  }

  // Issues the certificate of an island `id`.
  void IssueIsland(const std::string& id) const {
    const auto issued = Issue(Options(Role::kIsland, id));
    ASSERT_TRUE(issued.ok()) << issued.status();
  }

  const absl::Time now_;
  const std::string root_;
  Ca ca_;
  Ca old_ca_;
};

TEST_F(CertificateDirectoryTest, IssuesFilesThatAProgramAccepts) {
  const Files kOwn = {"ca.crt", "tls.crt", "tls.key"};
  const Files kServer = {"ca.crt", "island-ca.crt", "tls.crt", "tls.key"};
  const Files kGate = {"ca.crt", "island-ca.crt", "island-ca.key", "tls.crt",
                       "tls.key"};
  const struct {
    Role role;
    bool serves, dials;
    Files files;
  } kTable[] = {{Role::kCoordinator, true, false, kServer},
                {Role::kServer, true, true, kServer},
                {Role::kGate, true, true, kGate},
                {Role::kData, true, false, kServer},
                {Role::kOperator, false, true, kOwn},
                {Role::kIsland, false, true, kOwn},
                {Role::kReader, false, true, kOwn}};
  for (const auto& row : kTable) {
    const std::string role(RoleName(row.role));
    IssueOptions options = Options(row.role, role);
    if (row.serves) options.hosts = {"a.example.org", "192.0.2.7"};
    const absl::StatusOr<IssuedFiles> issued = Issue(options);
    ASSERT_TRUE(issued.ok()) << issued.status();
    EXPECT_EQ(issued->common_name, "atoll:" + role + ":" + role);
    EXPECT_EQ(issued->files, row.files);
    const auto material =
        rpc::ReadTlsFiles({Path(role + "/tls.crt"), Path(role + "/tls.key"),
                           Path(role + "/ca.crt")});
    ASSERT_TRUE(material.ok()) << material.status();
    const std::string& cert = material->cert_pem;
    EXPECT_EQ(rpc::ReadCommonName(cert).value(), issued->common_name);
    EXPECT_EQ(rpc::CheckKeyUse(cert, rpc::KeyUse::kServer).ok(), row.serves);
    EXPECT_EQ(rpc::CheckKeyUse(cert, rpc::KeyUse::kClient).ok(), row.dials);
    EXPECT_FALSE(rpc::CheckValidity(cert, now_ + absl::Hours(25)).ok());
    EXPECT_EQ(material->ca_pem, ca_.service.cert_pem);
    EXPECT_TRUE(absl::EndsWith(
        cert, ca_.service.cert_pem + (row.serves ? ca_.root.cert_pem : "")));
    EXPECT_EQ(absl::StrContains(cert, ca_.root.cert_pem), row.serves);
    EXPECT_EQ(Mode(role), 0700);
    EXPECT_EQ(Mode(role + "/tls.key"), 0600);
  }
  EXPECT_EQ(Mode("gate/island-ca.key"), 0600);
  EXPECT_EQ(Read("gate/island-ca.key"), ca_.island.key_pem);
  EXPECT_EQ(Read("server/island-ca.crt"), ca_.island.cert_pem);
}

TEST_F(CertificateDirectoryTest, ACaOfTheOlderKindSignsAllButAGate) {
  const auto issued = IssueFiles(old_ca_, Options(Role::kIsland, "a"), now_);
  ASSERT_TRUE(issued.ok()) << issued.status();
  EXPECT_EQ(Read("a/ca.crt"), old_ca_.root.cert_pem);
  EXPECT_FALSE(absl::StrContains(Read("a/tls.crt"), old_ca_.root.cert_pem));
  IssueOptions gate = Options(Role::kGate, "g");
  gate.hosts = {"g.example.org"};
  const absl::Status status = IssueFiles(old_ca_, gate, now_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(status.message(), "older kind")) << status;
  EXPECT_FALSE(HoldsFile(Path("g"), kTlsKeyFile));
}

TEST_F(CertificateDirectoryTest, NamesTheRunsOfIslandsAndReaders) {
  IssueOptions options = Options(Role::kReader, "web");
  options.runs = {"spring", "fall"};
  ASSERT_TRUE(Issue(options).ok());
  IssueIsland("attic");
  options = Options(Role::kOperator, "anna");
  ASSERT_TRUE(Issue(options).ok());
  EXPECT_EQ(rpc::ReadFacts(Read("web/tls.crt"))->uris,
            (Files{"atoll:///run/spring/reader/web",
                   "atoll:///run/fall/reader/web"}));
  EXPECT_EQ(rpc::ReadFacts(Read("attic/tls.crt"))->uris,
            Files{"atoll:///any/island/attic"});
  EXPECT_TRUE(rpc::ReadFacts(Read("anna/tls.crt"))->uris.empty());
}

TEST_F(CertificateDirectoryTest, NeverOverwritesAKey) {
  IssueIsland("a");
  const std::string key = Read("a/tls.key");
  EXPECT_EQ(Issue(Options(Role::kIsland, "a")).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Read("a/tls.key"), key);
}

TEST_F(CertificateDirectoryTest, OverwritesAnInterruptedIssueOfItsOwnCaAlone) {
  IssueIsland("a");
  std::filesystem::remove(Path("a/tls.key"));
  IssueIsland("a");
  std::filesystem::remove(Path("a/tls.key"));
  const std::string cert = Read("a/ca.crt");
  EXPECT_EQ(IssueFiles(MakeCa("other"), Options(Role::kIsland, "a"), now_)
                .status()
                .code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Read("a/ca.crt"), cert);
}

TEST_F(CertificateDirectoryTest, RefusesWhatMakesNoCertificate) {
  const auto expect = [&](const IssueOptions& options, const char* text) {
    const absl::Status status = Issue(options).status();
    EXPECT_TRUE(absl::StrContains(status.message(), text)) << status;
  };
  for (const Role role : {Role::kServer, Role::kGate, Role::kData}) {
    expect(Options(role, "s"), "--host is missing");
  }
  IssueOptions options = Options(Role::kServer, "s");
  options.hosts = {"a:1"};
  expect(options, "\"a:1\"");
  options.hosts = {"a"};
  options.runs = {"spring"};
  expect(options, "--run is only for");
  options = Options(Role::kIsland, "a");
  options.hosts = {"a"};
  expect(options, "--host is only for");
  options = Options(Role::kIsland, "Not an id");
  expect(options, "--id");
  // Names that a gate enrols.
  for (const Role role : {Role::kIsland, Role::kReader}) {
    expect(Options(role, "e-kitchen"), "begins with e-");
  }
  options = Options(Role::kIsland, "a");
  options.runs = {"spring/island/b"};
  expect(options, "--run");
  options.runs = {"any", "spring"};
  expect(options, "give it alone");
}

TEST_F(CertificateDirectoryTest, RenewsAnExpiredCertificateWithoutItsKey) {
  IssueOptions options = Options(Role::kServer, "s");
  options.hosts = {"s.example.org"};
  ASSERT_TRUE(Issue(options).ok());
  IssueIsland("a");
  const std::string key = Read("a/tls.key");
  std::filesystem::remove(Path("a/tls.key"));
  const absl::Time later = now_ + absl::Hours(48);
  const auto renewed =
      RenewFiles(ca_, {Path("s"), Path("a")}, later, absl::Hours(24));
  ASSERT_TRUE(renewed.ok()) << renewed.status();
  ASSERT_EQ(renewed->size(), 2);
  EXPECT_EQ((*renewed)[1].common_name, "atoll:island:a");
  EXPECT_EQ((*renewed)[1].end,
            absl::FromTimeT(absl::ToTimeT(later + absl::Hours(24))));
  const std::string cert = Read("a/tls.crt");
  EXPECT_TRUE(rpc::CheckKey(cert, key).ok());
  EXPECT_TRUE(rpc::CheckValidity(cert, later).ok());
  EXPECT_EQ(rpc::ReadFacts(cert)->uris, Files{"atoll:///any/island/a"});
  EXPECT_TRUE(absl::EndsWith(cert, ca_.service.cert_pem));
  EXPECT_TRUE(absl::EndsWith(Read("s/tls.crt"),
                             ca_.service.cert_pem + ca_.root.cert_pem));
}

TEST_F(CertificateDirectoryTest, RenewsNothingIfOneIsOfAnotherCa) {
  IssueIsland("a");
  ASSERT_TRUE(
      IssueFiles(MakeCa("other"), Options(Role::kIsland, "b"), now_).ok());
  const std::string before = Read("a/tls.crt");
  const absl::Status status =
      RenewFiles(ca_, {Path("a"), Path("b")}, now_, absl::Hours(48)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "b/tls.crt")) << status;
  EXPECT_EQ(RenewFiles(ca_, {Path("c")}, now_, absl::Hours(48)).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(Read("a/tls.crt"), before);
}

TEST_F(CertificateDirectoryTest, RenewsForTheOlderKindOfCa) {
  ASSERT_TRUE(IssueFiles(old_ca_, Options(Role::kIsland, "a"), now_).ok());
  const auto renewed = RenewFiles(old_ca_, {Path("a")}, now_, absl::Hours(99));
  ASSERT_TRUE(renewed.ok()) << renewed.status();
  EXPECT_TRUE(
      rpc::CheckValidity(Read("a/tls.crt"), now_ + absl::Hours(98)).ok());
}

}  // namespace
}  // namespace atl::cli
