#include "coordinator/service/init_log.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/random_id/random_id.h"
#include "base/time/clock.h"
#include "coordinator/store/rocksdb_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using StatusCode = absl::StatusCode;

constexpr char kId[] = "0123456789abcdef0123456789abcdef";
constexpr char kOther[] = "ffffffffffffffffffffffffffffffff";

class InitLogTest : public testing::Test {
 protected:
  InitLogTest() {
    std::string pattern = testing::TempDir() + "/init_XXXXXX";
    directory_ = std::string(mkdtemp(pattern.data())) + "/c";
  }

  absl::StatusOr<InitResult> Init(const std::string& id = "",
                                  bool if_empty = false) {
    return InitLog({directory_, id, if_empty}, SystemClock());
  }

  // The one start that a new log has.
  storage::v1::CoordinatorStarted FirstStart() {
    const auto store = RocksDbStore::Open(directory_);
    EXPECT_TRUE(store.ok()) << store.status();
    const auto records = (*store)->Scan("", 0, 9);
    EXPECT_EQ(records->size(), 1u);
    return records->front().coordinator_started();
  }

  std::map<std::string, fs::file_time_type> Times() {
    std::map<std::string, fs::file_time_type> times;
    for (const auto& entry : fs::directory_iterator(directory_)) {
      times[entry.path()] = fs::last_write_time(entry.path());
    }
    return times;
  }

  std::string directory_;
};

TEST_F(InitLogTest, MakesALogWithTheIdThatIsGiven) {
  const auto made = Init(kId);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_TRUE(made->made);
  EXPECT_EQ(made->cluster_id, kId);
  const auto start = FirstStart();
  EXPECT_EQ(start.cluster_id(), kId);
  EXPECT_TRUE(IsRandomId(start.log_secret()));
}

TEST_F(InitLogTest, MakesAnIdAndASecretOfItsOwn) {
  const std::string id = Init()->cluster_id;
  EXPECT_TRUE(IsRandomId(id));
  const std::string secret = FirstStart().log_secret();
  fs::remove_all(directory_);
  // The same id again: peers still tell the two logs apart.
  ASSERT_TRUE(Init(id).ok());
  EXPECT_NE(FirstStart().log_secret(), secret);
}

TEST_F(InitLogTest, RefusesAnIdOfAnotherForm) {
  for (const std::string id : {"x", "0123456789ABCDEF0123456789ABCDEF"}) {
    const absl::Status status = Init(id).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(id));
  }
  EXPECT_FALSE(fs::exists(directory_));
}

TEST_F(InitLogTest, LeavesALogThatIsThere) {
  ASSERT_TRUE(Init(kId).ok());
  const auto times = Times();
  for (const std::string id : {"", kId, kOther}) {
    const absl::Status status = Init(id).status();
    EXPECT_EQ(status.code(), StatusCode::kAlreadyExists) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(kId));
    const auto found = Init(id, /*if_empty=*/true);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_FALSE(found->made);
    EXPECT_EQ(found->cluster_id, kId);
  }
  EXPECT_EQ(Times(), times);
}

TEST_F(InitLogTest, ReadsTheIdWhileACoordinatorRuns) {
  ASSERT_TRUE(Init(kId).ok());
  const auto store = RocksDbStore::Open(directory_);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ(Init().status().code(), StatusCode::kAlreadyExists);
  const auto found = Init("", /*if_empty=*/true);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->cluster_id, kId);
}

TEST_F(InitLogTest, ReadsTheIdOfASnapshot) {
  ASSERT_TRUE(Init(kId).ok());
  {
    const auto store = *RocksDbStore::Open(directory_);
    Batch batch;
    batch.entries = {{"", (*store->Scan("", 0, 1)).front()}};
    storage::v1::Record& record = batch.entries.front().record;
    record.set_revision(2);
    LogSnapshot& taken = batch.snapshots.emplace_back();
    *taken.snapshot.mutable_coordinator()->add_starts() =
        record.coordinator_started();
    record.mutable_server_set();
    taken.snapshot.set_revision(2);
    taken.snapshot.set_compacted_revision(1);
    ASSERT_TRUE(store->Append(batch).ok());
  }
  EXPECT_EQ(Init("", /*if_empty=*/true)->cluster_id, kId);
}

TEST_F(InitLogTest, KeepsOutOfOthersDirectories) {
  fs::create_directories(directory_);
  std::ofstream(directory_ + "/photo.jpg") << "x";
  for (const bool if_empty : {false, true}) {
    const absl::Status status = Init(kId, if_empty).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("photo.jpg"));
  }
  EXPECT_FALSE(fs::exists(directory_ + "/lock"));
}

// A crash may leave any prefix of the calls that make the store.
TEST_F(InitLogTest, ContinuesAfterAnInterruption) {
  ASSERT_TRUE(RocksDbStore::Create(directory_).ok());
  EXPECT_EQ(RocksDbStore::Open(directory_).status().code(),
            StatusCode::kFailedPrecondition);
  const auto made = Init(kId);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_TRUE(made->made);
  EXPECT_EQ(FirstStart().cluster_id(), kId);
}

}  // namespace
}  // namespace atl::coordinator
