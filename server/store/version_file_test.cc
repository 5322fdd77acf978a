// A version in memory and in its file.

#include "server/store/version_file.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/io/testing/fake_file_system.h"
#include "base/status/check.h"
#include "gtest/gtest.h"

namespace atl::server {
namespace {

constexpr int kStateCount = 1;
constexpr int64_t kElements = 10000;  // Three blocks.
const char kPath[] = "v.ver";

RunLayout MakeLayout() {
  v1::Layout layout;
  layout.set_fragment_count(1);
  v1::TensorSpec* tensor = layout.add_tensors();
  tensor->set_name("w");
  tensor->add_shape(kElements);
  tensor->set_dtype(v1::DATA_TYPE_F32);
  tensor->set_tensor_class(v1::TENSOR_CLASS_MATRIX);
  tensor->mutable_init()->set_kind(v1::INIT_KIND_CONSTANT);
  auto made = RunLayout::Create(layout);
  CHECK(made.ok()) << made.status();
  return *std::move(made);
}

std::vector<float> Elements(float first) {
  std::vector<float> elements(kElements);
  std::iota(elements.begin(), elements.end(), first);
  return elements;
}

class VersionFileTest : public testing::Test {
 protected:
  std::unique_ptr<VersionFile> Create(bool with_images) {
    auto file = VersionFile::Create(fs_, kPath, range_, kStateCount);
    CHECK(file.ok()) << file.status();
    for (int array = 0; with_images && array <= kStateCount; ++array) {
      (*file)->SetImage(array, Image());
    }
    return *std::move(file);
  }

  VersionImage Image() {
    VersionImage image = pool_->Take(VersionFile::ImageElementCount(range_));
    CHECK(image != nullptr);
    // Content of an earlier use.
    std::fill_n(image.get(), VersionFile::ImageElementCount(range_), 99.0f);
    return image;
  }

  static void Fill(VersionFile& file, float first) {
    for (int array = 0; array <= kStateCount; ++array) {
      const auto elements = Elements(first + static_cast<float>(array));
      ASSERT_TRUE(file.Write(array, {0, 3}, elements.data()).ok());
    }
  }

  static std::vector<float> Read(const VersionFile& file, int array) {
    std::vector<float> elements(kElements);
    EXPECT_TRUE(file.Read(array, {0, 3}, elements.data()).ok());
    return elements;
  }

  // The file's bytes.
  std::string Bytes() {
    auto file = *fs_.OpenForRead(kPath);
    std::string bytes(*file->Size(), '\0');
    CHECK(file->ReadAt(0, absl::MakeSpan(bytes)).ok());
    return bytes;
  }

  const RunLayout layout_ = MakeLayout();
  const ShardRange range_{layout_, 0, 0, 1};
  FakeFileSystem fs_;
  const std::shared_ptr<ImagePool> pool_ = ImagePool::Create(8 << 20);
};

TEST_F(VersionFileTest, AnImageLeavesTheFileThatNoImageLeaves) {
  std::string sealed[2];
  for (const bool with_image : {false, true}) {
    const auto file = Create(with_image);
    Fill(*file, 3);
    ASSERT_TRUE(file->Seal({"run", 0, 7, 7, {1, 2}}).ok());
    sealed[with_image] = Bytes();
  }
  EXPECT_EQ(sealed[0], sealed[1]);
}

TEST_F(VersionFileTest, WithAnImageTheFileIsWrittenWhenItIsSealed) {
  const auto file = Create(true);
  const std::string empty = Bytes();
  Fill(*file, 3);
  EXPECT_EQ(Bytes(), empty);
  EXPECT_EQ(Read(*file, 0), Elements(3));
  EXPECT_EQ(Read(*file, 1), Elements(4));
  ASSERT_TRUE(file->Seal({"run", 0, 7, 7, {1, 2}}).ok());
  auto opened = VersionFile::Open(fs_, kPath, range_, kStateCount);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(Read(**opened, 0), Elements(3));
  EXPECT_EQ(Read(**opened, 1), Elements(4));
}

TEST_F(VersionFileTest, ElementsCanBeMadeWhereTheyWillLie) {
  const auto file = Create(true);
  for (int array = 0; array <= kStateCount; ++array) {
    VersionImage keep;
    float* const mapped = file->Map(array, {0, 3}, &keep);
    ASSERT_NE(mapped, nullptr);
    const auto elements = Elements(static_cast<float>(5 + array));
    std::copy(elements.begin(), elements.end(), mapped);
    ASSERT_TRUE(file->Write(array, {0, 3}, mapped).ok());
  }
  EXPECT_EQ(Read(*file, 0), Elements(5));
  ASSERT_TRUE(file->Seal({"run", 0, 7, 7, {1, 2}}).ok());
  file->DropImage();
  EXPECT_EQ(Read(*file, 1), Elements(6));
}

TEST_F(VersionFileTest, ArraysThatNoImageHasAreInTheFileAtOnceAndChecked) {
  constexpr int kTwo = 2;
  // No two arrays have an element in common.
  const auto elements_of = [](int array) {
    return Elements(static_cast<float>(2 * kElements * array));
  };
  std::string sealed[2];
  for (const bool with_image : {false, true}) {
    auto made = VersionFile::Create(fs_, kPath, range_, kTwo);
    ASSERT_TRUE(made.ok()) << made.status();
    VersionFile& file = **made;
    if (with_image) {
      file.SetImage(0, Image());
      file.SetImage(2, Image());
    }
    for (int array = 0; array <= kTwo; ++array) {
      const auto elements = elements_of(array);
      ASSERT_TRUE(file.Write(array, {0, 3}, elements.data()).ok());
      VersionImage keep;
      EXPECT_EQ(file.Map(array, {0, 3}, &keep) != nullptr,
                with_image && array != 1);
    }
    for (int array = 0; array <= kTwo; ++array) {
      EXPECT_EQ(Read(file, array), elements_of(array));
    }
    ASSERT_TRUE(file.Seal({"run", 0, 7, 7, {1, 2}}).ok());
    sealed[with_image] = Bytes();
    // The place of array 1.
    const std::string bytes = Bytes();
    const auto first = elements_of(1);
    const size_t at =
        bytes.rfind(reinterpret_cast<const char*>(first.data()),
                    std::string::npos, 4096);
    ASSERT_NE(at, std::string::npos);
    ASSERT_TRUE((*fs_.OpenForWrite(kPath))->WriteAt(at, "x").ok());
    std::vector<float> elements(kElements);
    EXPECT_TRUE(absl::IsDataLoss(file.Read(1, {0, 3}, elements.data())));
    EXPECT_TRUE(file.Read(0, {0, 3}, elements.data()).ok());
  }
  EXPECT_EQ(sealed[0], sealed[1]);
}

TEST_F(VersionFileTest, MemoryIsNotLetGoBeforeTheFileHasIt) {
  const auto file = Create(true);
  Fill(*file, 3);
  file->DropImage();
  EXPECT_EQ(Read(*file, 0), Elements(3));
  ASSERT_TRUE(file->Seal({"run", 0, 7, 7, {1, 2}}).ok());
  VersionImage keep;
  ASSERT_NE(file->Map(0, {0, 3}, &keep), nullptr);
  file->DropImage();
  VersionImage none;
  EXPECT_EQ(file->Map(0, {0, 3}, &none), nullptr);
  EXPECT_EQ(Read(*file, 0), Elements(3));
  // A caller of Map keeps its bytes.
  EXPECT_EQ(keep[0], 3);
}

TEST_F(VersionFileTest, AnImageIsGivenAwayWhenTheFileHasItAndNobodyElse) {
  const auto file = Create(true);
  Fill(*file, 3);
  EXPECT_EQ(file->TakeImage(1), nullptr);
  ASSERT_TRUE(file->Seal({"run", 0, 7, 7, {1, 2}}).ok());
  VersionImage keep;
  ASSERT_NE(file->Map(1, {0, 3}, &keep), nullptr);
  EXPECT_EQ(file->TakeImage(1), nullptr);
  const float* const place = keep.get();
  keep = nullptr;
  VersionImage taken = file->TakeImage(1);
  ASSERT_EQ(taken.get(), place);
  EXPECT_EQ(file->Map(1, {0, 3}, &keep), nullptr);
  EXPECT_FALSE(file->InMemory());

  // The next version is made in place; the old one is in its file.
  auto next = VersionFile::Create(fs_, "next.ver", range_, kStateCount);
  ASSERT_TRUE(next.ok()) << next.status();
  (*next)->SetImage(1, std::move(taken), /*carried=*/true);
  EXPECT_TRUE((*next)->carries(1));
  EXPECT_FALSE((*next)->carries(0));
  EXPECT_EQ(Read(**next, 1), Elements(4));
  const auto elements = Elements(8);
  ASSERT_TRUE((*next)->Write(1, {0, 3}, elements.data()).ok());
  EXPECT_EQ(Read(**next, 1), Elements(8));
  EXPECT_EQ(Read(*file, 1), Elements(4));
}

TEST_F(VersionFileTest, WhatIsReadFromTheFileAfterwardsIsChecked) {
  const auto file = Create(true);
  Fill(*file, 3);
  ASSERT_TRUE(file->Seal({"run", 0, 7, 7, {1, 2}}).ok());
  file->DropImage();
  auto disk = *fs_.OpenForWrite(kPath);
  ASSERT_TRUE(disk->WriteAt(4096 + 100, "x").ok());
  std::vector<float> elements(kElements);
  EXPECT_TRUE(absl::IsDataLoss(file->Read(0, {0, 3}, elements.data())));
}

TEST_F(VersionFileTest, ADiskThatIsBrokenFailsTheSealAndItCanBeTriedAgain) {
  const auto file = Create(true);
  Fill(*file, 3);
  fs_.AddFault({.call = FakeFileSystem::Fault::Call::kWrite,
                .path_part = "",
                .error_number = EIO});
  EXPECT_TRUE(absl::IsDataLoss(file->Seal({"run", 0, 7, 7, {1, 2}})));
  file->DropImage();
  EXPECT_EQ(Read(*file, 0), Elements(3));
  ASSERT_TRUE(file->Seal({"run", 0, 7, 7, {1, 2}}).ok());
  EXPECT_TRUE(VersionFile::Open(fs_, kPath, range_, kStateCount).ok());
}

// Some file systems find only at the sync that the disk is full.
TEST_F(VersionFileTest, WhatASealCouldNotSyncItWritesAgainOrSaysThatItIsLost) {
  for (const bool with_image : {false, true}) {
    const auto file = Create(with_image);
    Fill(*file, 3);
    fs_.AddFault({.call = FakeFileSystem::Fault::Call::kSync,
                  .path_part = "",
                  .error_number = ENOSPC});
    const absl::Status failed = file->Seal({"run", 0, 7, 7, {1, 2}});
    EXPECT_EQ(failed.code(), with_image ? absl::StatusCode::kResourceExhausted
                                        : absl::StatusCode::kDataLoss);
    if (!with_image) continue;
    ASSERT_TRUE(file->Seal({"run", 0, 7, 7, {1, 2}}).ok());
  }
  ASSERT_TRUE(fs_.SyncDirectory(".").ok());
  fs_.Crash();
  auto opened = VersionFile::Open(fs_, kPath, range_, kStateCount);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(Read(**opened, 0), Elements(3));
  EXPECT_EQ(Read(**opened, 1), Elements(4));
}

}  // namespace
}  // namespace atl::server
