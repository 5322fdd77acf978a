#include "worker/checkpoint/export_directory.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/codec/sha256.h"
#include "base/io/posix_file_system.h"
#include "base/io/testing/dying_file_system.h"
#include "base/status/refusal.h"
#include "gtest/gtest.h"

namespace atl::worker {
namespace {

namespace fs = std::filesystem;

// As of a program that wrote no run_uid.
constexpr char kOldManifest[] = R"({
  "format": 1, "kind": "atoll checkpoint", "run_id": "run", "run_epoch": 1,
  "commit_seq": 7, "version": 7, "layout_fingerprint": "0", "element_count": 1,
  "parameters_sha256": "",
  "files": [{"name": "model.safetensors", "bytes": 3, "sha256": ""}]})";

class ExportDirectoryTest : public testing::Test {
 protected:
  ExportDirectoryTest()
      : root_(absl::StrCat(
            testing::TempDir(), "/export_", ::getpid(), "_",
            testing::UnitTest::GetInstance()->current_test_info()->name())),
        directory_(root_ + "/model") {
    fs::create_directories(root_);
    options_.names = {kWeightsName, kConfigName};
    options_.source.run_id = "run";
    options_.source.run_uid = "uid";
    options_.source.commit_seq = 7;
  }
  ~ExportDirectoryTest() override { fs::remove_all(root_); }

  void Put(const std::string &name, const std::string &bytes) {
    fs::create_directories(directory_);
    std::ofstream(directory_ + "/" + name) << bytes;
  }
  std::string Text(const std::string &name) {
    std::ifstream in(directory_ + "/" + name);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::set<std::string> Names() {
    std::set<std::string> names;
    for (const auto &entry : fs::directory_iterator(directory_)) {
      names.insert(entry.path().filename());
    }
    return names;
  }
  // Exports files with `text`.
  absl::Status Export(const std::string &text,
                      FileSystem &files = PosixFileSystem()) {
    const auto opened = ExportDirectory::Open(files, directory_, options_);
    if (!opened.ok()) return opened.status();
    CheckpointManifest manifest;
    manifest.source = options_.source;
    for (const std::string &name : options_.names) {
      const auto file = (*opened)->Create(name);
      if (!file.ok()) return file.status();
      absl::Status status = (*file)->WriteAt(0, text);
      if (status.ok()) status = (*file)->Sync();
      if (!status.ok()) return status;
      const std::string sum = codec::ToHex(codec::ComputeSha256(text));
      texts_[sum] = text;
      manifest.files.push_back(
          {name, static_cast<int64_t>(text.size()), sum});
    }
    return (*opened)->Commit(manifest);
  }
  // The refusal names `name`, has `reason`, and changes nothing.
  void ExpectRefused(const std::string &reason, const std::string &name) {
    const std::set<std::string> before = Names();
    const absl::Status status = Export("new");
    EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists) << status;
    EXPECT_EQ(GetReason(status).value_or(ErrorReason()).reason, reason);
    EXPECT_TRUE(absl::StrContains(status.message(), name)) << status;
    EXPECT_EQ(Names(), before);
  }
  // The text whose sum the manifest has for each file; empty: there is no
  // finished manifest.
  std::string ManifestText() {
    const auto manifest = ParseCheckpointManifest(Text("manifest.json"));
    if (!manifest.has_value() || !manifest->is_finished) return "";
    return texts_[manifest->files[0].sha256];
  }

  const std::string root_;
  const std::string directory_;
  ExportDirectoryOptions options_;
  std::map<std::string, std::string> texts_;  // By their sums.
};

TEST_F(ExportDirectoryTest, WritesItsFilesAndNothingElse) {
  ASSERT_TRUE(Export("a").ok());
  EXPECT_EQ(Names(), (std::set<std::string>{"config.json", "manifest.json",
                                            "model.safetensors"}));
  EXPECT_EQ(Text("config.json"), "a");
  ASSERT_TRUE(Export("b").ok());  // The same run and commit.
  EXPECT_EQ(Text("model.safetensors"), "b");
  EXPECT_EQ(ManifestText(), "b");
}

TEST_F(ExportDirectoryTest, APublishedDataSetStays) {
  Put("manifest.json", R"({"version": 1, "format": "llmc", "shards": []})");
  Put("tokens_000000.bin", "tokens");
  options_.replaces_other = true;
  ExpectRefused("NOT_OURS", "/manifest.json");
  Put("manifest.json", "no JSON");
  ExpectRefused("NOT_OURS", "/manifest.json");
  EXPECT_EQ(Text("tokens_000000.bin"), "tokens");
}

TEST_F(ExportDirectoryTest, ADirectoryOfAProgramsDataIsRefused) {
  options_.replaces_other = true;
  for (const std::vector<std::string> &names :
       {std::vector<std::string>{"identity", "lock"}, {"mark", "CURRENT"},
        {"run.island.save"}}) {
    for (const std::string &name : names) Put(name, "data");
    ExpectRefused("NOT_OURS", directory_);
    for (const std::string &name : names) fs::remove(directory_ + "/" + name);
  }
  // Also below it.
  std::ofstream(root_ + "/identity") << "data";
  std::ofstream(root_ + "/lock") << "";
  ExpectRefused("NOT_OURS", root_);
  EXPECT_EQ(Export("new").code(), absl::StatusCode::kAlreadyExists);
  fs::remove(root_ + "/lock");
  EXPECT_TRUE(Export("new").ok());
}

TEST_F(ExportDirectoryTest, AFileThatAPersonChangedIsTheirs) {
  ASSERT_TRUE(Export("old").ok());
  options_.replaces_other = true;
  for (const char *changed : {"longer", "new"}) {  // "new" is as long as "old".
    Put("model.safetensors", changed);
    ExpectRefused("NOT_OURS", "/model.safetensors");
    EXPECT_EQ(Text("model.safetensors"), changed);
  }
  // Also one that the new export lacks, and would have removed.
  options_.names = {kConfigName};
  ExpectRefused("NOT_OURS", "/model.safetensors");
  fs::remove(directory_ + "/model.safetensors");
  EXPECT_TRUE(Export("new").ok());
}

TEST_F(ExportDirectoryTest, AFileOfAPersonStaysEvenWithForce) {
  Put("config.json", "of a person");
  options_.replaces_other = true;
  ExpectRefused("NOT_OURS", "/config.json");
  EXPECT_EQ(Text("config.json"), "of a person");
  // A manifest that lists other files is no proof.
  Put("manifest.json", kOldManifest);
  ExpectRefused("NOT_OURS", "/config.json");
}

TEST_F(ExportDirectoryTest, AManifestCannotListFilesThatNoExportHas) {
  for (const char *name : {"thesis.txt", "../thesis.txt", "tokenizer.json"}) {
    Put(name, "years of work");
    std::string manifest = kOldManifest;
    manifest.replace(manifest.find("model.safetensors"), 17, name);
    Put("manifest.json", manifest);
    Export("new").IgnoreError();
    EXPECT_EQ(Text(name), "years of work");
    fs::remove_all(directory_);
  }
}

TEST_F(ExportDirectoryTest, LinksAndDirectoriesAreNotReplaced) {
  ASSERT_TRUE(Export("old").ok());
  fs::rename(directory_ + "/config.json", root_ + "/mine");
  fs::create_symlink("../mine", directory_ + "/config.json");
  ExpectRefused("NOT_OURS", "/config.json");
  EXPECT_TRUE(fs::is_symlink(directory_ + "/config.json"));
  fs::remove(directory_ + "/config.json");
  fs::create_directory(directory_ + "/config.json");
  ExpectRefused("NOT_OURS", "/config.json");
  fs::remove(directory_ + "/config.json");
  fs::create_symlink("../mine", directory_ + "/.atoll-export.lock");
  ExpectRefused("NOT_OURS", "/.atoll-export.lock");
  fs::remove(directory_ + "/.atoll-export.lock");
  Put(".atoll-export.lock", "of a person");
  ExpectRefused("NOT_OURS", "/.atoll-export.lock");
  EXPECT_EQ(Text(".atoll-export.lock"), "of a person");
}

TEST_F(ExportDirectoryTest, ALinkToTheDirectoryIsFollowedAndStays) {
  fs::create_directories(root_ + "/disk");
  fs::create_directory_symlink("disk", directory_);
  ASSERT_TRUE(Export("a").ok());
  ASSERT_TRUE(Export("b").ok());
  EXPECT_TRUE(fs::is_symlink(directory_));
  EXPECT_TRUE(fs::exists(root_ + "/disk/manifest.json"));
}

TEST_F(ExportDirectoryTest, APathThatChangesMeanwhileChangesNothing) {
  ASSERT_TRUE(Export("old").ok());
  {
    const auto opened =
        ExportDirectory::Open(PosixFileSystem(), directory_, options_);
    ASSERT_TRUE(opened.ok()) << opened.status();
    CheckpointManifest manifest;
    manifest.source = options_.source;
    for (const std::string &name : options_.names) {
      ASSERT_TRUE((*opened)->Create(name).ok());
      manifest.files.push_back({name, 0, "sum"});
    }
    texts_["sum"] = "new";
    fs::rename(directory_, root_ + "/moved");
    Put("config.json", "of a person");
    Put("manifest.json", "of a person");
    EXPECT_TRUE((*opened)->Commit(manifest).ok());
  }
  EXPECT_EQ(Names(), (std::set<std::string>{"config.json", "manifest.json"}));
  EXPECT_EQ(Text("config.json"), "of a person");
  EXPECT_EQ(Text("manifest.json"), "of a person");
  fs::remove_all(directory_);
  fs::rename(root_ + "/moved", directory_);
  EXPECT_EQ(ManifestText(), "new");
}

TEST_F(ExportDirectoryTest, FilesOfAnotherUserAreNoProof) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  ASSERT_TRUE(Export("old").ok());
  options_.replaces_other = true;
  for (const char *name : {"manifest.json", "config.json"}) {
    const std::string path = directory_ + "/" + name;
    ASSERT_EQ(::chown(path.c_str(), 1, -1), 0);
    ExpectRefused("NOT_OURS", path + " belongs to another user");
    ASSERT_EQ(::chown(path.c_str(), 0, -1), 0);
  }
  const std::string lock = directory_ + "/.atoll-export.lock";
  Put(".atoll-export.lock", "atoll export\n");
  ASSERT_EQ(::chown(lock.c_str(), 1, -1), 0);
  ExpectRefused("NOT_OURS", lock + " belongs to another user");
  EXPECT_EQ(ManifestText(), "old");
}

TEST_F(ExportDirectoryTest, AnotherRunOrCommitNeedsForce) {
  ASSERT_TRUE(Export("old").ok());
  const CheckpointSource first = options_.source;
  options_.source.commit_seq = 8;
  ExpectRefused("EXPORT_DIFFERS",
                "run run (uid) at commit 7, not of run run "
                "(uid) at commit 8");
  options_.source = first;
  options_.source.run_uid = "uid2";
  ExpectRefused("EXPORT_DIFFERS", "run run (uid2) at commit 7");
  options_.source = first;
  options_.source.run_id = "other";
  ExpectRefused("EXPORT_DIFFERS", "run other");
  EXPECT_EQ(ManifestText(), "old");
  options_.replaces_other = true;
  ASSERT_TRUE(Export("new").ok());
  EXPECT_EQ(ManifestText(), "new");
}

TEST_F(ExportDirectoryTest, AnExportOfAnOlderVersionIsOurs) {
  Put("model.safetensors", "old");
  Put("manifest.json", kOldManifest);
  ASSERT_TRUE(Export("new").ok());
  EXPECT_EQ(Text("model.safetensors"), "new");
}

TEST_F(ExportDirectoryTest, FilesThatTheNewExportLacksAreRemoved) {
  options_.names = {"model-00001-of-00002.safetensors",
                    "model-00002-of-00002.safetensors", kWeightIndexName,
                    kConfigName, kGenerationConfigName};
  ASSERT_TRUE(Export("old").ok());
  Put("model-00003-of-00003.safetensors", "of a person");
  options_.names = {kWeightsName};
  ASSERT_TRUE(Export("new").ok());
  EXPECT_EQ(Names(), (std::set<std::string>{"manifest.json",
                                            "model-00003-of-00003.safetensors",
                                            "model.safetensors"}));
}

TEST_F(ExportDirectoryTest, TwoExportsDoNotMix) {
  {
    const auto first =
        ExportDirectory::Open(PosixFileSystem(), directory_, options_);
    ASSERT_TRUE(first.ok()) << first.status();
    ExpectRefused("EXPORT_RUNS", directory_);
  }
  EXPECT_FALSE(fs::exists(directory_));  // Nothing was written.
  EXPECT_TRUE(Export("new").ok());
}

TEST_F(ExportDirectoryTest, AFileThatAppearsMeanwhileStays) {
  {
    const auto opened =
        ExportDirectory::Open(PosixFileSystem(), directory_, options_);
    ASSERT_TRUE(opened.ok()) << opened.status();
    CheckpointManifest manifest;
    for (const std::string &name : options_.names) {
      ASSERT_TRUE((*opened)->Create(name).ok());
      manifest.files.push_back({name, 0, ""});
    }
    Put("config.json", "of a person");
    EXPECT_EQ((*opened)->Commit(manifest).code(),
              absl::StatusCode::kAlreadyExists);
  }
  EXPECT_EQ(Text("config.json"), "of a person");
  EXPECT_EQ(ManifestText(), "");
  EXPECT_EQ(Names(), (std::set<std::string>{"config.json", "manifest.json",
                                            "model.safetensors"}));
}

// After a death at any change: the files are whole and of one export, or there
// is no finished manifest; and the next export leaves only its own files.
TEST_F(ExportDirectoryTest, ADeathAtAnyChangeLeavesNoMixture) {
  bool died = true;
  int torn_count = 0;
  for (int change_count = 0; died; ++change_count) {
    fs::remove_all(directory_);
    options_.names = {kWeightsName, kConfigName};
    ASSERT_TRUE(Export("old").ok());
    Put("tokenizer.json", "of a person");
    options_.names = {"model-00001-of-00002.safetensors",
                      "model-00002-of-00002.safetensors", kWeightIndexName,
                      kConfigName};
    {
      DyingFileSystem dying(PosixFileSystem(), change_count);
      const bool is_done = Export("new", dying).ok();
      died = dying.is_dead();
      EXPECT_TRUE(is_done || died);
    }
    const std::string text = ManifestText();
    if (text.empty()) ++torn_count;
    if (text == "old") {
      EXPECT_EQ(Text("model.safetensors"), "old");
      EXPECT_EQ(Text("config.json"), "old");
    } else if (text == "new") {
      for (const std::string &name : options_.names) {
        EXPECT_EQ(Text(name), "new");
      }
    }
    // config.json stands only beside weights of its own export.
    if (Text("config.json") == "new") {
      EXPECT_EQ(Text(kWeightIndexName), "new");
      EXPECT_FALSE(fs::exists(directory_ + "/model.safetensors"));
    }
    // Of a newer commit, if nothing whole would be lost.
    options_.source.commit_seq += text.empty() ? 1 : 0;
    options_.replaces_other = false;
    ASSERT_TRUE(Export("third").ok()) << change_count;
    EXPECT_EQ(ManifestText(), "third");
    EXPECT_EQ(Names(), (std::set<std::string>{
                           "config.json", "manifest.json",
                           "model-00001-of-00002.safetensors",
                           "model-00002-of-00002.safetensors",
                           "model.safetensors.index.json", "tokenizer.json"}))
        << change_count;
    EXPECT_EQ(Text("tokenizer.json"), "of a person");
  }
  EXPECT_GT(torn_count, 5);
}

TEST_F(ExportDirectoryTest, ARefusedExportKeepsTheListOfWhatACrashLeft) {
  {
    DyingFileSystem dying(PosixFileSystem(), 2);
    EXPECT_FALSE(Export("old", dying).ok());
  }
  EXPECT_EQ(Names().size(), 3u);  // The lock file and two temporary files.
  Put("config.json", "of a person");
  ExpectRefused("NOT_OURS", "/config.json");
  fs::remove(directory_ + "/config.json");
  ASSERT_TRUE(Export("new").ok());
  EXPECT_EQ(Names().size(), 3u);
}

}  // namespace
}  // namespace atl::worker
