#include "worker/planner/tensors_file.h"

#include <cstdint>
#include <iostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/layout/layout.h"
#include "base/testing/mutator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A file of `tensors`, each a JSON object without spaces.
std::string File(const std::vector<std::string>& tensors) {
  return absl::StrCat("{\"version\":1,\"tensors\":[",
                      absl::StrJoin(tensors, ","), "]}");
}

std::string Tensor(absl::string_view name, absl::string_view rest) {
  return absl::StrCat("{\"name\":\"", name, "\",", rest, "}");
}

absl::StatusOr<v1::Layout> Parse(const std::string& text,
                                 int32_t fragment_count = 0,
                                 int32_t fragment_count_default = 1) {
  TensorsFileOptions options;
  options.name = "t.json";
  options.fragment_count = fragment_count;
  options.fragment_count_default = fragment_count_default;
  return ParseTensorsFile(text, options);
}

v1::Layout Read(const std::string& text, int32_t fragment_count = 0,
                int32_t fragment_count_default = 1) {
  const auto layout = Parse(text, fragment_count, fragment_count_default);
  EXPECT_TRUE(layout.ok()) << layout.status();
  return layout.ok() ? *layout : v1::Layout();
}

std::string Fault(const std::string& text, int32_t fragment_count = 0) {
  const absl::Status status = Parse(text, fragment_count).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(status.message());
}

std::vector<int32_t> Fragments(const v1::Layout& layout) {
  std::vector<int32_t> fragments;
  for (const v1::TensorSpec& tensor : layout.tensors()) {
    fragments.push_back(tensor.fragment());
  }
  return fragments;
}

std::vector<std::string> OfSizes(const std::vector<int>& sizes) {
  std::vector<std::string> tensors;
  for (const int size : sizes) {
    tensors.push_back(Tensor(absl::StrCat("t", tensors.size()),
                             absl::StrCat("\"shape\":[", size, "]")));
  }
  return tensors;
}

TEST(TensorsFileTest, ReadsEveryKey) {
  const v1::Layout layout = Read(R"({
    "version": 1,
    "tensors": [
      {"name": "wte", "shape": [10, 3], "fragment": 1, "class": "embedding",
       "init": {"kind": "normal", "value": 0.02}},
      {"name": "layer.0-w", "shape": [3, 4, 5], "fragment": 0,
       "init": {"kind": "constant", "value": -1}},
      {"name": "variance", "shape": [3], "fragment": 0, "class": "buffer"}
    ]
  })");
  EXPECT_EQ(layout.fragment_count(), 2);
  ASSERT_EQ(layout.tensors_size(), 3);
  EXPECT_EQ(layout.tensors(2).tensor_class(), v1::TENSOR_CLASS_BUFFER);
  const v1::TensorSpec& first = layout.tensors(0);
  EXPECT_EQ(first.name(), "wte");
  EXPECT_THAT(first.shape(), ElementsAre(10, 3));
  EXPECT_EQ(first.dtype(), v1::DATA_TYPE_F32);
  EXPECT_EQ(first.fragment(), 1);
  EXPECT_EQ(first.tensor_class(), v1::TENSOR_CLASS_EMBEDDING);
  EXPECT_EQ(first.init().kind(), v1::INIT_KIND_NORMAL);
  EXPECT_EQ(first.init().value(), 0.02);
  EXPECT_EQ(layout.tensors(1).tensor_class(), v1::TENSOR_CLASS_MATRIX);
  EXPECT_EQ(layout.tensors(1).init().kind(), v1::INIT_KIND_CONSTANT);
  EXPECT_EQ(layout.tensors(1).init().value(), -1);
}

TEST(TensorsFileTest, ANameAndAShapeAreEnough) {
  const v1::Layout layout = Read(
      File({Tensor("w", "\"shape\":[3,4]"), Tensor("b", "\"shape\":[4]")}));
  EXPECT_EQ(layout.fragment_count(), 1);
  EXPECT_THAT(Fragments(layout), ElementsAre(0, 0));
  EXPECT_EQ(layout.tensors(0).tensor_class(), v1::TENSOR_CLASS_MATRIX);
  EXPECT_EQ(layout.tensors(1).tensor_class(), v1::TENSOR_CLASS_VECTOR);
  EXPECT_EQ(layout.tensors(1).init().kind(), v1::INIT_KIND_CONSTANT);
  EXPECT_EQ(layout.tensors(1).init().value(), 0);
}

TEST(TensorsFileTest, DealsAdjacentTensorsToFragmentsOfSimilarSizes) {
  const std::string text = File(OfSizes({4, 4, 5, 5, 1, 9}));
  EXPECT_THAT(Fragments(Read(text, 3)), ElementsAre(0, 0, 1, 1, 2, 2));
  EXPECT_THAT(Fragments(Read(text, 6)), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(Read(text, 0, 3).fragment_count(), 3);
  // The default is a wish: a fragment needs a tensor.
  EXPECT_EQ(Read(text, 0, 8).fragment_count(), 6);
  EXPECT_THAT(Fault(text, 7),
              HasSubstr("t.json: has 6 tensors, which are too few for 7 "
                        "fragments"));
}

TEST(TensorsFileTest, TensorsMayNameTheirFragments) {
  const auto file = [](const std::vector<std::string>& fragments) {
    std::vector<std::string> tensors;
    for (const std::string& fragment : fragments) {
      tensors.push_back(
          Tensor(absl::StrCat("t", tensors.size()),
                 absl::StrCat("\"shape\":[2]",
                              fragment.empty() ? "" : ",\"fragment\":",
                              fragment)));
    }
    return File(tensors);
  };
  EXPECT_THAT(Fragments(Read(file({"1", "0", "1"}))), ElementsAre(1, 0, 1));
  EXPECT_EQ(Read(file({"1", "0", "1"}), 2).fragment_count(), 2);
  EXPECT_THAT(Fault(file({"1", "0", "1"}), 1),
              AllOf(HasSubstr("t.json: tensor \"t0\" is in fragment 1"),
                    HasSubstr("layout.fragment_count")));
  EXPECT_THAT(Fault(file({"1", "0", "1"}), 3),
              HasSubstr("no tensor is in fragment 2 of 3"));
  EXPECT_THAT(Fault(file({"2", "0", "2"})),
              HasSubstr("no tensor is in fragment 1 of 3"));
  EXPECT_THAT(Fault(file({"0", "", "0"})),
              HasSubstr("tensor \"t1\" names no \"fragment\""));
  EXPECT_THAT(Fault(file({"0", "7"})), HasSubstr("too few for 8 fragments"));
  for (const char* wrong : {"-1", "65536", "0.5", "\"0\"", "null",
                            "99999999999999999999"}) {
    EXPECT_THAT(Fault(file({wrong})),
                HasSubstr(absl::StrCat("tensor 0 (\"t0\"): \"fragment\" is")))
        << wrong;
  }
}

TEST(TensorsFileTest, NamesTheTensorOfEveryFault) {
  const std::string big(300, 'x');
  const std::vector<std::pair<std::string, std::string>> faults = {
      {"3", "tensor 0: must be an object"},
      {"{\"shape\":[1]}", "tensor 0: needs a \"name\""},
      {"{\"name\":\"\",\"shape\":[1]}", "must not be empty"},
      {"{\"name\":3,\"shape\":[1]}", "needs a \"name\""},
      {"{\"name\":\"w\"}", "tensor 0 (\"w\"): needs a \"shape\""},
      {Tensor("w", "\"shape\":3"), "\"shape\" must be a list"},
      {Tensor("w", "\"shape\":[]"), "write [1] for a scalar"},
      {Tensor("w", "\"shape\":[3,0]"), "tensor 0 (\"w\"): a dimension is 0"},
      {Tensor("w", "\"shape\":[-1]"), "a dimension is -1"},
      {Tensor("w", "\"shape\":[1.5]"), "a dimension is 1.5"},
      {Tensor("w", "\"shape\":[18446744073709551615]"), "a dimension is 184"},
      {Tensor("w", "\"shape\":[1048576,1048577]"), "more than 2^40 elements"},
      {Tensor("w", "\"shape\":[3],\"dtype\":\"F32\""),
       "unknown key \"dtype\"; known keys are name, shape"},
      {Tensor("w", "\"shape\":[3],\"class\":\"bias\""), "\"class\" is"},
      {Tensor("w", "\"shape\":[3],\"init\":0"), "\"init\" must be like"},
      {Tensor("w", "\"shape\":[3],\"init\":{}"), "init \"kind\" is null"},
      {Tensor("w", "\"shape\":[3],\"init\":{\"kind\":\"uniform\"}"),
       "init \"kind\" is \"uniform\""},
      {Tensor("w", "\"shape\":[3],\"init\":{\"kind\":\"normal\"}"),
       "give the standard deviation"},
      {Tensor("w",
              "\"shape\":[3],\"init\":{\"kind\":\"normal\",\"value\":-1}"),
       "a standard deviation is at least 0"},
      {Tensor("w",
              "\"shape\":[3],\"init\":{\"kind\":\"constant\",\"std\":1}"),
       "unknown key \"std\""},
      {Tensor("a b", "\"shape\":[3]"), "tensor \"a b\": its name must be"},
      {Tensor(big, "\"shape\":[3]"), "its name is longer than 256 bytes"},
  };
  for (const auto& [tensor, words] : faults) {
    EXPECT_THAT(Fault(File({tensor})),
                AllOf(HasSubstr("t.json: "), HasSubstr(words)));
  }
}

TEST(TensorsFileTest, NamesAreUnique) {
  EXPECT_THAT(Fault(File({Tensor("w", "\"shape\":[1]"),
                          Tensor("v", "\"shape\":[1]"),
                          Tensor("w", "\"shape\":[1]")})),
              HasSubstr("tensors 0 and 2 are both called \"w\""));
}

TEST(TensorsFileTest, RefusesOtherFiles) {
  EXPECT_THAT(Fault(""), HasSubstr("t.json: is not JSON"));
  EXPECT_THAT(Fault("{\"version\":1,"),
              HasSubstr("`python3 -m json.tool t.json`"));
  EXPECT_THAT(Fault("[]"), HasSubstr("is not an object"));
  EXPECT_THAT(Fault("{\"tensors\":[]}"), HasSubstr("\"version\" is missing"));
  EXPECT_THAT(Fault("{\"version\":2,\"layers\":[]}"),
              HasSubstr("\"version\" is 2; this program reads version 1"));
  EXPECT_THAT(Fault("{\"version\":1,\"tensors\":[]}"),
              HasSubstr("at least one tensor"));
  EXPECT_THAT(Fault("{\"version\":1,\"tensor\":[]}"),
              HasSubstr("unknown key \"tensor\""));
  EXPECT_THAT(Fault(std::string(kTensorsFileBytesMax + 1, ' ')),
              HasSubstr("is longer than"));
}

TEST(TensorsFileTest, NestingAndLongValuesAreHarmless) {
  const std::string deep(1 << 20, '[');
  EXPECT_THAT(Fault(deep), HasSubstr("nested too deeply"));
  EXPECT_THAT(Fault(File({Tensor("w", "\"shape\":" + deep)})),
              HasSubstr("nested too deeply"));
  // Brackets in a string are no nesting.
  EXPECT_THAT(Fault(File({Tensor("w\\\"[[[[[[[[[[", "\"shape\":[1]")})),
              HasSubstr("its name must be"));
  // A message repeats only a part of what is wrong.
  const std::string name(1 << 20, 'x');
  EXPECT_LT(Fault(File({Tensor(name, "\"shape\":[1]")})).size(), 300u);
  EXPECT_LT(Fault(File({absl::StrCat("{\"", name, "\":1}")})).size(), 300u);
}

TEST(TensorsFileTest, ATensorTakesNoMoreThanALayoutDoes) {
  std::vector<std::string> tensors;
  for (int i = 0; i < RunLayout::kMaxTensors; ++i) {
    tensors.push_back(Tensor(absl::StrCat("t", i), "\"shape\":[3]"));
  }
  EXPECT_EQ(Read(File(tensors)).tensors_size(), RunLayout::kMaxTensors);
  tensors.push_back(Tensor("more", "\"shape\":[3]"));
  EXPECT_THAT(Fault(File(tensors)), HasSubstr("at most 65536"));
  const std::string half = "\"shape\":[1048576,1048576]";
  EXPECT_TRUE(Parse(File({Tensor("w", half)})).ok());
  EXPECT_THAT(Fault(File({Tensor("w", half), Tensor("v", half)})),
              HasSubstr("more than 2^40 elements"));
}

TEST(TensorsFileTest, AnyTextIsReadOrRefused) {
  const uint64_t seed = std::random_device()();
  std::cout << "seed " << seed << std::endl;
  Mutator any(seed);
  const std::vector<std::string> seeds = {
      File(OfSizes({1, 2, 3})),
      File({Tensor("w", "\"shape\":[3],\"fragment\":0,\"class\":\"matrix\","
                        "\"init\":{\"kind\":\"normal\",\"value\":0.5}")}),
  };
  int read_count = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto layout =
        Parse(any.Changed(seeds), static_cast<int32_t>(any.Pick(4)));
    if (!layout.ok()) continue;
    EXPECT_TRUE(RunLayout::Create(*layout).ok());
    ++read_count;
  }
  EXPECT_GT(read_count, 20);
}

}  // namespace
}  // namespace atl::worker
