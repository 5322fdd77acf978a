#include "worker/sdk/final_copy.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/io/posix_file_system.h"
#include "base/layout/digest.h"
#include "base/random_id/random_id.h"
#include "gtest/gtest.h"

namespace atl::worker {
namespace {

namespace fs = std::filesystem;

class FinalCopyTest : public testing::Test {
 protected:
  FinalCopyTest()
      : layout_(*RunLayout::Create(MakeLayout())),
        root_(absl::StrCat(
            testing::TempDir(), "/final_copy_", ::getpid(), "_",
            testing::UnitTest::GetInstance()->current_test_info()->name())),
        place_{root_, "run", "island"} {
    fs::create_directories(root_);
    found_.mutable_run()->set_run_uid("uid");
    for (int32_t f = 0; f < 2; ++f) {
      for (float& value : values_[f]) value = next_++;
      v1::FragmentVersion& at = *found_.add_cut();
      at.set_fragment(f);
      at.set_version(7);
      *at.mutable_digest() =
          RangeDigest(layout_, f, {0, layout_.fragment_block_count(f)},
                      values_[f])
              .ToProto();
    }
  }
  ~FinalCopyTest() override { fs::remove_all(root_); }

  static v1::Layout MakeLayout() {
    v1::Layout layout;
    layout.set_fragment_count(2);
    for (int32_t f = 0; f < 2; ++f) {
      v1::TensorSpec& tensor = *layout.add_tensors();
      tensor.set_name(absl::StrCat("t", f));
      tensor.set_dtype(v1::DATA_TYPE_F32);
      tensor.set_tensor_class(v1::TENSOR_CLASS_VECTOR);
      tensor.set_fragment(f);
      tensor.mutable_init()->set_kind(v1::INIT_KIND_CONSTANT);
      tensor.add_shape(5);
    }
    return layout;
  }

  static std::vector<absl::Span<float>> Spans(
      std::vector<std::vector<float>>& values) {
    return {absl::MakeSpan(values[0]), absl::MakeSpan(values[1])};
  }

  absl::Status Write() {
    return WriteFinalCopy(PosixFileSystem(), place_, found_, layout_,
                          Spans(values_));
  }
  // The values of the copy. Empty: no copy counts.
  std::vector<std::vector<float>> Read() {
    std::vector<std::vector<float>> read(2, std::vector<float>(5));
    if (!ReadFinalCopy(PosixFileSystem(), place_, found_, layout_,
                       Spans(read))) {
      return {};
    }
    return read;
  }

  const RunLayout layout_;
  const std::string root_;
  const SavePlace place_;
  v1::GetRunResponse found_;
  float next_ = 1;
  std::vector<std::vector<float>> values_ =
      std::vector<std::vector<float>>(2, std::vector<float>(5));
};

TEST_F(FinalCopyTest, GivesBackWhatWasWritten) {
  EXPECT_TRUE(Read().empty());
  ASSERT_TRUE(Write().ok());
  EXPECT_EQ(Read(), values_);
  struct stat status = {};
  ASSERT_EQ(::stat(FinalCopyPath(place_).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(FinalCopyTest, IsOfOneRunAndItsFinalVersions) {
  ASSERT_TRUE(Write().ok());
  const v1::GetRunResponse found = found_;
  found_.mutable_run()->set_run_uid("other");
  EXPECT_TRUE(Read().empty());
  found_ = found;
  found_.mutable_cut(1)->set_version(8);
  EXPECT_TRUE(Read().empty());
  found_ = found;
  found_.mutable_cut(0)->mutable_digest()->set_low(1);
  EXPECT_TRUE(Read().empty());
  found_ = found;
  EXPECT_EQ(Read(), values_);
}

TEST_F(FinalCopyTest, ADamagedOneIsNone) {
  for (const int64_t change : {0, 1}) {
    ASSERT_TRUE(Write().ok());
    const std::string path = FinalCopyPath(place_);
    if (change == 0) {
      fs::resize_file(path, fs::file_size(path) - 1);
    } else {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(-1, std::ios::end);
      file.put('\x7f');
    }
    EXPECT_TRUE(Read().empty()) << change;
  }
}

TEST_F(FinalCopyTest, OtherValuesThanTheFinalOnesAreNotKept) {
  values_[1][4] += 1;
  EXPECT_EQ(Write().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(fs::is_empty(root_));
}

TEST_F(FinalCopyTest, OnlyCopiesOfTheIslandAreRemoved) {
  ASSERT_TRUE(Write().ok());
  ASSERT_TRUE(WriteFinalCopy(PosixFileSystem(), {root_, "run", "other"},
                             found_, layout_, Spans(values_))
                  .ok());
  const std::string persons = root_ + "/mine.island.final";
  std::ofstream(persons) << "a person's file";
  // A copy under another name may be a person's, too; a pipe never answers.
  const std::string renamed = root_ + "/kept.island.final";
  fs::copy_file(FinalCopyPath(place_), renamed);
  // A process was killed while it wrote one.
  const std::string begun = absl::StrCat(FinalCopyPath(place_), ".", RandomId(),
                                         ".tmp");
  fs::copy_file(FinalCopyPath(place_), begun);
  ASSERT_EQ(::mkfifo((root_ + "/pipe.island.final").c_str(), 0600), 0);
  // Another run of the island takes the folder.
  RemoveFinalCopies(PosixFileSystem(), {root_, "next", "island"});
  EXPECT_FALSE(fs::exists(FinalCopyPath(place_)));
  EXPECT_FALSE(fs::exists(begun));
  EXPECT_TRUE(fs::exists(FinalCopyPath({root_, "run", "other"})));
  EXPECT_TRUE(fs::exists(persons));
  EXPECT_TRUE(fs::exists(renamed));
}

}  // namespace
}  // namespace atl::worker
