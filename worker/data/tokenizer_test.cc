// Compares with Hugging Face's tokenizers and tiktoken, through the files of
// testdata/make_tokenizer_golden.py.

#include "worker/data/tokenizer.h"

#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/testing/mutator.h"
#include "gtest/gtest.h"

namespace atl::worker {
namespace {

std::string Text(const std::string& name) {
  std::ifstream in("worker/data/testdata/" + name, std::ios::binary);
  EXPECT_TRUE(in.good()) << name;
  return {std::istreambuf_iterator<char>(in), {}};
}

using Case = std::pair<std::string, std::vector<int32_t>>;

std::vector<Case> Cases(const std::string& name) {
  std::vector<Case> cases;
  std::istringstream lines(Text(name));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string hex;
    fields >> hex;
    Case one;
    if (hex != "-") one.first = absl::HexStringToBytes(hex);
    for (int32_t id; fields >> id;) one.second.push_back(id);
    cases.push_back(one);
  }
  EXPECT_GT(cases.size(), 100);
  return cases;
}

void HoldToCases(const absl::StatusOr<Tokenizer>& tokenizer,
                 const std::string& name) {
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  for (const auto& [text, ids] : Cases(name)) {
    ASSERT_EQ(tokenizer->Encode(text), ids) << absl::CHexEscape(text);
    ASSERT_EQ(tokenizer->Decode(ids), text);
  }
}

TEST(TokenizerTest, WithGpt2sExpressionItEncodesAsHuggingFace) {
  HoldToCases(Tokenizer::FromJson(Text("tokenizer_gpt2.json")),
              "tokenizer_gpt2.cases");
}

TEST(TokenizerTest, WithLlama3sExpressionItEncodesAsHuggingFace) {
  HoldToCases(Tokenizer::FromJson(Text("tokenizer_llama3.json")),
              "tokenizer_llama3.cases");
}

TEST(TokenizerTest, ATiktokenFileEncodesAsTiktoken) {
  HoldToCases(Tokenizer::FromTiktoken(Text("gpt2.tiktoken")), "tiktoken.cases");
}

// Reads a text in parts of at most `part`, as a long file is read.
std::vector<int32_t> EncodeInParts(const Tokenizer& tokenizer,
                                   absl::string_view text, size_t part) {
  std::vector<int32_t> ids;
  for (size_t window = part; !text.empty();) {
    size_t whole = text.size();
    if (window < text.size()) {
      whole = tokenizer.WholePieces(text.substr(0, window));
      if (whole == 0) {
        window += part;
        continue;
      }
    }
    const auto more = tokenizer.Encode(text.substr(0, whole));
    ids.insert(ids.end(), more.begin(), more.end());
    text.remove_prefix(whole);
    window = part;
  }
  return ids;
}

TEST(TokenizerTest, PartsEncodeAsTheWholeDoes) {
  const uint64_t seed = std::random_device()();
  std::cout << "seed " << seed << std::endl;
  std::mt19937_64 random(seed);
  const char* const words[] = {"a",  "Z9", "\n",   " ",  "\r\n", "\n\n", "!",
                               "'s", "'",  "\u00e9", ".\n", "  ",  "7",  "\t"};
  for (const char* name : {"tokenizer_gpt2.json", "tokenizer_llama3.json"}) {
    const auto tokenizer = Tokenizer::FromJson(Text(name));
    ASSERT_TRUE(tokenizer.ok());
    for (int i = 0; i < 300; ++i) {
      std::string text;
      for (int k = 0; k < 100; ++k) text += words[random() % std::size(words)];
      ASSERT_EQ(EncodeInParts(*tokenizer, text, 1 + random() % 20),
                tokenizer->Encode(text))
          << absl::CHexEscape(text);
    }
    EXPECT_EQ(tokenizer->WholePieces("ab\n"), 2);
    EXPECT_EQ(tokenizer->WholePieces("\n!\n \n"), 0);
  }
}

TEST(TokenizerTest, NamesItsAddedTokens) {
  const auto tokenizer = Tokenizer::FromJson(Text("tokenizer_gpt2.json"));
  ASSERT_TRUE(tokenizer.ok());
  const int32_t id = tokenizer->AddedTokenId("<|end|>");
  ASSERT_GE(id, 0);
  EXPECT_EQ(tokenizer->Encode("<|end|>"), std::vector<int32_t>{id});
  EXPECT_EQ(tokenizer->AddedTokenId("the"), -1);
  EXPECT_EQ(tokenizer->AddedTokenId(""), -1);
}

TEST(TokenizerTest, AnyBytesComeBack) {
  const uint64_t seed = std::random_device()();
  std::cout << "seed " << seed << std::endl;
  std::mt19937_64 random(seed);
  for (const char* name : {"tokenizer_gpt2.json", "tokenizer_llama3.json"}) {
    const auto tokenizer = Tokenizer::FromJson(Text(name));
    ASSERT_TRUE(tokenizer.ok());
    for (int i = 0; i < 300; ++i) {
      std::string bytes(random() % 60, '\0');
      for (char& c : bytes) c = static_cast<char>(random());
      const std::vector<int32_t> ids = tokenizer->Encode(bytes);
      ASSERT_EQ(tokenizer->Decode(ids), bytes);
      for (int32_t id : ids) ASSERT_LT(id, tokenizer->vocab_size());
    }
    // One very long piece.
    const std::string longest(200000, 'e');
    EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(longest)), longest);
  }
}

TEST(TokenizerTest, ManyRanksMeanLlama3sExpression) {
  std::string file;
  int rank = 0;
  const auto add = [&](const std::string& token) {
    absl::StrAppend(&file, absl::Base64Escape(token), " ", rank++, "\n");
  };
  for (int b = 0; b < 256; ++b) add(std::string(1, static_cast<char>(b)));
  add("12");
  add("123");
  add("1234");
  const std::string few = file;
  for (int i = 0; rank <= 60000; ++i) {
    add({static_cast<char>(0x80 + i % 64), static_cast<char>(i / 64 % 256),
         static_cast<char>(i / 64 / 256)});
  }
  // GPT-2's takes any number of digits, Llama 3's three.
  EXPECT_EQ(Tokenizer::FromTiktoken(few)->Encode("1234").size(), 1);
  EXPECT_EQ(Tokenizer::FromTiktoken(file)->Encode("1234").size(), 2);
}

TEST(TokenizerTest, RefusesWhatItIsNot) {
  const std::string good = Text("tokenizer_gpt2.json");
  const auto error = [&](const std::string& from, const std::string& to) {
    EXPECT_TRUE(absl::StrContains(good, from)) << from;
    const auto made =
        Tokenizer::FromJson(absl::StrReplaceAll(good, {{from, to}}));
    EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument) << to;
    return std::string(made.status().message());
  };
  EXPECT_TRUE(absl::StrContains(
      error("\"normalizer\": null", "\"normalizer\": {\"type\": \"NFC\"}"),
      "normalizer"));
  EXPECT_TRUE(absl::StrContains(
      error("\"type\": \"BPE\"", "\"type\": \"Unigram\""), "BPE"));
  EXPECT_TRUE(absl::StrContains(
      error("\"add_prefix_space\": false", "\"add_prefix_space\": true"),
      "add_prefix_space"));
  EXPECT_TRUE(
      absl::StrContains(error("\"pre_tokenizer\": {\"type\": \"ByteLevel\"",
                              "\"pre_tokenizer\": {\"type\": \"Whitespace\""),
                        "ByteLevel"));
  EXPECT_TRUE(absl::StrContains(error("\"vocab\": {",
                                      "\"vocab\": {\"a\\u4e2d\":"
                                      " 5000, "),
                                "byte-level"));
  const auto broken = Tokenizer::FromTiktoken("aa 1\nIQ== 0\nIg==\n");
  EXPECT_FALSE(broken.ok());
  const auto line = Tokenizer::FromTiktoken("IQ== 0\nIg==\n");
  EXPECT_TRUE(absl::StrContains(line.status().message(), "line 2"));
  EXPECT_FALSE(Tokenizer::FromTiktoken("IQ== 0\nIg== 0\n").ok());
  EXPECT_FALSE(Tokenizer::FromTiktoken("IQ== 0\n").ok());
  EXPECT_FALSE(Tokenizer::FromTiktoken("IQ== -1\n").ok());
  EXPECT_FALSE(Tokenizer::FromJson("{").ok());
  EXPECT_FALSE(Tokenizer::FromJson("[]").ok());
}

TEST(TokenizerTest, AnyFileIsReadOrRefused) {
  const uint64_t seed = std::random_device()();
  std::cout << "seed " << seed << std::endl;
  Mutator any(seed);
  const std::vector<std::string> json = {Text("tokenizer_gpt2.json"),
                                         Text("tokenizer_llama3.json")};
  const std::vector<std::string> ranks = {Text("gpt2.tiktoken")};
  int read_count = 0;
  // Few changed files can be read: more are tried until one is.
  for (int i = 0; i < 200 || (read_count == 0 && i < 20000); ++i) {
    const bool is_json = i % 2 == 0;
    const std::string file = any.Changed(is_json ? json : ranks);
    const auto made = is_json ? Tokenizer::FromJson(file)
                              : Tokenizer::FromTiktoken(file);
    if (!made.ok()) continue;
    ++read_count;
    const std::string text = "It's 1234\n\xff\xfe <|endoftext|> \xe4\xb8\xad";
    const std::vector<int32_t> ids = made->Encode(text);
    for (const int32_t id : ids) EXPECT_LT(id, made->vocab_size());
    made->Decode(ids);
    made->Decode({-1, made->vocab_size(), INT32_MAX});
  }
  EXPECT_GT(read_count, 0);
}

}  // namespace
}  // namespace atl::worker
