#include "cli/ca/authority_directory.h"

#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "base/io/private_directory.h"
#include "base/rpc/certificates/authority.h"
#include "base/rpc/certificates/tls.h"
#include "cli/ca/ca_files.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

constexpr const char* kFiles[] = {"root.crt",       "root.key",
                                  "service-ca.crt", "service-ca.key",
                                  "island-ca.crt",  "island-ca.key"};

class AuthorityDirectoryTest : public ::testing::Test {
 protected:
  AuthorityDirectoryTest()
      : now_(absl::Now()),
        root_(::testing::TempDir() + "/" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(root_);
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

  absl::StatusOr<CaOrigin> Init(const std::string& name,
                                const std::string& existing = "") {
    return InitCa(Path(name), existing.empty() ? "" : Path(existing), now_,
                  absl::Hours(240));
  }

  // Writes a CA of the older kind.
  void WriteOldCa(const std::string& name, int path_length = 0) {
    const auto made = rpc::MakeAuthority("atoll CA", now_,
                                         now_ + absl::Hours(240), path_length);
    ASSERT_TRUE(MakePrivateDirectory(Path(name)).ok());
    ASSERT_TRUE(WriteFileIn(Path(name), kCaKeyFile, made->key_pem).ok());
    ASSERT_TRUE(WriteFileIn(Path(name), kCaCertFile, made->cert_pem).ok());
  }

  static int PathLength(const std::string& cert_pem) {
    return rpc::ReadFacts(cert_pem)->path_length;
  }

  const absl::Time now_;
  const std::string root_;
};

TEST_F(AuthorityDirectoryTest, MakesACaOnceAndKeepsIt) {
  ASSERT_EQ(Init("ca").value(), CaOrigin::kMade);
  EXPECT_EQ(Mode("ca"), 0700);
  std::string all;
  for (const std::string file : kFiles) {
    EXPECT_EQ(Mode("ca/" + file), absl::EndsWith(file, ".key") ? 0600 : 0644);
    all += Read("ca/" + file);
  }
  EXPECT_EQ(Init("ca").value(), CaOrigin::kKept);
  std::string again;
  for (const std::string file : kFiles) again += Read("ca/" + file);
  EXPECT_EQ(again, all);
}

TEST_F(AuthorityDirectoryTest, OnlyTheRootMaySignCas) {
  ASSERT_TRUE(Init("ca").ok());
  EXPECT_EQ(PathLength(Read("ca/root.crt")), 1);
  EXPECT_EQ(PathLength(Read("ca/service-ca.crt")), 0);
  EXPECT_EQ(PathLength(Read("ca/island-ca.crt")), 0);
  const std::string island = Read("ca/island-ca.crt");
  EXPECT_TRUE(rpc::CheckKeyUse(island, rpc::KeyUse::kClient).ok());
  EXPECT_FALSE(rpc::CheckKeyUse(island, rpc::KeyUse::kServer).ok());
}

TEST_F(AuthorityDirectoryTest, CopiesAnExistingCaIfThereIsOne) {
  ASSERT_TRUE(Init("old").ok());
  EXPECT_EQ(Init("copy", "old").value(), CaOrigin::kCopied);
  for (const std::string file : kFiles) {
    EXPECT_EQ(Read("copy/" + file), Read("old/" + file)) << file;
  }
  EXPECT_EQ(Mode("copy/island-ca.key"), 0600);
  EXPECT_EQ(Init("new", "nowhere").value(), CaOrigin::kMade);
}

TEST_F(AuthorityDirectoryTest, TheRootsKeyMayBeElsewhere) {
  ASSERT_TRUE(Init("ca").ok());
  std::filesystem::remove(Path("ca/root.key"));
  EXPECT_EQ(Init("ca").value(), CaOrigin::kKept);
  const auto ca = ReadCa(Path("ca"), now_);
  ASSERT_TRUE(ca.ok()) << ca.status();
  EXPECT_TRUE(ca->root.key_pem.empty());
  EXPECT_EQ(Init("copy", "ca").value(), CaOrigin::kCopied);
  EXPECT_FALSE(HoldsFile(Path("copy"), kRootKeyFile));
  const absl::Status status =
      RenewAuthorities(Path("ca"), now_, absl::Hours(1)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(status.message(), "root.key is missing"));
}

TEST_F(AuthorityDirectoryTest, KnowsARootByItsOlderName) {
  ASSERT_TRUE(Init("ca").ok());
  std::filesystem::rename(Path("ca/root.crt"), Path("ca/ca.crt"));
  std::filesystem::rename(Path("ca/root.key"), Path("ca/ca.key"));
  EXPECT_EQ(Init("ca").value(), CaOrigin::kKept);
  EXPECT_EQ(Init("copy", "ca").value(), CaOrigin::kCopied);
  EXPECT_EQ(Read("copy/root.crt"), Read("ca/ca.crt"));
  EXPECT_EQ(Read("copy/root.key"), Read("ca/ca.key"));
  const auto files = RenewAuthorities(Path("ca"), now_, absl::Hours(99));
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->front(), "ca.crt");
  EXPECT_FALSE(HoldsFile(Path("ca"), kRootCertFile));
}

TEST_F(AuthorityDirectoryTest, CopiesWhatItHasIssuedAndRevoked) {
  ASSERT_TRUE(Init("old").ok());
  ASSERT_TRUE(WriteFileIn(Path("old"), kIssuedFile, "a line\n").ok());
  ASSERT_TRUE(WriteFileIn(Path("old"), kCrlFile, "a list\n").ok());
  ASSERT_TRUE(Init("copy", "old").ok());
  EXPECT_EQ(Read("copy/issued.txt"), "a line\n");
  EXPECT_EQ(Read("copy/crl.pem"), "a list\n");
}

TEST_F(AuthorityDirectoryTest, RefusesAPartOfACa) {
  for (const std::string file : kFiles) {
    if (file == kRootKeyFile) continue;
    std::filesystem::remove_all(Path("ca"));
    ASSERT_TRUE(Init("ca").ok());
    std::filesystem::remove(Path("ca/" + file));
    for (const absl::Status& status :
         {Init("ca").status(), ReadCa(Path("ca"), now_).status(),
          Init("copy", "ca").status()}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_TRUE(absl::StrContains(status.message(), "without " + file))
          << status;
      // root.crt is written last.
      EXPECT_EQ(absl::StrContains(status.message(), "interrupted"),
                file == kRootCertFile)
          << status;
    }
  }
}

TEST_F(AuthorityDirectoryTest, RefusesARootWithoutTheCasThatItSigned) {
  WriteOldCa("ca", 1);
  const absl::Status status = ReadCa(Path("ca"), now_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(status.message(), "service-ca.crt")) << status;
}

TEST_F(AuthorityDirectoryTest, KnowsTheOlderKindOfCa) {
  WriteOldCa("ca");
  EXPECT_EQ(Init("ca").value(), CaOrigin::kKept);
  EXPECT_EQ(Init("copy", "ca").value(), CaOrigin::kCopied);
  const auto ca = ReadCa(Path("copy"), now_);
  ASSERT_TRUE(ca.ok()) << ca.status();
  EXPECT_FALSE(ca->has_island_ca());
  EXPECT_EQ(ca->service.key_pem, Read("ca/ca.key"));
  std::filesystem::remove(Path("ca/ca.key"));
  EXPECT_TRUE(absl::StrContains(Init("ca").status().message(),
                                "ca.crt without ca.key"));
}

TEST_F(AuthorityDirectoryTest, SaysThatTheCaHasExpired) {
  ASSERT_TRUE(Init("ca").ok());
  const absl::Status status =
      ReadCa(Path("ca"), now_ + absl::Hours(241)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
  for (const char* word : {"root.crt", "expired at"}) {
    EXPECT_TRUE(absl::StrContains(status.message(), word)) << status;
  }
}

TEST_F(AuthorityDirectoryTest, RenewsItsCertificatesAndKeepsItsKeys) {
  for (const bool tree : {true, false}) {
    std::filesystem::remove_all(Path("ca"));
    if (tree) {
      ASSERT_TRUE(Init("ca").ok());
    } else {
      WriteOldCa("ca");
    }
    const auto before = ReadCa(Path("ca"), now_);
    const absl::Time later = now_ + absl::Hours(999);
    const auto files = RenewAuthorities(Path("ca"), later, absl::Hours(99));
    ASSERT_TRUE(files.ok()) << files.status();
    EXPECT_EQ(files->size(), tree ? 3 : 1);
    const auto ca = ReadCa(Path("ca"), later + absl::Hours(98));
    ASSERT_TRUE(ca.ok()) << ca.status();
    EXPECT_EQ(ca->root.key_pem, before->root.key_pem);
    EXPECT_EQ(ca->service.key_pem, before->service.key_pem);
    EXPECT_EQ(ca->island.key_pem, before->island.key_pem);
  }
}

TEST_F(AuthorityDirectoryTest, SaysWhenLessThanAThirdOfItsLifeIsLeft) {
  ASSERT_TRUE(Init("ca").ok());
  const auto ca = ReadCa(Path("ca"), now_);
  const auto lines = [&](int hours) {
    return DescribeExpiry(*ca, "ca", now_ + absl::Hours(hours));
  };
  EXPECT_TRUE(lines(159).empty());
  ASSERT_EQ(lines(161).size(), 3);
  EXPECT_TRUE(absl::StrContains(lines(161)[1],
                                "`atoll ca renew --dir ca --authorities`"));
}

}  // namespace
}  // namespace atl::cli
