#include "worker/checkpoint/checkpoint.h"

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/io/posix_file_system.h"
#include "base/layout/digest.h"
#include "base/testing/mutator.h"
#include "gtest/gtest.h"
#include "worker/checkpoint/model_config_file.h"

namespace atl::worker {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = absl::StrCat(
        testing::TempDir(), "/checkpoint_", ::getpid(), "_",
        testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(root_);
    directory_ = root_ + "/model";
    model_.set_architecture("llama");
    model_.set_vocab_size(8);
    model_.set_hidden_size(4);
    model_.set_intermediate_size(6);
    model_.set_layer_count(1);
    model_.set_head_count(2);
    model_.set_kv_head_count(1);
    model_.set_sequence_length(16);
    model_.set_rope_theta(10000);
    model_.set_rms_norm_eps(1e-5);
    AddTensor("a.weight", {3, 5});
    AddTensor("b.weight", {4097});
    layout_.set_fragment_count(1);
    for (int i = 0; i < 15 + 4097; ++i) {
      parameters_.push_back(0.25f * static_cast<float>(i) - 7);
    }
    source_.run_id = "run";
    source_.commit_seq = 12;
  }
  void TearDown() override { fs::remove_all(root_); }

  void AddTensor(const std::string &name, std::vector<int64_t> shape) {
    v1::TensorSpec *tensor = layout_.add_tensors();
    tensor->set_name(name);
    for (const int64_t dimension : shape) tensor->add_shape(dimension);
    tensor->set_dtype(v1::DATA_TYPE_F32);
    tensor->set_tensor_class(v1::TENSOR_CLASS_MATRIX);
    tensor->mutable_init()->set_kind(v1::INIT_KIND_CONSTANT);
  }
  absl::StatusOr<CheckpointFiles> Write() {
    return WriteCheckpoint(PosixFileSystem(), directory_, model_, layout_,
                           parameters_, source_);
  }
  absl::Status Read(std::vector<float> &parameters) {
    parameters.assign(parameters_.size(), 0.0f);
    return ReadCheckpoint(PosixFileSystem(), directory_, layout_,
                          absl::MakeSpan(parameters));
  }
  std::string Text(const std::string &name) {
    std::ifstream in(directory_ + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void Put(const std::string &name, const std::string &bytes) {
    std::ofstream(directory_ + "/" + name, std::ios::binary) << bytes;
  }
  // Reads with `bytes` as the weights; the error must name the file.
  absl::Status ReadWith(const std::string &bytes) {
    Put("model.safetensors", bytes);
    std::vector<float> parameters;
    const absl::Status status = Read(parameters);
    EXPECT_FALSE(status.ok());
    EXPECT_TRUE(absl::StrContains(status.message(), "model.safetensors"))
        << status;
    return status;
  }

  std::string root_, directory_;
  v1::ModelSpec model_;
  v1::Layout layout_;
  std::vector<float> parameters_;
  CheckpointSource source_;
};

TEST_F(CheckpointTest, GivesBackWhatWasWritten) {
  const auto written = Write();
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(written->parameters_sha256,
            ParametersSha256(*RunLayout::Create(layout_), parameters_));
  std::vector<float> parameters;
  ASSERT_TRUE(Read(parameters).ok());
  EXPECT_EQ(parameters, parameters_);
  const auto model = ReadCheckpointModel(PosixFileSystem(), directory_);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->SerializeAsString(), model_.SerializeAsString());
  EXPECT_FALSE(fs::exists(directory_ + ".tmp"));
}

TEST_F(CheckpointTest, WritesTheSameBytesAgain) {
  ASSERT_TRUE(Write().ok());
  const std::string weights = Text("model.safetensors");
  const std::string manifest = Text("manifest.json");
  ASSERT_TRUE(Write().ok());
  EXPECT_EQ(Text("model.safetensors"), weights);
  EXPECT_EQ(Text("manifest.json"), manifest);
  EXPECT_FALSE(fs::exists(directory_ + ".old"));
}

TEST_F(CheckpointTest, DataIsAlignedAndCompleteInTheFile) {
  ASSERT_TRUE(Write().ok());
  const std::string bytes = Text("model.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  EXPECT_EQ(header % 8, 0);
  EXPECT_EQ(bytes.size(), 8 + header + 4 * parameters_.size());
}

TEST_F(CheckpointTest, KeepsWhatItDidNotWrite) {
  fs::create_directories(directory_ + ".old");
  fs::create_directories(directory_ + ".tmp");
  std::ofstream(directory_ + ".old/a") << "a backup";
  std::ofstream(directory_ + ".tmp/b") << "a draft";
  fs::create_directories(directory_);
  Put("thesis.txt", "years of work");
  Put("tokenizer.json", "of the person");
  for (const int64_t commit : {12, 13}) {
    source_.commit_seq = commit;
    CheckpointOptions options;
    options.replaces_other = true;
    ASSERT_TRUE(WriteCheckpoint(PosixFileSystem(), directory_, model_, layout_,
                                parameters_, source_, options)
                    .ok());
    EXPECT_EQ(Text("thesis.txt"), "years of work");
    EXPECT_EQ(Text("tokenizer.json"), "of the person");
    EXPECT_EQ(Text("../model.old/a"), "a backup");
    EXPECT_EQ(Text("../model.tmp/b"), "a draft");
  }
  std::vector<float> parameters;
  EXPECT_TRUE(Read(parameters).ok());
}

TEST_F(CheckpointTest, RefusesAnUnfinishedExport) {
  ASSERT_TRUE(Write().ok());
  std::string manifest = Text("manifest.json");
  const size_t at = manifest.find("\"format\": 1");
  ASSERT_NE(at, std::string::npos) << manifest;
  manifest.replace(at, 11, "\"format\": \"unfinished\"");
  Put("manifest.json", manifest);
  std::vector<float> parameters;
  const absl::Status status = Read(parameters);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(status.message(), "is not finished")) << status;
  fs::remove(directory_ + "/config.json");
  EXPECT_EQ(ReadCheckpointModel(PosixFileSystem(), directory_).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Write().ok());
  EXPECT_TRUE(Read(parameters).ok());
}

TEST_F(CheckpointTest, LeavesNothingBehindOfOneThatIsStopped) {
  std::stop_source stop;
  stop.request_stop();
  CheckpointOptions options;
  options.stop = stop.get_token();
  EXPECT_EQ(WriteCheckpoint(PosixFileSystem(), directory_, model_, layout_,
                            parameters_, source_, options)
                .status()
                .code(),
            absl::StatusCode::kCancelled);
  EXPECT_TRUE(fs::is_empty(root_));
  // A stopped write does not replace an existing checkpoint either.
  ASSERT_TRUE(Write().ok());
  const std::string manifest = Text("manifest.json");
  source_.commit_seq = 13;
  EXPECT_FALSE(WriteCheckpoint(PosixFileSystem(), directory_, model_, layout_,
                               parameters_, source_, options)
                   .ok());
  EXPECT_EQ(Text("manifest.json"), manifest);
  EXPECT_EQ(ReadCheckpoint(PosixFileSystem(), directory_, layout_,
                           absl::MakeSpan(parameters_), stop.get_token())
                .code(),
            absl::StatusCode::kCancelled);
}

TEST_F(CheckpointTest, DamageIsNoticed) {
  ASSERT_TRUE(Write().ok());
  const std::string good = Text("model.safetensors");
  EXPECT_EQ(ReadWith(good.substr(0, good.size() - 1)).code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(ReadWith(good.substr(0, 5)).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ReadWith("").code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ReadWith(good + "x").code(), absl::StatusCode::kDataLoss);
  std::string flipped = good;
  flipped[good.size() - 3] ^= 1;
  EXPECT_EQ(ReadWith(flipped).code(), absl::StatusCode::kDataLoss);
  std::string huge = good;
  huge[7] = '\x7f';
  EXPECT_EQ(ReadWith(huge).code(), absl::StatusCode::kDataLoss);
  huge[7] = '\xff';
  EXPECT_EQ(ReadWith(huge).code(), absl::StatusCode::kDataLoss);
}

TEST_F(CheckpointTest, EveryDamagedHeaderByteIsAnError) {
  ASSERT_TRUE(Write().ok());
  const std::string good = Text("model.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, good.data(), 8);
  for (size_t i = 0; i < 8 + header; ++i) {
    std::string bad = good;
    bad[i] ^= 0x04;
    EXPECT_FALSE(ReadWith(bad).ok());
  }
}

struct RawTensor {
  std::string name, dtype, shape, bytes;
};
std::string RawFile(const std::vector<RawTensor> &tensors) {
  std::string header = "{", data;
  for (const RawTensor &tensor : tensors) {
    absl::StrAppend(&header, header.size() > 1 ? "," : "", "\"", tensor.name,
                    "\":{\"dtype\":\"", tensor.dtype,
                    "\",\"shape\":", tensor.shape, ",\"data_offsets\":[",
                    data.size(), ",", data.size() + tensor.bytes.size(), "]}");
    data += tensor.bytes;
  }
  header += "}";
  const uint64_t size = header.size();
  std::string file(reinterpret_cast<const char *>(&size), sizeof(size));
  return file + header + data;
}

TEST_F(CheckpointTest, ReadsSeveralFilesByTheirIndexAndWidens) {
  ASSERT_TRUE(Write().ok());
  for (const char *name : {"model.safetensors", "manifest.json"}) {
    fs::remove(directory_ + "/" + name);
  }
  // BF16 is the upper half of f32; F16 has 5 bits of exponent.
  std::string a, b;
  const std::vector<uint16_t> f16 = {0x3c00, 0xc000, 0x0001, 0x8400, 0x7bff};
  const std::vector<float> f16_values = {1, -2, 0x1p-24f, -0x1p-14f, 65504};
  for (int i = 0; i < 15; ++i) {
    a.append(reinterpret_cast<const char *>(&f16[i % 5]), 2);
    parameters_[i] = f16_values[i % 5];
  }
  for (int i = 0; i < 4097; ++i) {
    uint32_t bits;
    std::memcpy(&bits, &parameters_[15 + i], 4);
    bits &= 0xffff0000u;
    std::memcpy(&parameters_[15 + i], &bits, 4);
    b.append(reinterpret_cast<const char *>(&bits) + 2, 2);
  }
  Put("model-00001-of-00002.safetensors",
      RawFile({{"b.weight", "BF16", "[4097]", b}}));
  Put("model-00002-of-00002.safetensors",
      RawFile({{"a.weight", "F16", "[3,5]", a},
               {"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", "[1]",
                "1234"}}));
  const std::string index =
      "{\"weight_map\":{\"a.weight\":\"model-00002-of-00002.safetensors\","
      "\"b.weight\":\"model-00001-of-00002.safetensors\"}}";
  Put("model.safetensors.index.json", index);
  std::vector<float> parameters;
  const absl::Status read = Read(parameters);
  ASSERT_TRUE(read.ok()) << read;
  EXPECT_EQ(parameters, parameters_);

  fs::remove(directory_ + "/model-00001-of-00002.safetensors");
  EXPECT_EQ(Read(parameters).code(), absl::StatusCode::kNotFound);
  Put("model.safetensors.index.json",
      "{\"weight_map\":{\"a.weight\":\"../x.safetensors\"}}");
  EXPECT_EQ(Read(parameters).code(), absl::StatusCode::kDataLoss);
  Put("model.safetensors.index.json", index.substr(1));
  EXPECT_EQ(Read(parameters).code(), absl::StatusCode::kDataLoss);
  Put("model-00001-of-00002.safetensors",
      RawFile({{"b.weight", "BF16", "[4097]", b},
               {"a.weight", "F16", "[3,5]", a}}));
  Put("model.safetensors.index.json", index);
  EXPECT_TRUE(absl::StrContains(Read(parameters).message(), "comes twice"));
}

TEST_F(CheckpointTest, WritesSeveralFilesUpToTheirLimit) {
  AddTensor("c.weight", {7});
  AddTensor("d.weight", {2, 2});
  for (int i = 0; i < 11; ++i) parameters_.push_back(0.5f * i);
  CheckpointOptions options;
  options.weight_file_bytes_max = 48;  // c and d do not fit together ...
  const auto write = [&] {
    return WriteCheckpoint(PosixFileSystem(), directory_, model_, layout_,
                           parameters_, source_, options);
  };
  const auto written = write();
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_FALSE(fs::exists(directory_ + "/model.safetensors"));
  // ... but one with c and d fits: a and b are larger than the limit.
  EXPECT_TRUE(fs::exists(directory_ + "/model-00003-of-00003.safetensors"));
  const std::string index = Text("model.safetensors.index.json");
  EXPECT_TRUE(absl::StrContains(index, "\"total_size\": 16492")) << index;
  EXPECT_TRUE(absl::StrContains(
      index, "\"d.weight\": \"model-00003-of-00003.safetensors\""))
      << index;
  std::vector<float> parameters;
  ASSERT_TRUE(Read(parameters).ok());
  EXPECT_EQ(parameters, parameters_);
  options.weight_file_bytes_max = 28;
  ASSERT_TRUE(write().ok());
  EXPECT_TRUE(fs::exists(directory_ + "/model-00004-of-00004.safetensors"));
  EXPECT_FALSE(fs::exists(directory_ + "/model-00003-of-00003.safetensors"));
  // Damage in any of them is detected.
  std::string bytes = Text("model-00002-of-00004.safetensors");
  bytes.back() ^= 1;
  Put("model-00002-of-00004.safetensors", bytes);
  EXPECT_EQ(Read(parameters).code(), absl::StatusCode::kDataLoss);
}

TEST_F(CheckpointTest, ReadsABodyOfGpt2ItsBuffersAndATiedHead) {
  layout_.mutable_tensors(0)->set_name("transformer.h.0.mlp.c_fc.weight");
  layout_.mutable_tensors(1)->set_name("transformer.wte.weight");
  std::string a, b;
  const char *bytes = reinterpret_cast<const char *>(parameters_.data());
  a.assign(bytes, 60);
  b.assign(bytes + 60, 4 * 4097);
  ASSERT_TRUE(Write().ok());
  fs::remove(directory_ + "/manifest.json");
  Put("model.safetensors",
      RawFile({{"h.0.mlp.c_fc.weight", "F32", "[3,5]", a},
               {"h.0.attn.bias", "F32", "[1,1,1,1]", "1234"},
               {"wte.weight", "F32", "[4097]", b},
               {"lm_head.weight", "F32", "[4097]", b}}));
  std::vector<float> parameters;
  const absl::Status read = Read(parameters);
  ASSERT_TRUE(read.ok()) << read;
  EXPECT_EQ(parameters, parameters_);
  // Both names of one tensor.
  EXPECT_TRUE(absl::StrContains(
      ReadWith(RawFile({{"wte.weight", "F32", "[4097]", b},
                        {"transformer.wte.weight", "F32", "[4097]", b}}))
          .message(),
      "comes twice"));
  const std::string wrong = std::string(
      ReadWith(RawFile({{"wte.weight", "F32", "[17,241]", b}})).message());
  EXPECT_TRUE(absl::StrContains(wrong,
                                "wte.weight has shape [17, 241], but "
                                "this model needs [4097]"))
      << wrong;
}

TEST_F(CheckpointTest, RefusesAnotherModelsTensors) {
  ASSERT_TRUE(Write().ok());
  std::vector<float> parameters;
  layout_.mutable_tensors(0)->set_name("other");
  EXPECT_EQ(Read(parameters).code(), absl::StatusCode::kInvalidArgument);
  layout_.mutable_tensors(0)->set_name("a.weight");
  layout_.mutable_tensors(0)->set_shape(0, 5);
  layout_.mutable_tensors(0)->set_shape(1, 3);
  EXPECT_EQ(Read(parameters).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(CheckpointTest, AnExternalModelHasOnlyItsTensors) {
  model_ = v1::ModelSpec();
  model_.set_architecture("external");
  model_.set_sequence_length(16);
  ASSERT_TRUE(Write().ok());
  EXPECT_FALSE(fs::exists(directory_ + "/config.json"));
  EXPECT_FALSE(fs::exists(directory_ + "/generation_config.json"));
  EXPECT_TRUE(fs::exists(directory_ + "/manifest.json"));
  std::vector<float> parameters;
  ASSERT_TRUE(Read(parameters).ok());
  EXPECT_EQ(parameters, parameters_);
  const absl::Status status =
      ReadCheckpointModel(PosixFileSystem(), directory_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "an external model"))
      << status;
}

TEST_F(CheckpointTest, AScalarIsATensorOfOneElement) {
  layout_.mutable_tensors(0)->set_name("scale");
  layout_.mutable_tensors(0)->clear_shape();
  layout_.mutable_tensors(0)->add_shape(1);
  layout_.mutable_tensors()->DeleteSubrange(1, 1);
  parameters_ = {2.5f};
  ASSERT_TRUE(Write().ok());
  fs::remove(directory_ + "/manifest.json");
  const std::string value(reinterpret_cast<const char *>(parameters_.data()),
                          4);
  Put("model.safetensors", RawFile({{"scale", "F32", "[]", value}}));
  std::vector<float> parameters;
  const absl::Status read = Read(parameters);
  ASSERT_TRUE(read.ok()) << read;
  EXPECT_EQ(parameters, parameters_);
  layout_.mutable_tensors(0)->set_shape(0, 2);
  parameters_ = {2.5f, 1};
  EXPECT_TRUE(absl::StrContains(
      ReadWith(RawFile({{"scale", "F32", "[]", value}})).message(),
      "has shape []"));
}

TEST_F(CheckpointTest, SaysWhatIsMissing) {
  EXPECT_EQ(ReadCheckpointModel(PosixFileSystem(), directory_).status().code(),
            absl::StatusCode::kNotFound);
  std::vector<float> parameters;
  EXPECT_EQ(Read(parameters).code(), absl::StatusCode::kNotFound);
}

TEST_F(CheckpointTest, ConfigsOfOtherArchitecturesComeBack) {
  model_.set_architecture("mixtral");
  model_.set_expert_count(4);
  model_.set_experts_per_token(2);
  model_.set_router_loss_weight(0.01);
  model_.set_expert_capacity_factor(1.25);
  ASSERT_TRUE(Write().ok());
  const auto mixtral = ReadCheckpointModel(PosixFileSystem(), directory_);
  ASSERT_TRUE(mixtral.ok()) << mixtral.status();
  EXPECT_EQ(mixtral->SerializeAsString(), model_.SerializeAsString());

  v1::ModelSpec gpt2;
  gpt2.set_architecture("gpt2");
  gpt2.set_vocab_size(50257);
  gpt2.set_hidden_size(768);
  gpt2.set_intermediate_size(3072);
  gpt2.set_layer_count(12);
  gpt2.set_head_count(12);
  gpt2.set_kv_head_count(12);
  gpt2.set_sequence_length(1024);
  gpt2.set_rms_norm_eps(1e-5);
  gpt2.set_tie_embeddings(true);
  model_ = gpt2;
  ASSERT_TRUE(Write().ok());
  const auto read = ReadCheckpointModel(PosixFileSystem(), directory_);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->SerializeAsString(), gpt2.SerializeAsString());
  // As the first GPT-2's file: n_inner is absent.
  Put("config.json",
      R"({"model_type": "gpt2", "activation_function": "gelu_new",
          "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_inner": null,
          "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1,
          "layer_norm_epsilon": 1e-05, "vocab_size": 50257})");
  const auto first = ReadCheckpointModel(PosixFileSystem(), directory_);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->SerializeAsString(), gpt2.SerializeAsString());
}

TEST_F(CheckpointTest, ReadsTheRotaryBaseWhereverItStands) {
  ASSERT_TRUE(Write().ok());
  const auto theta = [&](const std::string &rope) {
    Put("config.json", absl::StrCat(R"({"model_type": "llama", "vocab_size": 8,
            "hidden_size": 4, "intermediate_size": 6, "num_hidden_layers": 1,
            "num_attention_heads": 2, "max_position_embeddings": 16, )",
                                    rope, "}"));
    const auto model = ReadCheckpointModel(PosixFileSystem(), directory_);
    return model.ok() ? model->rope_theta() : -1;
  };
  EXPECT_EQ(theta(R"("rope_theta": 5e5)"), 5e5);
  EXPECT_EQ(theta(R"("rope_parameters":
                     {"rope_theta": 7e5, "rope_type": "default"})"),
            7e5);
  EXPECT_EQ(theta(R"("rope_parameters":
                     {"rope_theta": 7e5, "rope_type": "llama3"})"),
            -1);
}

TEST_F(CheckpointTest, RefusesConfigsThatItCannotBuild) {
  ASSERT_TRUE(Write().ok());
  for (const std::string &bad :
       {std::string("{"), std::string("[]"),
        std::string("{\"model_type\": \"gpt2\"}"),
        std::string("{\"model_type\": \"opt\"}"),
        std::string("{\"model_type\": \"gpt2\", \"vocab_size\": 9, "
                    "\"n_embd\": 4, \"n_layer\": 1, \"n_head\": 2, "
                    "\"n_positions\": 8, \"tie_word_embeddings\": false}"),
        std::string("{\"model_type\": \"mixtral\"}"),
        std::string("{\"model_type\": \"llama\"}")}) {
    Put("config.json", bad);
    EXPECT_EQ(
        ReadCheckpointModel(PosixFileSystem(), directory_).status().code(),
        absl::StatusCode::kInvalidArgument);
  }
}

TEST(ModelConfigTest, AnyTextIsReadOrRefused) {
  const uint64_t seed = std::random_device()();
  std::cout << "seed " << seed << std::endl;
  Mutator any(seed);
  std::vector<std::string> seeds;
  for (const char *architecture : {"llama", "gpt2", "mixtral"}) {
    v1::ModelSpec model;
    model.set_architecture(architecture);
    model.set_vocab_size(9);
    model.set_hidden_size(8);
    model.set_intermediate_size(32);
    model.set_layer_count(2);
    model.set_head_count(2);
    model.set_kv_head_count(2);
    model.set_sequence_length(16);
    model.set_rope_theta(1e4);
    model.set_rms_norm_eps(1e-5);
    model.set_tie_embeddings(architecture == std::string("gpt2"));
    model.set_expert_count(4);
    model.set_experts_per_token(2);
    seeds.push_back(ModelConfigJson(model));
  }
  int read_count = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto model = ParseModelConfig(any.Changed(seeds));
    EXPECT_TRUE(model.ok() || absl::IsInvalidArgument(model.status()))
        << model.status();
    read_count += model.ok() ? 1 : 0;
  }
  EXPECT_GT(read_count, 100);
}

}  // namespace
}  // namespace atl::worker
