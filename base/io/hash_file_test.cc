#include "base/io/hash_file.h"

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/io/testing/fake_file_system.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

TEST(HashFileTest, AnyLengthGivesTheSumOfItsBytes) {
  FakeFileSystem files;
  for (const size_t size : {0, 1, 1 << 20, (1 << 20) + 1, 3 << 20}) {
    std::string bytes(size, '\0');
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 31);
    auto file = files.OpenForWrite("/file");
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE((*file)->WriteAt(0, bytes).ok());
    const auto sum = HashFile(**file, static_cast<int64_t>(size), "/file");
    ASSERT_TRUE(sum.ok()) << sum.status();
    EXPECT_EQ(*sum, codec::ComputeSha256(bytes)) << size;
    const auto more = HashFile(**file, static_cast<int64_t>(size) + 1, "/file");
    EXPECT_TRUE(absl::IsDataLoss(more.status())) << more.status();
  }
}

}  // namespace
}  // namespace atl
