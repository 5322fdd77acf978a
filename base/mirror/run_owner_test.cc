#include "base/mirror/run_owner.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/io/posix_file_system.h"
#include "base/mirror/mirror_json.h"
#include "base/mirror/mirror_names.h"
#include "base/object_store/file_store.h"
#include "base/object_store/object_url.h"
#include "base/random_id/random_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::mirror {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Code = absl::StatusCode;
using storage::v1::RunOwner;

constexpr char kRun[] = "0123456789abcdef0123456789abcdef";
constexpr char kOld[] = "00000000000000000000000000000000";
constexpr char kNew[] = "11111111111111111111111111111111";

RunOwner Make(const std::string& cluster_id, int64_t run_epoch) {
  RunOwner owner;
  owner.set_format(kOwnerFormat);
  owner.set_run_id("run");
  owner.set_run_uid(kRun);
  owner.set_run_epoch(run_epoch);
  owner.set_cluster_id(cluster_id);
  owner.set_start_id("start");
  return owner;
}

class RunOwnerTest : public ::testing::Test {
 protected:
  RunOwnerTest()
      : root_(JoinObjectName(::testing::TempDir(), RandomId())),
        store_(MakeFileStore(root_, PosixFileSystem())) {}
  ~RunOwnerTest() override { std::filesystem::remove_all(root_); }

  RunOwner Take(const RunOwner& own) {
    const absl::StatusOr<RunOwner> taken = TakeOwnership(*store_, own);
    EXPECT_TRUE(taken.ok()) << taken.status();
    return taken.value_or(RunOwner());
  }
  void Put(int64_t run_epoch, const std::string& json) {
    ASSERT_TRUE(PutObject(*store_, OwnerName({kRun, run_epoch}), json,
                          WriteMode::kReplace)
                    .ok());
  }
  std::vector<int64_t> Epochs() {
    std::vector<int64_t> epochs;
    const auto objects = store_->List(OwnersPrefix(kRun), 100);
    for (const ObjectInfo& info : *objects) {
      epochs.push_back(ParseOwnerName(info.name)->run_epoch);
    }
    return epochs;
  }

  const std::string root_;
  const std::unique_ptr<ObjectStore> store_;
};

TEST_F(RunOwnerTest, AMirrorWithoutOwnersIsTheFirstOnes) {
  EXPECT_FALSE(ReadOwner(*store_, kRun)->has_value());
  const RunOwner own = Make(kOld, 3);
  const RunOwner taken = Take(own);
  EXPECT_TRUE(IsOwner(taken, own));
  EXPECT_EQ(taken.since_run_epoch(), 1);
  EXPECT_EQ((*ReadOwner(*store_, kRun))->cluster_id(), kOld);
}

TEST_F(RunOwnerTest, TheHigherEpochWins) {
  Take(Make(kOld, 1));
  const RunOwner taken = Take(Make(kNew, 1001));
  EXPECT_TRUE(IsOwner(taken, Make(kNew, 1001)));
  EXPECT_EQ(taken.since_run_epoch(), 1001);
  for (const int64_t lower : {1, 2, 1000}) {
    const RunOwner found = Take(Make(kOld, lower));
    EXPECT_FALSE(IsOwner(found, Make(kOld, lower)));
    EXPECT_EQ(found.cluster_id(), kNew);
  }
  // It takes the run back, and what it had before is another owner's by now.
  EXPECT_EQ(Take(Make(kOld, 1002)).since_run_epoch(), 1002);
  EXPECT_EQ(Take(Make(kNew, 1001)).cluster_id(), kOld);
}

TEST_F(RunOwnerTest, OfTwoWithOneEpochTheFirstWins) {
  Take(Make(kOld, 1001));
  EXPECT_EQ(Take(Make(kNew, 1001)).cluster_id(), kOld);
  EXPECT_TRUE(IsOwner(Take(Make(kOld, 1001)), Make(kOld, 1001)));
}

TEST_F(RunOwnerTest, ARestoreInPlaceKeepsWhatTheClusterHad) {
  for (int64_t epoch = 1; epoch <= 4; ++epoch) {
    EXPECT_EQ(Take(Make(kOld, epoch)).since_run_epoch(), 1);
  }
  EXPECT_THAT(Epochs(), ElementsAre(3, 4));
  // A repeat writes nothing.
  EXPECT_EQ(Take(Make(kOld, 4)).run_epoch(), 4);
  EXPECT_THAT(Epochs(), ElementsAre(3, 4));
}

TEST_F(RunOwnerTest, ADamagedOneStopsItsOwnEpochOnly) {
  Put(5, "{");
  const absl::Status status = TakeOwnership(*store_, Make(kOld, 5)).status();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr(OwnerName({kRun, 5})));
  EXPECT_EQ(ReadOwner(*store_, kRun).status().code(), Code::kDataLoss);
  // It may have been another cluster's.
  EXPECT_EQ(Take(Make(kOld, 6)).since_run_epoch(), 6);
  RunOwner newer = Make(kNew, 7);
  newer.set_format(2);
  Put(7, ToJson(newer));
  EXPECT_EQ(TakeOwnership(*store_, Make(kOld, 6)).status().code(),
            Code::kDataLoss);
  RunOwner elsewhere = Make(kNew, 7);
  Put(8, ToJson(elsewhere));
  EXPECT_EQ(TakeOwnership(*store_, Make(kOld, 6)).status().code(),
            Code::kDataLoss);
}

TEST_F(RunOwnerTest, AMalformedOneIsNotWritten) {
  for (const RunOwner& wrong :
       {Make("", 1), Make(kOld, 0), Make(kOld, kOwnerEpochMax + 1),
        RunOwner()}) {
    EXPECT_EQ(TakeOwnership(*store_, wrong).status().code(),
              Code::kInvalidArgument);
  }
  EXPECT_FALSE(ReadOwner(*store_, kRun)->has_value());
}

TEST(MirrorJsonTest, OnlyAHigherFormatIsNewer) {
  for (const char* json :
       {"{\"format\": 2}", "{\"parts\": {\"a\": [1]}, \"format\": 3}",
        "{\"format\": \"2\"}"}) {
    EXPECT_TRUE(HasNewerFormat(json, 1)) << json;
  }
  for (const char* json :
       {"", "{", "[2]", "2", "{}", "{\"format\": 1}", "{\"format\": 0}",
        "{\"format\": {\"a\": 2}}", "{\"format\": \"x\"}"}) {
    EXPECT_FALSE(HasNewerFormat(json, 1)) << json;
  }
}

}  // namespace
}  // namespace atl::mirror
