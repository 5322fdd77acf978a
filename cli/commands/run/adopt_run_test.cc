#include "cli/commands/run/adopt_run.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/io/posix_file_system.h"
#include "base/layout/layout.h"
#include "base/mirror/mirror_manifest.h"
#include "base/mirror/testing/small_checkpoint.h"
#include "base/object_store/file_store.h"
#include "base/object_store/object_store.h"
#include "base/object_store/object_url.h"
#include "base/random_id/random_id.h"
#include "cli/mirror/mirror_choice.h"
#include "cli/output/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

using ::testing::HasSubstr;
using storage::v1::MirrorManifest;

constexpr char kOtherUid[] = "fedcba9876543210fedcba9876543210";

class AdoptRunTest : public ::testing::Test {
 protected:
  AdoptRunTest()
      : root_(JoinObjectName(::testing::TempDir(), RandomId())),
        store_(MakeFileStore(root_, PosixFileSystem())) {
    options_.url = absl::StrCat("file://", root_);
    options_.run_id = "run";
  }
  ~AdoptRunTest() override { std::filesystem::remove_all(root_); }

  // A checkpoint of the run, after `round` commits.
  MirrorManifest Manifest(int round) {
    MirrorManifest manifest = mirror::SmallManifest(layout_);
    manifest.mutable_pin()->set_commit_seq(round + 1);
    manifest.mutable_pin()->set_pin_id(absl::StrCat("round-", round));
    manifest.mutable_point()->set_fragment_token_count(2000);
    manifest.mutable_spec()->set_server_count(2);
    return manifest;
  }
  void Put(MirrorManifest manifest) {
    const absl::Status status = mirror::PutSmallCheckpoint(*store_, manifest);
    EXPECT_TRUE(status.ok()) << status;
  }
  // The pin_id of what `from` names.
  std::string Find(const std::string& from = "") {
    options_.from = from;
    const auto found = FindToAdopt(*store_, options_);
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() ? (*found)->manifest().pin().pin_id() : "";
  }
  absl::Status Refused(const std::string& from = "") {
    options_.from = from;
    const absl::Status status = FindToAdopt(*store_, options_).status();
    EXPECT_FALSE(status.ok());
    return status;
  }

  const RunLayout layout_ = *RunLayout::Create(mirror::SmallLayout());
  const std::string root_;
  const std::unique_ptr<ObjectStore> store_;
  AdoptOptions options_;
};

TEST_F(AdoptRunTest, TheNewestThatIsNotSuspectIsTheDefault) {
  Put(Manifest(8));
  Put(Manifest(9));
  MirrorManifest suspect = Manifest(12);
  suspect.mutable_pin()->set_suspect(true);
  Put(suspect);
  EXPECT_EQ(Find(), "round-9");
  EXPECT_EQ(Find("round-12"), "round-12");
  EXPECT_EQ(Find("commit:8"), "round-8");
  EXPECT_EQ(Find("2/9"), "round-8");
  const absl::Status status = Refused("round-10");
  EXPECT_EQ(GetReason(status), "NO_CHECKPOINT");
  EXPECT_THAT(status.message(), HasSubstr("round-9 (commit:9)"));
}

TEST_F(AdoptRunTest, ASuspectOneIsTakenByNameOnly) {
  MirrorManifest suspect = Manifest(12);
  suspect.mutable_pin()->set_suspect(true);
  Put(suspect);
  const absl::Status status = Refused();
  EXPECT_EQ(GetReason(status), "NO_CHECKPOINT");
  EXPECT_THAT(GetHint(status), HasSubstr("--from"));
}

TEST_F(AdoptRunTest, ADamagedNewestOneIsNotReplacedByAnOlderOne) {
  Put(Manifest(8));
  const MirrorManifest newest = Manifest(9);
  Put(newest);
  const std::string path =
      JoinObjectName(root_, mirror::ManifestName(mirror::GetPlace(newest)));
  std::filesystem::resize_file(path, 100);
  const absl::Status status = Refused();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(GetHint(status), HasSubstr("--from"));
  EXPECT_EQ(Find("round-8"), "round-8");
}

// A store whose run changes it after each list of checkpoints.
class MovingStore : public ObjectStore {
 public:
  MovingStore(ObjectStore& store, std::function<absl::Status()> move)
      : store_(store), move_(std::move(move)) {}

  absl::StatusOr<std::vector<ObjectInfo>> List(absl::string_view prefix,
                                               int64_t count_max) override {
    auto listed = store_.List(prefix, count_max);
    const absl::Status moved = move_();
    if (!moved.ok()) return moved;
    return listed;
  }
  absl::StatusOr<ObjectInfo> Stat(absl::string_view name) override {
    return store_.Stat(name);
  }
  absl::Status Read(absl::string_view name, const ReadRange& range,
                    ObjectSink sink) override {
    return store_.Read(name, range, sink);
  }
  absl::StatusOr<std::unique_ptr<ObjectWriter>> Write(
      absl::string_view name, WriteMode mode) override {
    return store_.Write(name, mode);
  }
  std::string GetUrl(absl::string_view name) const override {
    return store_.GetUrl(name);
  }

 private:
  ObjectStore& store_;
  const std::function<absl::Status()> move_;
};

TEST_F(AdoptRunTest, ANewestOneThatMovesIsNotReplacedByAnOlderOne) {
  Put(Manifest(8));
  MirrorManifest newest = Manifest(9);
  Put(newest);
  int64_t epoch_max = newest.run_epoch() + 1;
  // The newest checkpoint moves to another run_epoch.
  MovingStore store(*store_, [&] {
    if (newest.run_epoch() == epoch_max) return absl::OkStatus();
    const std::string before = mirror::ManifestName(mirror::GetPlace(newest));
    newest.set_run_epoch(newest.run_epoch() + 1);
    Put(newest);
    return store_->Remove(before);
  });
  const auto found = FindToAdopt(store, options_);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ((*found)->manifest().pin().pin_id(), "round-9");
  EXPECT_EQ((*found)->manifest().run_epoch(), epoch_max);
  epoch_max += 100;
  const absl::Status status = FindToAdopt(store, options_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(status.message(), HasSubstr("kept changing: looked 9 times"));
  EXPECT_THAT(GetHint(status), HasSubstr("Try again"));
  options_.from = FormatPlace(mirror::GetPlace(Manifest(8)));
  const auto named = FindToAdopt(store, options_);
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ((*named)->manifest().pin().pin_id(), "round-8");
}

TEST_F(AdoptRunTest, AListThatFailsLetsNoOlderOneBeTaken) {
  Put(Manifest(8));
  const MirrorManifest newest = Manifest(9);
  Put(newest);
  bool is_moved = false;
  MovingStore store(*store_, [&] {
    if (is_moved) return absl::UnavailableError("away");
    is_moved = true;
    return store_->Remove(mirror::ManifestName(mirror::GetPlace(newest)));
  });
  EXPECT_TRUE(absl::IsUnavailable(FindToAdopt(store, options_).status()));
}

TEST_F(AdoptRunTest, OneOfSeveralRunsIsNamedByItsUid) {
  Put(Manifest(8));
  MirrorManifest other = Manifest(9);
  other.set_run_uid(kOtherUid);
  Put(other);
  const absl::Status status = Refused();
  EXPECT_THAT(GetHint(status), HasSubstr("--run-uid"));
  EXPECT_THAT(status.message(), HasSubstr(kOtherUid));
  options_.run_uid = kOtherUid;
  EXPECT_EQ(Find(), "round-9");
  options_.run_id = "spring";
  EXPECT_THAT(Refused().message(), HasSubstr("has the id run"));
  options_.run_uid.clear();
  EXPECT_EQ(GetReason(Refused()), "NO_CHECKPOINT");
}

TEST_F(AdoptRunTest, ItSaysWhatContinuesAndThatTheLossIsUnknown) {
  AdoptedRun adopted;
  adopted.manifest = Manifest(8);
  adopted.server_count = 3;
  adopted.is_dry = true;
  const Json data = ToJson(adopted);
  EXPECT_EQ(data["run_id"], "run");
  EXPECT_EQ(data["run_uid"], adopted.manifest.run_uid());
  EXPECT_EQ(data["pin_id"], "round-8");
  EXPECT_EQ(data["cut_commit_seq"], "9");
  EXPECT_EQ(data["server_count"], 3);
  EXPECT_EQ(data["token_count"], "1000");
  EXPECT_TRUE(data["lost_commit_count"].is_null());
  const std::string text = ToText(adopted);
  EXPECT_THAT(text, HasSubstr("the state after commit 8"));
  EXPECT_THAT(text, HasSubstr("3; the checkpoint is of 2"));
  EXPECT_THAT(text, HasSubstr("becomes the owner"));
}

}  // namespace
}  // namespace atl::cli
