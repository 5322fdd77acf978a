#include "worker/data/token_file.h"

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/io/posix_file_system.h"
#include "gtest/gtest.h"
#include "worker/data/data_set.h"

namespace atl::worker {
namespace {

class TokenFileTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = absl::StrCat(testing::TempDir(), "/token_file_", ::getpid());
    std::filesystem::remove_all(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::vector<int32_t> ReadAll(int files) {
    std::vector<int32_t> all;
    for (int i = 0; i < files; ++i) {
      v1::DataSpec spec;
      spec.set_format(v1::DATA_FORMAT_LLMC);
      spec.set_data_shard_count(1);
      const auto set = DataSet::Open(
          spec, absl::StrCat(directory_, "/tokens_00000", i, ".bin"));
      EXPECT_TRUE(set.ok()) << set.status();
      if (!set.ok()) continue;
      std::vector<int32_t> tokens((*set)->token_count());
      EXPECT_TRUE((*set)->Read(0, absl::MakeSpan(tokens)).ok());
      all.insert(all.end(), tokens.begin(), tokens.end());
    }
    return all;
  }

  std::string directory_;
};

TEST_F(TokenFileTest, ADataSetReadsWhatWasWritten) {
  const uint64_t seed = std::random_device()();
  std::cout << "seed " << seed << std::endl;
  std::mt19937_64 random(seed);
  for (const int32_t vocab : {1 << 16, (1 << 16) + 1, 128256}) {
    std::filesystem::remove_all(directory_);
    const auto writer =
        TokenFileWriter::Create(PosixFileSystem(), directory_, vocab, 100);
    ASSERT_TRUE(writer.ok()) << writer.status();
    EXPECT_EQ((*writer)->token_bytes(), vocab > 65536 ? 4 : 2);
    std::vector<int32_t> tokens(1 + random() % 250);
    for (int32_t& token : tokens) token = random() % vocab;
    tokens[0] = vocab - 1;
    const size_t first = random() % tokens.size();
    const absl::Span<const int32_t> all = tokens;
    ASSERT_TRUE((*writer)->Append(all.subspan(0, first)).ok());
    ASSERT_TRUE((*writer)->Append(all.subspan(first)).ok());
    ASSERT_TRUE((*writer)->Finish().ok());
    EXPECT_EQ((*writer)->token_count(), static_cast<int64_t>(tokens.size()));
    EXPECT_EQ((*writer)->file_count(),
              static_cast<int>((tokens.size() + 99) / 100));
    EXPECT_EQ(ReadAll((*writer)->file_count()), tokens);
  }
}

TEST_F(TokenFileTest, RefusesADirectoryWithTokens) {
  std::filesystem::create_directories(directory_);
  std::ofstream(directory_ + "/other.bin") << "x";
  const auto writer =
      TokenFileWriter::Create(PosixFileSystem(), directory_, 256);
  EXPECT_EQ(writer.status().code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(TokenFileTest, FilesOfBothSizesAreNoSet) {
  for (const int32_t vocab : {256, 1 << 20}) {
    const auto writer =
        TokenFileWriter::Create(PosixFileSystem(), directory_, vocab);
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_TRUE((*writer)->Append({1, 2, 3}).ok());
    ASSERT_TRUE((*writer)->Finish().ok());
    if (vocab == 256) {
      std::filesystem::rename(directory_ + "/tokens_000000.bin",
                              directory_ + "/a");
    }
  }
  std::filesystem::rename(directory_ + "/a", directory_ + "/a.bin");
  v1::DataSpec spec;
  spec.set_format(v1::DATA_FORMAT_LLMC);
  spec.set_data_shard_count(1);
  const auto set = DataSet::Open(spec, directory_);
  EXPECT_EQ(set.status().code(), absl::StatusCode::kInvalidArgument)
      << set.status();
}

}  // namespace
}  // namespace atl::worker
