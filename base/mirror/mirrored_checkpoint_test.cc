#include "base/mirror/mirrored_checkpoint.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/codec/sha256.h"
#include "base/io/posix_file_system.h"
#include "base/mirror/mirror_manifest.h"
#include "base/mirror/testing/small_checkpoint.h"
#include "base/object_store/file_store.h"
#include "base/object_store/object_url.h"
#include "base/random_id/random_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::mirror {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Code = absl::StatusCode;
using storage::v1::MirrorManifest;
using storage::v1::MirrorPart;

class MirroredCheckpointTest : public ::testing::Test {
 protected:
  MirroredCheckpointTest()
      : root_(JoinObjectName(::testing::TempDir(), RandomId())),
        store_(MakeFileStore(root_, PosixFileSystem())),
        manifest_(SmallManifest(layout_)) {
    for (int32_t shard = 0; shard < kSmallShardCount; ++shard) {
      for (int32_t f = 0; f < layout_.fragment_count(); ++f) {
        AddPart(shard, f);
      }
    }
  }
  ~MirroredCheckpointTest() override { std::filesystem::remove_all(root_); }

  void AddPart(int32_t shard, int32_t fragment) {
    MirrorPart part;
    part.set_shard(shard);
    part.set_fragment(fragment);
    const PartIdentity identity = GetIdentity(manifest_, part);
    if (PartElementCount(layout_, identity) == 0) return;
    const std::string bytes = SmallPart(layout_, identity);
    part.set_sha256(codec::ToHex(codec::ComputeSha256(bytes)));
    part.set_size_bytes(static_cast<int64_t>(bytes.size()));
    Put(NameOf(part), bytes);
    *manifest_.add_parts() = part;
  }

  std::string NameOf(const MirrorPart& part) {
    return PartName(GetPlace(manifest_), part.shard(), part.fragment(),
                    part.sha256());
  }

  void Put(const std::string& name, const std::string& bytes) {
    const absl::Status status =
        PutObject(*store_, name, bytes, WriteMode::kReplace);
    ASSERT_TRUE(status.ok()) << status;
  }

  void PutManifest() {
    Put(ManifestName(GetPlace(manifest_)), ManifestToJson(manifest_));
  }

  absl::StatusOr<std::unique_ptr<MirroredCheckpoint>> Open() {
    return MirroredCheckpoint::Open(*store_, GetPlace(manifest_));
  }

  // The error of a reader of the whole checkpoint.
  absl::Status Verify() {
    PutManifest();
    const auto opened = Open();
    return opened.ok() ? (*opened)->Read() : opened.status();
  }

  const RunLayout layout_ = *RunLayout::Create(SmallLayout());
  const std::string root_;
  const std::unique_ptr<ObjectStore> store_;
  MirrorManifest manifest_;
};

TEST_F(MirroredCheckpointTest, ThePartsAreTheModel) {
  PutManifest();
  const auto opened = Open();
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ((*opened)->manifest().SerializeAsString(),
            manifest_.SerializeAsString());
  std::vector<float> parameters((*opened)->layout().element_count());
  const absl::Status read = (*opened)->Read(absl::MakeSpan(parameters));
  ASSERT_TRUE(read.ok()) << read;
  EXPECT_EQ(parameters, SmallParameters(layout_));
}

TEST_F(MirroredCheckpointTest, OnlyACheckpointWithAManifestIsListed) {
  EXPECT_THAT(*ListCheckpoints(*store_), IsEmpty());
  EXPECT_EQ(Open().status().code(), Code::kNotFound);
  PutManifest();
  CheckpointPlace other = GetPlace(manifest_);
  other.commit_seq = 40;
  Put(ManifestName(other), "{}");
  other.run_epoch = 11;
  Put(ManifestName(other), "{}");
  Put("readme", "a person's");
  const CheckpointPlace place = GetPlace(manifest_);
  EXPECT_THAT(*ListCheckpoints(*store_),
              ElementsAre(place, CheckpointPlace{place.run_uid, 2, 40}, other));
}

TEST_F(MirroredCheckpointTest, ADamagedPartIsNamed) {
  for (const MirrorPart& part : manifest_.parts()) {
    const std::string name = NameOf(part);
    const std::string bytes = *GetObject(*store_, name, 1 << 30);
    for (const size_t at : {size_t{20}, bytes.size() / 2, bytes.size() - 1}) {
      std::string wrong = bytes;
      wrong[at] ^= 1;
      Put(name, wrong);
      EXPECT_EQ(Verify().code(), Code::kDataLoss);
      EXPECT_THAT(std::string(Verify().message()), HasSubstr(name));
    }
    Put(name, bytes + "x");
    EXPECT_EQ(Verify().code(), Code::kDataLoss);
    ASSERT_TRUE(store_->Remove(name).ok());
    EXPECT_EQ(Verify().code(), Code::kDataLoss);
    Put(name, bytes);
    EXPECT_TRUE(Verify().ok()) << Verify();
  }
}

TEST_F(MirroredCheckpointTest, APartOfAnotherPlaceIsRefused) {
  MirrorPart& part = *manifest_.mutable_parts(0);
  PartIdentity other = GetIdentity(manifest_, part);
  other.version += 1;
  const std::string bytes = SmallPart(layout_, other);
  ASSERT_EQ(static_cast<int64_t>(bytes.size()), part.size_bytes());
  part.set_sha256(codec::ToHex(codec::ComputeSha256(bytes)));
  Put(NameOf(part), bytes);
  EXPECT_THAT(std::string(Verify().message()), HasSubstr("another header"));
}

TEST_F(MirroredCheckpointTest, ParametersWithAnotherDigestAreRefused) {
  manifest_.mutable_pin()->mutable_cut(1)->mutable_digest()->set_low(1);
  const absl::Status status = Verify();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("fragment 1"));
}

TEST_F(MirroredCheckpointTest, AManifestThatBreaksARuleIsRefused) {
  const MirrorManifest good = manifest_;
  const auto message = [&](void (*change)(MirrorManifest&)) {
    manifest_ = good;
    change(manifest_);
    const absl::Status status = Verify();
    EXPECT_EQ(status.code(), Code::kDataLoss) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(message([](auto& m) { m.mutable_parts()->RemoveLast(); }),
              HasSubstr("is missing"));
  EXPECT_THAT(message([](auto& m) { *m.add_parts() = m.parts(0); }),
              HasSubstr("too many"));
  EXPECT_THAT(message([](auto& m) { m.mutable_parts()->SwapElements(0, 1); }),
              HasSubstr("is missing"));
  EXPECT_THAT(message([](auto& m) { m.set_shard_count(4); }),
              HasSubstr("bytes, not"));
  for (const int count : {0, -1, 1 << 30}) {
    manifest_ = good;
    manifest_.set_shard_count(count);
    EXPECT_EQ(Verify().code(), Code::kDataLoss) << count;
  }
  EXPECT_THAT(message([](auto& m) { m.set_format(2); }), HasSubstr("format"));
  EXPECT_THAT(message([](auto& m) { m.set_run_id("../x"); }),
              HasSubstr("run_id"));
  EXPECT_THAT(message([](auto& m) { m.mutable_pin()->clear_cut(); }),
              HasSubstr("0 versions for 2 fragments"));
  EXPECT_THAT(message([](auto& m) { m.set_array_names(0, "m"); }),
              HasSubstr("array_names"));
  EXPECT_THAT(
      message([](auto& m) { m.mutable_parts(0)->set_sha256("../../x"); }),
      HasSubstr("SHA-256"));
  EXPECT_THAT(message([](auto& m) { m.mutable_parts(0)->set_size_bytes(9); }),
              HasSubstr("has 9 bytes"));
  EXPECT_THAT(message([](auto& m) {
                m.mutable_spec()->mutable_layout()->clear_tensors();
              }),
              HasSubstr("manifest.json"));
}

TEST_F(MirroredCheckpointTest, AManifestOfANewerProgramIsRefused) {
  const std::string json = ManifestToJson(manifest_);
  for (const std::string& wrong :
       {std::string(), std::string("[]"), json.substr(0, json.size() / 2),
        absl::StrReplaceAll(json, {{"\"run_id\"", "\"new_field\""}}),
        absl::StrReplaceAll(json, {{"\"commit_seq\": \"5\"",
                                    "\"commit_seq\": \"6\""}})}) {
    Put(ManifestName(GetPlace(manifest_)), wrong);
    EXPECT_EQ(Open().status().code(), Code::kDataLoss) << wrong;
  }
}

}  // namespace
}  // namespace atl::mirror
