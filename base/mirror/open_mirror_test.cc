#include "base/mirror/open_mirror.h"

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/object_store/object_url.h"
#include "base/random_id/random_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::mirror {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(OpenMirrorTest, OnlyAStoreThatCanBeWrittenIsAMirror) {
  EXPECT_THAT(CheckMirrorUrl(""), IsEmpty());
  EXPECT_THAT(CheckMirrorUrl("s3://models/atoll"), IsEmpty());
  EXPECT_THAT(CheckMirrorUrl("file:///mnt/atoll"), IsEmpty());
  EXPECT_THAT(CheckMirrorUrl("https://example.org/a"),
              HasSubstr("cannot be written"));
  EXPECT_THAT(CheckMirrorUrl("/mnt/atoll"), HasSubstr("file:///"));
}

TEST(OpenMirrorTest, AMirrorTakesObjects) {
  const std::string root = JoinObjectName(::testing::TempDir(), RandomId());
  const MirrorOpener open =
      MakeMirrorOpener(absl::StrCat("file://", root), {}, {});
  const auto store = open(Waiting());
  ASSERT_TRUE(store.ok()) << store.status();
  ASSERT_TRUE(PutObject(**store, "a/b", "bytes", WriteMode::kCreate).ok());
  EXPECT_EQ(*GetObject(**store, "a/b", 100), "bytes");
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace atl::mirror
