#include "worker/api/tokenize.h"

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "atoll/v1/run.pb.h"
#include "gtest/gtest.h"
#include "worker/data/data_set.h"

namespace atl::worker {
namespace {

constexpr char kTokenizer[] = "worker/data/testdata/tokenizer_gpt2.json";

class TokenizeTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = absl::StrCat(testing::TempDir(), "/tokenize_", ::getpid());
    std::filesystem::create_directories(root_ + "/text/deeper");
    std::ifstream in(kTokenizer);
    std::string json{std::istreambuf_iterator<char>(in), {}};
    // One of its added tokens gets the usual name of a text's end.
    absl::StrReplaceAll({{"<|end|>of", "<|endoftext|>"}}, &json);
    options_.tokenizer = root_ + "/tokenizer.json";
    std::ofstream(options_.tokenizer) << json;
    options_.input = root_ + "/text";
    options_.output = root_ + "/tokens";
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(root_ + "/text/" + name, std::ios::binary) << text;
  }

  std::vector<int32_t> Written() {
    v1::DataSpec spec;
    spec.set_format(v1::DATA_FORMAT_LLMC);
    spec.set_data_shard_count(1);
    const auto set = DataSet::Open(spec, options_.output);
    EXPECT_TRUE(set.ok()) << set.status();
    if (!set.ok()) return {};
    std::vector<int32_t> tokens((*set)->token_count());
    EXPECT_TRUE((*set)->Read(0, absl::MakeSpan(tokens)).ok());
    return tokens;
  }

  std::string root_;
  TokenizeOptions options_;
};

TEST_F(TokenizeTest, WritesEachFileBehindADocumentToken) {
  // Longer than one read, with line ends to cut at.
  std::string longer;
  while (longer.size() < 2'500'000) absl::StrAppend(&longer, "the 7 of\n\n");
  Write("b.txt", longer);
  Write("a.txt", "and then");
  Write("deeper/empty", "");
  Write("deeper/c", "last");
  const auto result = Tokenize(options_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->document_token, "<|endoftext|>");
  EXPECT_EQ(result->input_file_count, 3);
  EXPECT_EQ(result->token_bytes, 2);
  EXPECT_EQ(result->output_file_count, 1);

  const auto tokenizer = ReadTokenizer(options_.tokenizer);
  ASSERT_TRUE(tokenizer.ok());
  const int32_t end = tokenizer->AddedTokenId("<|endoftext|>");
  std::vector<int32_t> expected;
  for (const std::string& text : {std::string("and then"), longer,
                                  std::string("last")}) {
    expected.push_back(end);
    const auto ids = tokenizer->Encode(text);
    expected.insert(expected.end(), ids.begin(), ids.end());
  }
  EXPECT_EQ(Written(), expected);
  EXPECT_EQ(result->token_count, static_cast<int64_t>(expected.size()));
}

TEST_F(TokenizeTest, NothingStandsBetweenFilesIfNothingShall) {
  Write("a", "the");
  Write("b", "of");
  options_.document_token = "";
  ASSERT_TRUE(Tokenize(options_).ok());
  const auto tokenizer = ReadTokenizer(options_.tokenizer);
  std::vector<int32_t> expected = tokenizer->Encode("the");
  for (const int32_t id : tokenizer->Encode("of")) expected.push_back(id);
  EXPECT_EQ(Written(), expected);
}

TEST_F(TokenizeTest, ATokenizerThatEndsNoTextPutsNothingBeforeFiles) {
  Write("a", "the");
  options_.tokenizer = kTokenizer;
  const auto result = Tokenize(options_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->document_token, "");
  EXPECT_EQ(Written(), ReadTokenizer(kTokenizer)->Encode("the"));
}

TEST_F(TokenizeTest, SaysWhatIsWrong) {
  Write("a", "the");
  options_.document_token = "<|nothing|>";
  EXPECT_EQ(Tokenize(options_).status().code(),
            absl::StatusCode::kInvalidArgument);
  options_.document_token.reset();
  options_.tokenizer = root_ + "/text/a";
  const absl::Status bad = Tokenize(options_).status();
  EXPECT_EQ(bad.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(bad.message().find(options_.tokenizer), std::string::npos) << bad;
  options_.tokenizer = root_ + "/tokenizer.json";
  options_.input = root_ + "/nowhere";
  EXPECT_EQ(Tokenize(options_).status().code(), absl::StatusCode::kNotFound);
  options_.input = root_ + "/text";
  ASSERT_TRUE(Tokenize(options_).ok());
  EXPECT_EQ(Tokenize(options_).status().code(),
            absl::StatusCode::kAlreadyExists);
}

TEST_F(TokenizeTest, StopsWhenItIsTold) {
  Write("a", std::string(3'000'000, 'e') + "\n");
  std::stop_source stop;
  options_.stop = stop.get_token();
  options_.on_progress = [&](int64_t, int64_t) { stop.request_stop(); };
  EXPECT_EQ(Tokenize(options_).status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace atl::worker
