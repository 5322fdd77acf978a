#include "cli/commands/checkpoint/checkpoint_commands.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/io/posix_file_system.h"
#include "base/layout/digest.h"
#include "base/layout/external_model.h"
#include "base/mirror/mirror_manifest.h"
#include "base/mirror/testing/small_checkpoint.h"
#include "base/object_store/file_store.h"
#include "base/random_id/random_id.h"
#include "cli/output/output.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/api/model_files.h"

namespace atl::cli {
namespace {

namespace fs = std::filesystem;
using storage::v1::MirrorManifest;
using storage::v1::MirrorPart;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kOtherUid[] = "fedcba9876543210fedcba9876543210";

// A mirror in a directory, and the commands as a user types them.
class CheckpointCommandsTest : public testing::Test {
 protected:
  CheckpointCommandsTest()
      : root_(absl::StrCat(testing::TempDir(), "/", RandomId())),
        mirror_(root_ + "/mirror"),
        url_("file://" + mirror_),
        model_(root_ + "/model"),
        store_(MakeFileStore(mirror_, PosixFileSystem())) {
    fs::create_directories(mirror_);
  }
  ~CheckpointCommandsTest() override { fs::remove_all(root_); }

  // A manifest without parts.
  MirrorManifest Manifest(int64_t commit_seq = 5) {
    MirrorManifest manifest = mirror::SmallManifest(layout_);
    manifest.mutable_spec()->mutable_model()->set_architecture(
        kExternalArchitecture);
    manifest.mutable_pin()->set_commit_seq(commit_seq);
    return manifest;
  }

  MirrorManifest Put(MirrorManifest manifest) {
    const absl::Status status = mirror::PutSmallCheckpoint(*store_, manifest);
    EXPECT_TRUE(status.ok()) << status;
    return manifest;
  }

  // Writes only the manifest.
  void PutManifest(const MirrorManifest& manifest) {
    PutText(manifest, mirror::ManifestToJson(manifest));
  }

  void PutText(const MirrorManifest& manifest, const std::string& json) {
    const absl::Status status =
        PutObject(*store_, mirror::ManifestName(mirror::GetPlace(manifest)),
                  json, WriteMode::kReplace);
    EXPECT_TRUE(status.ok()) << status;
  }

  std::string PartPath(const MirrorManifest& manifest, int part) {
    const MirrorPart& at = manifest.parts(part);
    return absl::StrCat(
        mirror_, "/",
        mirror::PartName(mirror::GetPlace(manifest), at.shard(), at.fragment(),
                         at.sha256()));
  }

  // Runs `atoll checkpoint ...`; returns the exit code.
  int Run(std::vector<std::string> arguments,
          OutputFormat format = OutputFormat::kJson) {
    data_.str("");
    messages_.str("");
    Output output(format, data_, messages_);
    Context context(output, messages_);
    flags::Command app("checkpoint", "");
    app.RequireCommand();
    AddCheckpointList(app, context);
    AddCheckpointShow(app, context);
    AddCheckpointVerify(app, context);
    AddCheckpointExport(app, context);
    const flags::ParseResult parsed = app.Parse(std::move(arguments));
    EXPECT_EQ(parsed.error, "");
    if (!context.action) return -1;
    return static_cast<int>(output.Finish(context.action(context)));
  }

  int Export(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"export", url_, "--output", model_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(std::move(arguments));
  }

  Json Envelope() { return Json::parse(data_.str()); }
  Json Data() { return Envelope()["data"]; }
  std::string Reason() {
    return Envelope()["error"]["reason"].get<std::string>();
  }
  std::string Messages() { return messages_.str(); }

  const RunLayout layout_ = *RunLayout::Create(mirror::SmallLayout());
  const std::string root_;
  const std::string mirror_;
  const std::string url_;
  const std::string model_;
  const std::unique_ptr<ObjectStore> store_;
  std::ostringstream data_;
  std::ostringstream messages_;
};

TEST_F(CheckpointCommandsTest, ListHasEachWholeCheckpoint) {
  Put(Manifest(5));
  MirrorManifest suspect = Manifest(9);
  suspect.mutable_pin()->set_suspect(true);
  Put(suspect);
  // One without a manifest.
  const MirrorManifest unfinished = Put(Manifest(13));
  ASSERT_TRUE(
      store_->Remove(mirror::ManifestName(mirror::GetPlace(unfinished))).ok());
  ASSERT_EQ(Run({"list", url_}), 0) << Messages();
  const Json items = Data()["checkpoints"];
  ASSERT_EQ(items.size(), 2);
  EXPECT_EQ(items[0]["run_id"], "run");
  EXPECT_EQ(items[0]["run_uid"], unfinished.run_uid());
  EXPECT_EQ(items[0]["run_epoch"], "2");
  EXPECT_EQ(items[0]["commit_seq"], "5");
  EXPECT_EQ(items[0]["checkpoint"], "2/5");
  EXPECT_EQ(items[0]["suspect"], false);
  EXPECT_EQ(items[0]["problem"], "");
  EXPECT_GT(items[0]["size_bytes"].get<int64_t>(),
            layout_.element_count() * 8);
  EXPECT_EQ(items[1]["checkpoint"], "2/9");
  EXPECT_EQ(items[1]["suspect"], true);
  ASSERT_EQ(Run({"list", url_}, OutputFormat::kTable), 0);
  EXPECT_THAT(data_.str(), HasSubstr("SUSPECT"));
}

TEST_F(CheckpointCommandsTest, ShowHasVersionsIslandsAndParts) {
  MirrorManifest manifest = Manifest();
  manifest.mutable_point()->set_fragment_token_count(2000);
  storage::v1::MemberSet& member = *manifest.add_members()->mutable_member();
  member.set_island_id("attic");
  member.set_state(v1::ISLAND_STATE_READY);
  manifest = Put(manifest);
  Put(Manifest(4));
  ASSERT_EQ(Run({"show", url_}), 0) << Messages();
  const Json data = Data();
  EXPECT_EQ(data["checkpoint"], "2/5");
  EXPECT_EQ(data["pin_id"], "round-2");
  EXPECT_EQ(data["token_count"], "1000");
  EXPECT_EQ(data["element_count"], layout_.element_count());
  EXPECT_EQ(data["versions"].size(), 2);
  EXPECT_EQ(data["versions"][1]["version"], "2");
  EXPECT_EQ(data["members"][0]["island_id"], "attic");
  EXPECT_EQ(data["members"][0]["state"], "READY");
  ASSERT_EQ(data["parts"].size(), manifest.parts_size());
  EXPECT_EQ(mirror_ + "/" + data["parts"][0]["name"].get<std::string>(),
            PartPath(manifest, 0));
  ASSERT_EQ(Run({"show", url_, "--checkpoint", "2/4"}, OutputFormat::kTable),
            0);
  EXPECT_THAT(data_.str(), HasSubstr("the state after commit 3"));
  EXPECT_THAT(data_.str(),
              HasSubstr("fragment 0 at version 1, fragment 1 at version 2"));
}

TEST_F(CheckpointCommandsTest, VerifyNamesTheDamagedCheckpoint) {
  const MirrorManifest manifest = Put(Manifest());
  Put(Manifest(9));
  ASSERT_EQ(Run({"verify", url_}), 0) << Messages();
  EXPECT_EQ(Data()["checkpoints"].size(), 2);
  const std::string path = PartPath(manifest, 1);
  // A flipped byte, a longer file, no file.
  const auto expect_damage = [&] {
    EXPECT_EQ(Run({"verify", url_}), 5);
    EXPECT_EQ(Reason(), "CHECKPOINT_DAMAGED");
    EXPECT_THAT(Messages(), HasSubstr(path));
    EXPECT_THAT(Messages(), HasSubstr("1 of 2"));
    EXPECT_THAT(Data()["checkpoints"][0]["problem"].get<std::string>(),
                HasSubstr(path));
    EXPECT_EQ(Data()["checkpoints"][1]["problem"], "");
    EXPECT_EQ(Run({"verify", url_, "--checkpoint", "2/9"}), 0);
    EXPECT_EQ(Run({"verify", url_, "--checkpoint", "2/5"}), 5);
  };
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-3, std::ios::end);
    file.put('\x7f');
  }
  expect_damage();
  std::ofstream(path, std::ios::app) << "x";
  expect_damage();
  fs::remove(path);
  expect_damage();
}

TEST_F(CheckpointCommandsTest, AManifestOfANewerFormatIsUnusable) {
  Put(Manifest());
  MirrorManifest newer = Manifest(9);
  newer.set_format(2);
  Put(newer);
  MirrorManifest unknown = Put(Manifest(13));
  PutText(unknown, absl::StrReplaceAll(mirror::ManifestToJson(unknown),
                                       {{"\"run_id\"", "\"new_field\""}}));
  ASSERT_EQ(Run({"list", url_}), 0);
  const Json items = Data()["checkpoints"];
  ASSERT_EQ(items.size(), 3);
  EXPECT_EQ(items[0]["problem"], "");
  EXPECT_THAT(items[1]["problem"].get<std::string>(), HasSubstr("format"));
  EXPECT_THAT(items[2]["problem"].get<std::string>(), HasSubstr("new_field"));
  EXPECT_THAT(Messages(), HasSubstr("/2/9/manifest.json"));
  EXPECT_EQ(Run({"verify", url_}), 5);
  EXPECT_THAT(Messages(), HasSubstr("2 of 3"));
  EXPECT_EQ(Run({"show", url_}), 5);
  // The newest is not replaced by an older one that the user did not name.
  EXPECT_EQ(Export(), 5);
  EXPECT_THAT(Messages(), HasSubstr("atoll checkpoint verify " + url_));
  EXPECT_FALSE(fs::exists(model_));
  EXPECT_EQ(Export({"--checkpoint", "2/5"}), 0) << Messages();
}

TEST_F(CheckpointCommandsTest, AHugeLayoutTakesNoMemory) {
  MirrorManifest manifest = mirror::SmallManifest(layout_);
  v1::Layout& claimed = *manifest.mutable_spec()->mutable_layout();
  claimed.mutable_tensors(3)->set_shape(0, int64_t{1} << 39);
  manifest.set_shard_count(1);
  const RunLayout layout = *RunLayout::Create(claimed);
  for (int32_t f = 0; f < 2; ++f) {
    MirrorPart& part = *manifest.add_parts();
    part.set_fragment(f);
    const mirror::PartIdentity identity = mirror::GetIdentity(manifest, part);
    part.set_sha256(std::string(64, 'a'));
    part.set_size_bytes(
        static_cast<int64_t>(mirror::PartHeader(layout, identity).size()) +
        mirror::PartElementCount(layout, identity) * 8);
  }
  PutManifest(manifest);
  EXPECT_EQ(Run({"list", url_}), 0) << Messages();
  EXPECT_EQ(Data()["checkpoints"][0]["problem"], "");
  EXPECT_EQ(Export(), 10);
  EXPECT_EQ(Reason(), "NOT_ENOUGH_MEMORY");
  EXPECT_FALSE(fs::exists(model_));
  EXPECT_EQ(Run({"verify", url_}), 10);
}

TEST_F(CheckpointCommandsTest, AHostileManifestIsUnusable) {
  const MirrorManifest good = Put(Manifest());
  const auto expect_refused = [&](void (*change)(MirrorManifest&)) {
    MirrorManifest manifest = good;
    change(manifest);
    PutManifest(manifest);
    EXPECT_EQ(Run({"list", url_}), 0) << Messages();
    EXPECT_NE(Data()["checkpoints"][0]["problem"], "");
    EXPECT_EQ(Run({"verify", url_}), 5);
    EXPECT_EQ(Export(), 5);
    EXPECT_FALSE(fs::exists(model_));
  };
  expect_refused([](auto& m) { m.set_run_id("../../run"); });
  expect_refused([](auto& m) { m.mutable_pin()->set_pin_id("../x"); });
  expect_refused([](auto& m) { m.mutable_parts(0)->set_sha256("../../x"); });
  expect_refused([](auto& m) { m.mutable_parts(0)->set_size_bytes(1); });
  expect_refused([](auto& m) { m.set_shard_count(1 << 30); });
  expect_refused([](auto& m) {
    m.mutable_spec()->mutable_layout()->mutable_tensors(0)->set_name("../x");
  });
  expect_refused([](auto& m) {
    m.mutable_spec()->mutable_layout()->set_fragment_count(1 << 30);
  });
  PutText(good, std::string(1 << 20, '['));
  EXPECT_EQ(Export(), 5);
  PutManifest(good);
  EXPECT_EQ(Export(), 0) << Messages();
}

TEST_F(CheckpointCommandsTest, NumbersAndTextOfAManifestKeepTheOutputValid) {
  MirrorManifest manifest = Manifest();
  manifest.mutable_spec()->mutable_outer()->set_learning_rate(std::nan(""));
  manifest.mutable_point()->add_fragments()->add_step_norms(std::nan(""));
  manifest.mutable_point()->set_fragment_token_count(-5);
  manifest.add_members()->mutable_member()->set_island_id("\x1b[2J\n\"");
  Put(manifest);
  ASSERT_EQ(Run({"show", url_}), 0) << Messages();
  EXPECT_EQ(Data()["members"][0]["island_id"], "\x1b[2J\n\"");
  for (const char* command : {"list", "show", "verify"}) {
    ASSERT_EQ(Run({command, url_}, OutputFormat::kTable), 0) << Messages();
    EXPECT_THAT(data_.str(), Not(HasSubstr("\x1b")));
  }
}

TEST_F(CheckpointCommandsTest, LinksOfOtherUsersAreNoCheckpoints) {
  const MirrorManifest manifest = Put(Manifest());
  const std::string outside = root_ + "/outside";
  fs::create_directories(outside);
  fs::rename(absl::StrCat(mirror_, "/", manifest.run_uid()),
             outside + "/run");
  fs::create_directory_symlink(
      outside + "/run", absl::StrCat(mirror_, "/", manifest.run_uid()));
  EXPECT_EQ(Run({"list", url_}), 8);
  EXPECT_EQ(Export({"--checkpoint", "2/5"}), 8);
  EXPECT_EQ(Reason(), "NO_CHECKPOINT");
  // A link in the place of the directory's files.
  fs::remove(absl::StrCat(mirror_, "/", manifest.run_uid()));
  fs::rename(outside + "/run",
             absl::StrCat(mirror_, "/", manifest.run_uid()));
  fs::create_directories(model_);
  std::ofstream(outside + "/mine") << "mine";
  fs::create_symlink(outside + "/mine", model_ + "/model.safetensors");
  EXPECT_EQ(Export(), 9);
  EXPECT_EQ(fs::file_size(outside + "/mine"), 4);
}

TEST_F(CheckpointCommandsTest, AnExportIsTheModelOfTheNewestCheckpoint) {
  Put(Manifest(4));
  Put(Manifest(5));
  ASSERT_EQ(Export(), 0) << Messages();
  const Json data = Data();
  EXPECT_EQ(data["run_id"], "run");
  EXPECT_EQ(data["checkpoint"], "2/5");
  EXPECT_EQ(data["commit_seq"], "5");
  const std::vector<float> parameters = mirror::SmallParameters(layout_);
  EXPECT_EQ(data["parameters_sha256"], ParametersSha256(layout_, parameters));
  const auto model = worker::ReadModelToImport(model_, mirror::SmallLayout());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->parameters, parameters);
  // Again; then another commit.
  EXPECT_EQ(Export(), 0) << Messages();
  EXPECT_EQ(Export({"--checkpoint", "2/4"}), 9);
  EXPECT_EQ(Reason(), "EXPORT_DIFFERS");
  EXPECT_THAT(Messages(), HasSubstr("--force"));
  EXPECT_EQ(Export({"--checkpoint", "2/4", "--force"}), 0) << Messages();
}

TEST_F(CheckpointCommandsTest, ADamagedCheckpointIsNotExported) {
  const MirrorManifest manifest = Put(Manifest());
  fs::resize_file(PartPath(manifest, 0), 100);
  EXPECT_EQ(Export(), 5);
  EXPECT_THAT(Messages(), HasSubstr(PartPath(manifest, 0)));
  EXPECT_FALSE(fs::exists(model_));
}

TEST_F(CheckpointCommandsTest, AnExportReplacesNoOtherData) {
  Put(Manifest());
  fs::create_directories(model_);
  std::ofstream(model_ + "/model.safetensors") << "mine";
  EXPECT_EQ(Export({"--force"}), 9);
  EXPECT_EQ(Reason(), "NOT_OURS");
  EXPECT_EQ(fs::file_size(model_ + "/model.safetensors"), 4);
  // A server's or coordinator's directory.
  fs::remove(model_ + "/model.safetensors");
  std::ofstream(model_ + "/identity") << "data";
  std::ofstream(model_ + "/lock") << "";
  EXPECT_EQ(Export({"--force"}), 9);
  EXPECT_FALSE(fs::exists(model_ + "/model.safetensors"));
}

TEST_F(CheckpointCommandsTest, AMirrorOfSeveralRunsNeedsTheRunsName) {
  const MirrorManifest first = Put(Manifest());
  MirrorManifest second = Manifest(7);
  second.set_run_id("spring");
  second.set_run_uid(kOtherUid);
  Put(second);
  ASSERT_EQ(Run({"list", url_}), 0);
  EXPECT_EQ(Data()["checkpoints"].size(), 2);
  EXPECT_EQ(Export(), 2);
  EXPECT_THAT(Messages(), HasSubstr(absl::StrCat("run (", first.run_uid())));
  EXPECT_THAT(Messages(), HasSubstr(absl::StrCat("spring (", kOtherUid)));
  ASSERT_EQ(Run({"show", url_, "--run", "spring"}), 0) << Messages();
  EXPECT_EQ(Data()["checkpoint"], "2/7");
  ASSERT_EQ(Run({"show", url_, "--run", first.run_uid()}), 0) << Messages();
  EXPECT_EQ(Data()["run_id"], "run");
  EXPECT_EQ(Run({"show", url_, "--run", "autumn"}), 8);
  EXPECT_THAT(Messages(), HasSubstr("spring"));
  // Another run of the same id.
  second.set_run_id("run");
  second.clear_parts();
  Put(second);
  EXPECT_EQ(Run({"show", url_, "--run", "run"}), 2);
  EXPECT_EQ(Run({"show", url_, "--run", kOtherUid}), 0) << Messages();
}

TEST_F(CheckpointCommandsTest, AWrongNameIsExplained) {
  EXPECT_EQ(Run({"list", url_}), 8);
  EXPECT_THAT(Messages(), HasSubstr(url_));
  EXPECT_EQ(Run({"list", url_ + "/none"}), 8);
  EXPECT_EQ(Run({"list", "spring"}), 2);
  EXPECT_THAT(Messages(), HasSubstr("atoll run show spring"));
  EXPECT_EQ(Run({"list", "ftp://host/x"}), 4);
  Put(Manifest());
  EXPECT_EQ(Run({"show", url_, "--checkpoint", "2/6"}), 8);
  EXPECT_THAT(Messages(), HasSubstr("it has 2/5"));
  for (const char* wrong : {"2", "2/", "/5", "a/b", "2/5/1"}) {
    EXPECT_EQ(Run({"show", url_, "--checkpoint", wrong}), 2) << wrong;
  }
}

}  // namespace
}  // namespace atl::cli
