#include "cli/ca/authority_directory.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/rpc/certificates/tls.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

class AuthorityDirectoryTest : public ::testing::Test {
 protected:
  AuthorityDirectoryTest()
      : now_(absl::Now()),
        root_(::testing::TempDir() + "/" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(root_);
  }

  std::string Path(const std::string& name) const { return root_ + "/" + name; }

  static std::string Read(const std::string& path) {
    return ReadFile(PosixFileSystem(), path).value();
  }

  static int Mode(const std::string& path) {
    struct stat found = {};
    EXPECT_EQ(::stat(path.c_str(), &found), 0) << path;
    return found.st_mode & 0777;
  }

  absl::StatusOr<CaOrigin> Init(const std::string& name,
                                const std::string& existing = "") {
    return InitCa(Path(name), existing.empty() ? "" : Path(existing), now_,
                  absl::Hours(240));
  }

  IssueOptions Options(rpc::Role role, const std::string& id) const {
    IssueOptions options;
    options.directory = Path("ca");
    options.role = role;
    options.id = id;
    options.out = Path(id);
    options.lifetime = absl::Hours(24);
    return options;
  }

  const absl::Time now_;
  const std::string root_;
};

TEST_F(AuthorityDirectoryTest, MakesACaOnceAndKeepsIt) {
  ASSERT_EQ(Init("ca").value(), CaOrigin::kMade);
  EXPECT_EQ(Mode(Path("ca")), 0700);
  EXPECT_EQ(Mode(Path("ca/ca.key")), 0600);
  const std::string key = Read(Path("ca/ca.key"));
  EXPECT_EQ(Init("ca").value(), CaOrigin::kKept);
  EXPECT_EQ(Read(Path("ca/ca.key")), key);
}

TEST_F(AuthorityDirectoryTest, CopiesAnExistingCaIfThereIsOne) {
  ASSERT_TRUE(Init("old").ok());
  EXPECT_EQ(Init("copy", "old").value(), CaOrigin::kCopied);
  EXPECT_EQ(Read(Path("copy/ca.key")), Read(Path("old/ca.key")));
  EXPECT_EQ(Mode(Path("copy/ca.key")), 0600);
  EXPECT_EQ(Init("new", "nowhere").value(), CaOrigin::kMade);
}

TEST_F(AuthorityDirectoryTest, RefusesHalfACa) {
  ASSERT_TRUE(Init("ca").ok());
  std::filesystem::remove(Path("ca/ca.key"));
  const absl::Status status = Init("ca").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(status.message(), "ca.crt without ca.key"));
}

TEST_F(AuthorityDirectoryTest, IssuesFilesThatAProgramAccepts) {
  ASSERT_TRUE(Init("ca").ok());
  struct {
    rpc::Role role;
    bool serves, dials;
  } const kTable[] = {{rpc::Role::kCoordinator, true, false},
                      {rpc::Role::kServer, true, true},
                      {rpc::Role::kOperator, false, true},
                      {rpc::Role::kIsland, false, true},
                      {rpc::Role::kReader, false, true}};
  for (const auto& row : kTable) {
    const std::string role(rpc::RoleName(row.role));
    IssueOptions options = Options(row.role, role);
    if (row.serves) options.hosts = {"a.example.org", "192.0.2.7"};
    const absl::StatusOr<std::string> name = IssueFiles(options, now_);
    ASSERT_TRUE(name.ok()) << name.status();
    EXPECT_EQ(*name, "atoll:" + role + ":" + role);
    const auto material = rpc::ReadTlsFiles({Path(role + "/tls.crt"),
                                             Path(role + "/tls.key"),
                                             Path(role + "/ca.crt")});
    ASSERT_TRUE(material.ok()) << material.status();
    const std::string& cert = material->cert_pem;
    EXPECT_EQ(rpc::ReadCommonName(cert).value(), *name);
    EXPECT_EQ(rpc::CheckKeyUse(cert, rpc::KeyUse::kServer).ok(), row.serves);
    EXPECT_EQ(rpc::CheckKeyUse(cert, rpc::KeyUse::kClient).ok(), row.dials);
    EXPECT_FALSE(rpc::CheckValidity(cert, now_ + absl::Hours(25)).ok());
    EXPECT_EQ(Mode(Path(role)), 0700);
    EXPECT_EQ(Mode(Path(role + "/tls.key")), 0600);
  }
}

TEST_F(AuthorityDirectoryTest, NeverOverwritesAKey) {
  ASSERT_TRUE(Init("ca").ok());
  const IssueOptions options = Options(rpc::Role::kIsland, "a");
  ASSERT_TRUE(IssueFiles(options, now_).ok());
  const std::string key = Read(Path("a/tls.key"));
  EXPECT_EQ(IssueFiles(options, now_).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Read(Path("a/tls.key")), key);
}

TEST_F(AuthorityDirectoryTest, OverwritesAnInterruptedIssueOfItsOwnCaAlone) {
  ASSERT_TRUE(Init("ca").ok());
  ASSERT_TRUE(Init("other").ok());
  IssueOptions options = Options(rpc::Role::kIsland, "a");
  ASSERT_TRUE(IssueFiles(options, now_).ok());
  std::filesystem::remove(Path("a/tls.key"));
  EXPECT_TRUE(IssueFiles(options, now_).ok());
  std::filesystem::remove(Path("a/tls.key"));
  const std::string cert = Read(Path("a/ca.crt"));
  options.directory = Path("other");
  EXPECT_EQ(IssueFiles(options, now_).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Read(Path("a/ca.crt")), cert);
}

TEST_F(AuthorityDirectoryTest, RefusesWhatMakesNoCertificate) {
  ASSERT_TRUE(Init("ca").ok());
  IssueOptions options = Options(rpc::Role::kServer, "s");
  EXPECT_TRUE(absl::StrContains(IssueFiles(options, now_).status().message(),
                                "--host is missing"));
  options.hosts = {"a:1"};
  EXPECT_TRUE(absl::StrContains(IssueFiles(options, now_).status().message(),
                                "\"a:1\""));
  options = Options(rpc::Role::kIsland, "a");
  options.hosts = {"a"};
  EXPECT_TRUE(absl::StrContains(IssueFiles(options, now_).status().message(),
                                "--host is only for"));
  options = Options(rpc::Role::kIsland, "Not an id");
  EXPECT_TRUE(absl::StrContains(IssueFiles(options, now_).status().message(),
                                "--id"));
  options = Options(rpc::Role::kIsland, "a");
  options.directory = Path("nowhere");
  EXPECT_EQ(IssueFiles(options, now_).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(AuthorityDirectoryTest, SaysThatTheCaHasExpired) {
  ASSERT_TRUE(Init("ca").ok());
  const absl::Status status = IssueFiles(Options(rpc::Role::kIsland, "a"),
                                         now_ + absl::Hours(241))
                                  .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
  for (const char* word : {"ca.crt", "expired at"}) {
    EXPECT_TRUE(absl::StrContains(status.message(), word)) << status;
  }
}

}  // namespace
}  // namespace atl::cli
