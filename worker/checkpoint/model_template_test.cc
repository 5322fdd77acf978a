#include "worker/checkpoint/model_template.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/io/posix_file_system.h"
#include "gtest/gtest.h"
#include "worker/checkpoint/checkpoint.h"

namespace atl::worker {
namespace {

namespace fs = std::filesystem;

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(T)};
}

struct RawTensor {
  std::string name, dtype, shape, bytes;
};

std::string RawFile(const std::vector<RawTensor>& tensors) {
  std::string header = R"({"__metadata__":{"format":"pt"})", data;
  for (const RawTensor& tensor : tensors) {
    absl::StrAppend(&header, ",\"", tensor.name, "\":{\"dtype\":\"",
                    tensor.dtype, "\",\"shape\":", tensor.shape,
                    ",\"data_offsets\":[", data.size(), ",",
                    data.size() + tensor.bytes.size(), "]}");
    data += tensor.bytes;
  }
  header += "}";
  const uint64_t size = header.size();
  return Bytes(std::vector<uint64_t>{size}) + header + data;
}

class ModelTemplateTest : public testing::Test {
 protected:
  ModelTemplateTest()
      : root_(absl::StrCat(
            testing::TempDir(), "/template_", ::getpid(), "_",
            testing::UnitTest::GetInstance()->current_test_info()->name())),
        template_(root_ + "/template"),
        output_(root_ + "/output") {
    fs::create_directories(template_);
    model_.set_architecture("external");
    layout_.set_fragment_count(1);
    AddTensor("embed.weight", {2, 2});
    AddTensor("norm.bias", {2});
    parameters_ = {1, 2, 3, 4, 5, 6};
    source_.run_id = "run";
  }
  ~ModelTemplateTest() override { fs::remove_all(root_); }

  void AddTensor(const std::string& name, const std::vector<int64_t>& shape) {
    v1::TensorSpec* tensor = layout_.add_tensors();
    tensor->set_name(name);
    for (const int64_t dimension : shape) tensor->add_shape(dimension);
    tensor->set_dtype(v1::DATA_TYPE_F32);
    tensor->set_tensor_class(v1::TENSOR_CLASS_MATRIX);
    tensor->mutable_init()->set_kind(v1::INIT_KIND_CONSTANT);
  }
  void Put(const std::string& name, const std::string& bytes) {
    std::ofstream(template_ + "/" + name, std::ios::binary) << bytes;
  }
  void PutModel(const std::vector<RawTensor>& more = {}) {
    std::vector<RawTensor> tensors = {
        {"embed.weight", "F32", "[2,2]", embed_},
        {"norm.bias", "F32", "[2]", bias_}};
    tensors.insert(tensors.end(), more.begin(), more.end());
    Put("model.safetensors", RawFile(tensors));
  }
  std::string Text(const std::string& name) {
    std::ifstream in(output_ + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  absl::Status Export() {
    CheckpointOptions options;
    options.template_directory = template_;
    const absl::StatusOr<CheckpointFiles> files =
        WriteCheckpoint(PosixFileSystem(), output_, model_, layout_,
                        parameters_, source_, options);
    if (files.ok()) use_ = files->template_use;
    return files.status();
  }
  // The refusal says `text`, and leaves no output.
  void ExpectRefused(const std::string& text) {
    const absl::Status status = Export();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), text)) << status;
    EXPECT_FALSE(fs::exists(output_));
  }

  const std::string root_, template_, output_;
  const std::string embed_ = Bytes<float>({0.5f, 0.25f, 0.125f, 1});
  const std::string bias_ = Bytes<float>({0, 0});
  const std::string new_embed_ = Bytes<float>({1, 2, 3, 4});
  const std::string new_bias_ = Bytes<float>({5, 6});
  v1::ModelSpec model_;
  v1::Layout layout_;
  std::vector<float> parameters_;
  CheckpointSource source_;
  TemplateUse use_;
};

TEST_F(ModelTemplateTest, ATiedHeadGetsTheValueAndOthersStay) {
  const std::string frozen = Bytes<float>({7, 8, 9, 10});
  const std::string count = Bytes<int64_t>({3});
  PutModel({{"lm_head.weight", "F32", "[2,2]", embed_},
            {"frozen.weight", "F32", "[2,2]", frozen},
            {"norm.running_mean", "F32", "[2]", bias_},  // Only by its zeros.
            {"norm.count", "I64", "[]", count}});
  Put("config.json", "{}");
  const absl::Status status = Export();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Text("model.safetensors"),
            RawFile({{"embed.weight", "F32", "[2,2]", new_embed_},
                     {"norm.bias", "F32", "[2]", new_bias_},
                     {"lm_head.weight", "F32", "[2,2]", new_embed_},
                     {"frozen.weight", "F32", "[2,2]", frozen},
                     {"norm.running_mean", "F32", "[2]", bias_},
                     {"norm.count", "I64", "[]", count}}));
  EXPECT_EQ(Text("config.json"), "{}");
  EXPECT_EQ(use_.filled_count, 2);
  EXPECT_EQ(use_.kept_count, 3);
  EXPECT_EQ(use_.tied,
            (std::vector<std::string>{"lm_head.weight = embed.weight"}));
  EXPECT_TRUE(fs::exists(output_ + "/manifest.json"));
}

TEST_F(ModelTemplateTest, RefusesWhatMayBeTiedOrNot) {
  PutModel({{"head.bias", "F32", "[2]", bias_}});
  ExpectRefused("head.bias equals the run's norm.bias");
  AddTensor("twin.weight", {2, 2});
  parameters_.resize(10);
  PutModel({{"twin.weight", "F32", "[2,2]", embed_},
            {"lm_head.weight", "F32", "[2,2]", embed_}});
  ExpectRefused("embed.weight and twin.weight");
}

TEST_F(ModelTemplateTest, KeepsTheDtypeAndRoundsToTheNearest) {
  // Ties go to the even one; F16 has values below 2^-14.
  parameters_ = {1 + 0x1p-8f, 1 + 3 * 0x1p-8f, -2, 0, 1 + 0x1p-11f, 0x1.8p-24f};
  Put("model.safetensors",
      RawFile({{"embed.weight", "BF16", "[2,2]", std::string(8, 'a')},
               {"norm.bias", "F16", "[2]", "abcd"}}));
  const absl::Status status = Export();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(
      Text("model.safetensors"),
      RawFile({{"embed.weight", "BF16", "[2,2]",
                Bytes<uint16_t>({0x3f80, 0x3f82, 0xc000, 0})},
               {"norm.bias", "F16", "[2]", Bytes<uint16_t>({0x3c00, 2})}}));
}

TEST_F(ModelTemplateTest, RefusesAValueThatTheDtypeCannotHold) {
  Put("model.safetensors",
      RawFile({{"embed.weight", "F64", "[2,2]", std::string(32, 'a')},
               {"norm.bias", "F16", "[2]", "abcd"}}));
  parameters_[4] = 65519;
  ASSERT_TRUE(Export().ok());
  fs::remove_all(output_);
  parameters_[4] = 65520;
  ExpectRefused("norm.bias has a value that F16 cannot hold");
  Put("model.safetensors",
      RawFile({{"embed.weight", "BF16", "[2,2]", std::string(8, 'a')},
               {"norm.bias", "F64", "[2]", std::string(16, 'a')}}));
  parameters_[0] = std::numeric_limits<float>::max();
  ExpectRefused("embed.weight has a value that BF16 cannot hold");
}

TEST_F(ModelTemplateTest, SaysWhichTensorDoesNotFit) {
  Put("model.safetensors",
      RawFile({{"embed.weight", "F32", "[2,2]", embed_}}));
  ExpectRefused("lacks the run's tensors norm.bias:");
  Put("model.safetensors",
      RawFile({{"embed.weight", "F32", "[4]", embed_},
               {"norm.bias", "F32", "[2]", bias_}}));
  ExpectRefused("embed.weight has shape [4], but the run has [2, 2]");
  Put("model.safetensors",
      RawFile({{"embed.weight", "I8", "[2,2]", "abcd"},
               {"norm.bias", "F32", "[2]", bias_}}));
  ExpectRefused("embed.weight is I8");
  fs::remove(template_ + "/model.safetensors");
  EXPECT_EQ(Export().code(), absl::StatusCode::kNotFound);
}

TEST_F(ModelTemplateTest, NamesCountAsThePackageNamesThem) {
  EXPECT_EQ(RunTensorName("module._orig_mod.a._checkpoint_wrapped_module.b"),
            "a.b");
  EXPECT_EQ(RunTensorName("h\xc3\xa9.w 1"), "h_ue9_.w_u20_1");
  EXPECT_EQ(RunTensorName("\xe5\xb1\x82.\xf0\x9f\x98\x80"),
            "_u5c42_._u1f600_");
  Put("model.safetensors",
      RawFile({{"_orig_mod.embed.weight", "F32", "[2,2]", embed_},
               {"_orig_mod.norm.bias", "F32", "[2]", bias_}}));
  const absl::Status status = Export();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Text("model.safetensors"),
            RawFile({{"_orig_mod.embed.weight", "F32", "[2,2]", new_embed_},
                     {"_orig_mod.norm.bias", "F32", "[2]", new_bias_}}));
}

TEST_F(ModelTemplateTest, AnAdaptersFilesLackItsName) {
  layout_.clear_tensors();
  AddTensor("base.q.lora_A.default.weight", {2, 2});
  AddTensor("base.e.lora_embedding_A.default", {1});
  AddTensor("base.q.lora_magnitude_vector.default.weight", {1});
  AddTensor("base.head.modules_to_save.default.weight", {1});
  parameters_.push_back(7);
  Put("adapter_config.json", "{}");
  const auto file = [&](float e, float m, float h, const std::string& q) {
    return RawFile(
        {{"base.q.lora_A.weight", "F32", "[2,2]", q},
         {"base.e.lora_embedding_A", "F32", "[1]", Bytes<float>({e})},
         {"base.q.lora_magnitude_vector", "F32", "[1]", Bytes<float>({m})},
         {"base.head.weight", "F32", "[1]", Bytes<float>({h})}});
  };
  Put("adapter_model.safetensors", file(0, 0, 0, embed_));
  const absl::Status status = Export();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Text("adapter_model.safetensors"), file(5, 6, 7, new_embed_));
  EXPECT_EQ(Text("adapter_config.json"), "{}");
  fs::remove_all(output_);
  Put("model.safetensors", "");
  ExpectRefused("has a model and an adapter");
}

TEST_F(ModelTemplateTest, CopiesSmallFilesAndNoOtherWeights) {
  PutModel();
  Put("tokenizer.json", "tokens");
  Put("pytorch_model.bin", "old");
  Put("long", "");
  fs::resize_file(template_ + "/long", ModelTemplate::kCopiedBytesMax + 1);
  fs::create_directories(template_ + "/folder");
  Put("secret", "");
  fs::rename(template_ + "/secret", root_ + "/secret");
  fs::create_symlink(root_ + "/secret", template_ + "/link");
  const absl::Status status = Export();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Text("tokenizer.json"), "tokens");
  EXPECT_EQ(use_.left_out,
            (std::vector<std::string>{"folder", "link", "long",
                                      "pytorch_model.bin"}));
  for (const std::string& name : use_.left_out) {
    EXPECT_FALSE(fs::exists(output_ + "/" + name)) << name;
  }
  // The same again: a file of a person's template is never replaced.
  EXPECT_EQ(Export().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Text("tokenizer.json"), "tokens");
}

TEST_F(ModelTemplateTest, LinkedWeightsAreRefused) {
  PutModel();
  fs::rename(template_ + "/model.safetensors", root_ + "/elsewhere");
  fs::create_symlink(root_ + "/elsewhere", template_ + "/model.safetensors");
  ExpectRefused("is no regular file");
}

TEST_F(ModelTemplateTest, SeveralFilesKeepTheirNamesAndIndex) {
  const std::string index =
      R"({"weight_map":{"embed.weight":"model-00001-of-00002.safetensors",)"
      R"("norm.bias":"model-00002-of-00002.safetensors"}})";
  Put("model.safetensors.index.json", index);
  Put("model-00001-of-00002.safetensors",
      RawFile({{"embed.weight", "F32", "[2,2]", embed_}}));
  Put("model-00002-of-00002.safetensors",
      RawFile({{"norm.bias", "F32", "[2]", bias_}}));
  const absl::Status status = Export();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Text("model.safetensors.index.json"), index);
  std::vector<float> parameters(6);
  const absl::Status read =
      ReadCheckpoint(PosixFileSystem(), output_, layout_,
                     absl::MakeSpan(parameters));
  ASSERT_TRUE(read.ok()) << read;
  EXPECT_EQ(parameters, parameters_);
}

}  // namespace
}  // namespace atl::worker
