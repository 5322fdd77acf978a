#include "coordinator/service/log_secret.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/time/clock.h"
#include "coordinator/service/init_log.h"
#include "coordinator/store/rocksdb_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using StatusCode = absl::StatusCode;

constexpr char kSecret[] = "0123456789abcdef0123456789abcdef";

class LogSecretTest : public testing::Test {
 protected:
  LogSecretTest() {
    std::string pattern = testing::TempDir() + "/secret_XXXXXX";
    root_ = mkdtemp(pattern.data());
    directory_ = root_ + "/c";
    file_ = root_ + "/log.secret";
  }

  absl::Status Init(const std::string& secret_file = "",
                    bool if_empty = false) {
    return InitLog({directory_, "", if_empty, secret_file}, SystemClock())
        .status();
  }

  // What the log itself has.
  std::string OwnSecret() {
    const auto store = RocksDbStore::OpenToRead(directory_);
    EXPECT_TRUE(store.ok()) << store.status();
    return (*store)->Scan("", 0, 1)->front().coordinator_started().log_secret();
  }

  std::string Text() {
    std::ifstream in(file_);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::string root_;
  std::string directory_;
  std::string file_;
};

TEST_F(LogSecretTest, IsReadAlsoWhileACoordinatorRuns) {
  ASSERT_TRUE(Init().ok());
  EXPECT_EQ(*ReadLogSecret(directory_), OwnSecret());
  const auto store = RocksDbStore::Open(directory_);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ(*ReadLogSecret(directory_), OwnSecret());
  EXPECT_FALSE(IsSecretExported(directory_));
}

TEST_F(LogSecretTest, IsThatOfTheNewestStart) {
  ASSERT_TRUE(Init().ok());
  {
    const auto store = *RocksDbStore::Open(directory_);
    Batch batch;
    batch.entries = {{"", (*store->Scan("", 0, 1)).front()}};
    storage::v1::Record& record = batch.entries.front().record;
    record.set_revision(2);
    record.mutable_coordinator_started()->set_log_secret(kSecret);
    ASSERT_TRUE(store->Append(batch).ok());
  }
  EXPECT_EQ(*ReadLogSecret(directory_), kSecret);
}

TEST_F(LogSecretTest, ADirectoryWithoutALogHasNone) {
  EXPECT_EQ(ReadLogSecret(directory_).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_FALSE(IsSecretExported(directory_));
}

TEST_F(LogSecretTest, AFileIsReadBackAndNeverReplaced) {
  ASSERT_TRUE(WriteSecretFile(file_, kSecret).ok());
  EXPECT_EQ(Text(), absl::StrCat(kSecret, "\n"));
  struct stat status = {};
  ASSERT_EQ(stat(file_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(*ReadSecretFile(file_), kSecret);
  EXPECT_EQ(WriteSecretFile(file_, "other").code(), StatusCode::kAlreadyExists);
  fs::create_symlink(root_ + "/elsewhere", root_ + "/link");
  EXPECT_EQ(WriteSecretFile(root_ + "/link", kSecret).code(),
            StatusCode::kAlreadyExists);
  EXPECT_FALSE(fs::exists(root_ + "/elsewhere"));
  EXPECT_EQ(*ReadSecretFile(file_), kSecret);
}

TEST_F(LogSecretTest, AnotherFileIsRefusedAndNotQuoted) {
  for (const std::string& text :
       {std::string(), std::string("0123"), std::string("not hex ") + kSecret,
        std::string(kSecret) + "\n" + kSecret, std::string(200, 'a')}) {
    std::ofstream(file_) << text;
    const absl::Status status = ReadSecretFile(file_).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(file_));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr(kSecret)));
  }
  EXPECT_EQ(ReadSecretFile(root_ + "/none").status().code(),
            StatusCode::kNotFound);
}

TEST_F(LogSecretTest, InitWritesIt) {
  ASSERT_TRUE(Init(file_).ok());
  EXPECT_EQ(*ReadSecretFile(file_), OwnSecret());
  EXPECT_TRUE(IsSecretExported(directory_));
}

TEST_F(LogSecretTest, InitLeavesAFileThatIsThere) {
  std::ofstream(file_) << kSecret;
  for (const bool if_empty : {false, true}) {
    const absl::Status status = Init(file_, if_empty);
    EXPECT_EQ(status.code(), StatusCode::kAlreadyExists) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("restore"));
  }
  EXPECT_FALSE(fs::exists(directory_));
  EXPECT_EQ(Text(), kSecret);
}

TEST_F(LogSecretTest, InitIfEmptyWritesThatOfALogThatIsThere) {
  ASSERT_TRUE(Init().ok());
  // As after a crash between the log and the file.
  const absl::Status refused = Init(file_);
  EXPECT_EQ(refused.code(), StatusCode::kAlreadyExists) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("secret --data-dir " + directory_ + " --output"));
  EXPECT_FALSE(fs::exists(file_));
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = Init(file_, /*if_empty=*/true);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(*ReadSecretFile(file_), OwnSecret());
    EXPECT_TRUE(IsSecretExported(directory_));
  }
  std::ofstream(file_) << kSecret;
  const absl::Status other = Init(file_, /*if_empty=*/true);
  EXPECT_EQ(other.code(), StatusCode::kAlreadyExists) << other;
  EXPECT_EQ(Text(), kSecret);
}

}  // namespace
}  // namespace atl::coordinator
