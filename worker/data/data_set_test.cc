#include "worker/data/data_set.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "worker/data/data_files.h"

namespace atl::worker {
namespace {

namespace fs = std::filesystem;

class DataSetTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) /
            ("data_set_" + std::to_string(::getpid()) + "_" +
             testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(root_);
    spec_.set_format(v1::DATA_FORMAT_BYTES);
    spec_.set_path(root_.string());
    spec_.set_seed(5);
    spec_.set_data_shard_count(1);
  }
  void TearDown() override { fs::remove_all(root_); }

  void Write(const std::string& name, const std::string& bytes) {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name, std::ios::binary) << bytes;
  }
  static std::string Llmc(const std::vector<uint16_t>& tokens) {
    std::string bytes(1024, '\0');
    int32_t header[3] = {20240520, 1, static_cast<int32_t>(tokens.size())};
    std::memcpy(bytes.data(), header, sizeof(header));
    bytes.append(reinterpret_cast<const char*>(tokens.data()),
                 2 * tokens.size());
    return bytes;
  }
  std::vector<int32_t> ReadAll(const DataSet& data) {
    std::vector<int32_t> tokens(data.token_count());
    EXPECT_TRUE(data.Read(0, absl::MakeSpan(tokens)).ok());
    return tokens;
  }
  std::string ReadText(const DataSet& data) {
    std::string text;
    for (int32_t token : ReadAll(data)) text.push_back(static_cast<char>(token));
    return text;
  }

  fs::path root_;
  v1::DataSpec spec_;
};

TEST_F(DataSetTest, JoinsAllFilesInAShuffledOrder) {
  for (int i = 0; i < 20; ++i) {
    Write("d" + std::to_string(i % 3) + "/f" + std::to_string(i),
          std::string(3, static_cast<char>('a' + i)));
  }
  Write("empty", "");
  const auto data = DataSet::Open(spec_, spec_.path());
  ASSERT_TRUE(data.ok()) << data.status();
  const std::string text = ReadText(**data);
  EXPECT_EQ(text.size(), 60);
  spec_.set_seed(6);
  const auto other = DataSet::Open(spec_, spec_.path());
  EXPECT_NE(ReadText(**other), text);
  std::string a = text, b = ReadText(**other);
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  EXPECT_EQ(a, b);
}

TEST_F(DataSetTest, FollowsNoSymbolicLinks) {
  Write("a/text", "hello");
  fs::create_symlink(root_ / "a", root_ / "loop");
  fs::create_symlink(root_ / "a/text", root_ / "again");
  EXPECT_EQ((*DataSet::Open(spec_, spec_.path()))->token_count(), 5);
}

TEST_F(DataSetTest, ReadsAnyRange) {
  Write("a", "0123456789");
  Write("b", "abcdefghij");
  const auto data = DataSet::Open(spec_, spec_.path());
  const std::string text = ReadText(**data);
  for (int64_t offset = 0; offset < 20; ++offset) {
    std::vector<int32_t> tokens(20 - offset);
    ASSERT_TRUE((*data)->Read(offset, absl::MakeSpan(tokens)).ok());
    EXPECT_EQ(tokens[0], text[offset]);
  }
  std::vector<int32_t> tokens(2);
  EXPECT_EQ((*data)->Read(19, absl::MakeSpan(tokens)).code(),
            absl::StatusCode::kOutOfRange);
}

TEST_F(DataSetTest, ReadsLlmcFiles) {
  Write("a.bin", Llmc({1, 2, 50256}));
  Write("README", "not tokens");
  spec_.set_format(v1::DATA_FORMAT_LLMC);
  const auto data = DataSet::Open(spec_, spec_.path());
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(ReadAll(**data), (std::vector<int32_t>{1, 2, 50256}));
}

TEST_F(DataSetTest, RefusesLlmcFilesThatAreNone) {
  spec_.set_format(v1::DATA_FORMAT_LLMC);
  const std::string good = Llmc({1, 2, 3});
  for (const std::string& bad :
       {good.substr(0, 100), good.substr(0, good.size() - 1), good + "x",
        "x" + good.substr(1)}) {
    Write("a.bin", bad);
    const auto data = DataSet::Open(spec_, spec_.path());
    ASSERT_FALSE(data.ok());
    EXPECT_NE(data.status().message().find("a.bin"), std::string::npos);
  }
}

TEST_F(DataSetTest, ReadsRawUint16) {
  spec_.set_format(v1::DATA_FORMAT_UINT16);
  Write("a.bin", std::string("\x01\x00\xff\xff", 4));
  const auto data = DataSet::Open(spec_, spec_.path());
  ASSERT_TRUE(data.ok());
  EXPECT_EQ(ReadAll(**data), (std::vector<int32_t>{1, 65535}));
  Write("a.bin", "abc");
  EXPECT_EQ(DataSet::Open(spec_, spec_.path()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(DataSetTest, CutsDisjointShardsAndHoldsOutTheEnd) {
  Write("a", std::string(1003, 'x'));
  spec_.set_validation_fraction(0.05);
  spec_.set_data_shard_count(3);
  const auto data = DataSet::Open(spec_, spec_.path());
  EXPECT_EQ((*data)->validation().begin, 953);
  EXPECT_EQ((*data)->validation().end, 1003);
  const std::vector<WindowGroup> first = (*data)->window_groups(0);
  ASSERT_EQ(first.size(), 1);
  EXPECT_EQ(first[0].tokens.begin, 0);
  EXPECT_EQ(first[0].tokens.end, 317);
  EXPECT_EQ((*data)->window_groups(2)[0].tokens.end, 951);
  EXPECT_EQ((*data)->window_groups(2)[0].key, 2);
}

TEST_F(DataSetTest, FingerprintSeesContentAndNamesButNotTheSeedOrThePlace) {
  Write("one/a", "hello");
  Write("one/b", "world");
  Write("two/a", "hello");
  Write("two/b", "world");
  const auto of = [&](const std::string& place, uint64_t seed) {
    spec_.set_seed(seed);
    return *(*DataSet::Open(spec_, (root_ / place).string()))->Fingerprint();
  };
  const std::string first = of("one", 1);
  EXPECT_EQ(first.size(), 64);
  EXPECT_EQ(first, of("two", 9));
  Write("two/b", "worle");
  EXPECT_NE(first, of("two", 1));
  Write("two/b", "world");
  fs::rename(root_ / "two/b", root_ / "two/c");
  EXPECT_NE(first, of("two", 1));
}

TEST_F(DataSetTest, OpensNoExternalData) {
  Write("a", "hello");
  spec_.set_format(v1::DATA_FORMAT_EXTERNAL);
  const absl::Status status = DataSet::Open(spec_, root_.string()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("only the trainer"), std::string::npos);
}

TEST_F(DataSetTest, SaysWhatIsMissing) {
  auto data = DataSet::Open(spec_, (root_ / "nowhere").string());
  EXPECT_EQ(data.status().code(), absl::StatusCode::kNotFound);
  data = DataSet::Open(spec_, spec_.path());
  EXPECT_EQ(data.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace atl::worker
