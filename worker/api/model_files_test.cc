#include "worker/api/model_files.h"

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/io/posix_file_system.h"
#include "base/layout/digest.h"
#include "base/layout/init_generator.h"
#include "base/mirror/mirror_manifest.h"
#include "base/mirror/mirrored_checkpoint.h"
#include "base/mirror/testing/small_checkpoint.h"
#include "base/object_store/file_store.h"
#include "gtest/gtest.h"
#include "server/client/testing/fake_parameter_client.h"
#include "worker/api/train_alone.h"
#include "worker/island/testing/tiny_run.h"

namespace atl::worker {
namespace {

// A trained model of two fragments, as its run would pin it.
class ModelFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = absl::StrCat(testing::TempDir(), "/model_files_", ::getpid());
    std::filesystem::create_directories(root_);
    directory_ = root_ + "/model";
    TinyRunOptions tiny;
    tiny.fragment_count = 2;
    tiny.inner_step_count = 20;
    tiny.data_path = WriteTinyText(root_, 5, 20000);
    spec_ = TinyRun(tiny);
    TrainAloneOptions alone;
    alone.spec = spec_;
    trained_ = *TrainAlone(alone);

    *pinned_.mutable_run()->mutable_spec() = spec_;
    pinned_.mutable_run()->set_run_id("run");
    pinned_.mutable_pin()->set_commit_seq(6);
    const RunLayout layout = *RunLayout::Create(spec_.layout());
    for (int32_t f = 0; f < 2; ++f) {
      std::vector<float> elements(layout.fragment_element_count(f));
      for (const int32_t index : layout.fragment_tensors(f)) {
        const TensorPlace& place = layout.tensors()[index];
        std::copy_n(trained_.parameters.begin() + place.model_offset,
                    place.element_count,
                    elements.begin() + place.fragment_offset);
      }
      v1::FragmentVersion& at = *pinned_.mutable_pin()->add_cut();
      at.set_fragment(f);
      at.set_version(3);
      *at.mutable_digest() =
          RangeDigest(layout, f, {0, layout.fragment_block_count(f)}, elements)
              .ToProto();
      client_.SetVersion(f, 3, elements);
    }
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  absl::StatusOr<ExportedModel> Export() {
    ExportModelOptions options;
    options.directory = directory_;
    return ExportModel(pinned_, client_, options);
  }

  std::string root_, directory_;
  v1::RunSpec spec_;
  TrainAloneResult trained_;
  v1::ExportCheckpointResponse pinned_;
  server::FakeParameterClient client_;
};

TEST_F(ModelFilesTest, AnExportHoldsTheCutsParameters) {
  const auto exported = Export();
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(exported->parameters_sha256, trained_.parameters_sha256);
  for (const char* name : {"model.safetensors", "config.json",
                           "generation_config.json", "manifest.json"}) {
    EXPECT_TRUE(std::filesystem::exists(directory_ + "/" + name)) << name;
  }
}

// The bytes of each file in `directory`.
std::map<std::string, std::string> ReadFiles(const std::string& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    std::ifstream file(entry.path(), std::ios::binary);
    files[entry.path().filename()] =
        std::string(std::istreambuf_iterator<char>(file), {});
  }
  return files;
}

TEST_F(ModelFilesTest, AMirroredCheckpointIsExportedAsTheSameFiles) {
  const RunLayout layout = *RunLayout::Create(spec_.layout());
  storage::v1::MirrorManifest manifest = mirror::SmallManifest(layout);
  *manifest.mutable_spec() = spec_;
  const auto store =
      MakeFileStore(root_ + "/mirror", PosixFileSystem());
  const absl::Status put = mirror::PutSmallCheckpoint(*store, manifest);
  ASSERT_TRUE(put.ok()) << put;
  const auto opened = mirror::MirroredCheckpoint::Open(
      *store, mirror::GetPlace(manifest));
  ASSERT_TRUE(opened.ok()) << opened.status();
  ExportModelOptions options;
  options.directory = root_ + "/mirrored";
  const auto mirrored = ExportModel(**opened, options);
  ASSERT_TRUE(mirrored.ok()) << mirrored.status();

  pinned_.mutable_run()->set_run_uid(manifest.run_uid());
  pinned_.mutable_run()->set_run_epoch(manifest.run_epoch());
  *pinned_.mutable_pin() = manifest.pin();
  for (int32_t f = 0; f < layout.fragment_count(); ++f) {
    const mirror::PartIdentity whole{.shard_count = 1, .fragment = f};
    client_.SetVersion(f, manifest.pin().cut(f).version(),
                       mirror::SmallElements(layout, whole, 0));
  }
  const auto exported = Export();
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(mirrored->parameters_sha256, exported->parameters_sha256);
  EXPECT_EQ(ReadFiles(options.directory), ReadFiles(directory_));
}

TEST_F(ModelFilesTest, AStoppedExportOfAMirrorLeavesNothing) {
  const RunLayout layout = *RunLayout::Create(spec_.layout());
  storage::v1::MirrorManifest manifest = mirror::SmallManifest(layout);
  *manifest.mutable_spec() = spec_;
  const auto store = MakeFileStore(root_ + "/mirror", PosixFileSystem());
  ASSERT_TRUE(mirror::PutSmallCheckpoint(*store, manifest).ok());
  const auto opened = mirror::MirroredCheckpoint::Open(
      *store, mirror::GetPlace(manifest));
  ASSERT_TRUE(opened.ok()) << opened.status();
  std::stop_source stop;
  ExportModelOptions options;
  options.directory = root_ + "/mirrored";
  options.stop = stop.get_token();
  options.on_progress = [&](int64_t, int64_t) { stop.request_stop(); };
  EXPECT_EQ(ExportModel(**opened, options).status().code(),
            absl::StatusCode::kCancelled);
  EXPECT_FALSE(std::filesystem::exists(options.directory));
}

TEST_F(ModelFilesTest, EvaluatesWholeWindowsOfTheFile) {
  ASSERT_TRUE(Export().ok());
  EvaluateOptions options;
  options.model_directory = directory_;
  options.data_path = root_ + "/validation";
  const auto count = WriteValidationFile(spec_.data(), options.data_path);
  ASSERT_TRUE(count.ok()) << count.status();
  EXPECT_EQ(*count, 2000);
  const auto result = Evaluate(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->tokens, 1999 / 16 * 16);
  EXPECT_LT(result->loss, std::log(256.0) - 1);
  EXPECT_NEAR(result->loss, trained_.validation_loss, 0.2);
}

TEST_F(ModelFilesTest, EvaluationIsTheMeanOverWindows) {
  ASSERT_TRUE(Export().ok());
  // Two windows of T = 16 and a rest, against each window alone.
  const std::string text = "island server outer inner round merge push pull";
  const auto loss_of = [&](const std::string& bytes) {
    EvaluateOptions options;
    options.model_directory = directory_;
    options.data_path = root_ + "/data";
    std::ofstream(options.data_path) << bytes;
    return *Evaluate(options);
  };
  const EvaluateResult both = loss_of(text.substr(0, 40));
  EXPECT_EQ(both.tokens, 32);
  const double first = loss_of(text.substr(0, 17)).loss;
  const double second = loss_of(text.substr(16, 17)).loss;
  EXPECT_NEAR(both.loss, (first + second) / 2, 1e-5);
}

TEST_F(ModelFilesTest, SaysThatThereIsTooLittleData) {
  ASSERT_TRUE(Export().ok());
  EvaluateOptions options;
  options.model_directory = directory_;
  options.data_path = root_ + "/short";
  std::ofstream(options.data_path) << "too short";
  EXPECT_EQ(Evaluate(options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ModelFilesTest, GeneratesTheSameTextForTheSameSeed) {
  ASSERT_TRUE(Export().ok());
  GenerateOptions options;
  options.model_directory = directory_;
  options.prompt = "island ";
  options.seed = 9;
  options.token_count_max = 40;
  const auto text = Generate(options);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->size(), 40);
  EXPECT_EQ(*Generate(options), *text);
  options.seed = 10;
  EXPECT_NE(*Generate(options), *text);
  options.prompt = "";
  EXPECT_TRUE(Generate(options).ok());
}

class ImportTest : public ModelFilesTest {
 protected:
  void SetUp() override {
    ModelFilesTest::SetUp();
    ASSERT_TRUE(Export().ok());
    run_ = pinned_.run();
    v1::InitSpec* init = run_.mutable_spec()->mutable_init();
    init->set_import(true);
    for (const v1::FragmentVersion& at : pinned_.pin().cut()) {
      init->add_fragment_digests(Digest128::FromProto(at.digest()).ToHex());
    }
  }
  absl::StatusOr<ModelToImport> Read() {
    return ReadModelToImport(directory_, spec_.layout());
  }
  // Changes the last value of the weights; the file ends with a whole tensor.
  void PutLastValue(float value) {
    std::fstream file(directory_ + "/model.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-4, std::ios::end);
    file.write(reinterpret_cast<const char*>(&value), 4);
    file.close();
    std::filesystem::remove(directory_ + "/manifest.json");
  }

  v1::Run run_;
};

TEST_F(ImportTest, GivesBackAnExport) {
  const auto model = Read();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->parameters_sha256, trained_.parameters_sha256);
  server::FakeParameterClient client;
  ImportModelOptions options;
  std::vector<std::pair<int64_t, int64_t>> progress;
  options.on_progress = [&](int64_t done, int64_t total) {
    progress.emplace_back(done, total);
  };
  const absl::Status status = ImportModel(*model, run_, client, options);
  ASSERT_TRUE(status.ok()) << status;
  const auto imported = client.imported();
  ASSERT_EQ(imported.size(), 2);
  const RunLayout layout = *RunLayout::Create(spec_.layout());
  for (const auto& [f, elements] : imported) {
    EXPECT_EQ(RangeDigest(layout, f, {0, layout.fragment_block_count(f)},
                          elements)
                  .ToHex(),
              run_.spec().init().fragment_digests(f));
  }
  ASSERT_FALSE(progress.empty());
  EXPECT_EQ(progress.back().first, layout.element_count() * 4);
  EXPECT_EQ(progress.back().second, layout.element_count() * 4);
}

TEST_F(ImportTest, RefusesARunThatMakesItsOwn) {
  EXPECT_EQ(ImportModel(*Read(), pinned_.run(), client_, {}).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(ImportTest, RefusesAnotherModelThanTheRunsBeforeAnythingIsSent) {
  PutLastValue(1.5f);
  const auto model = Read();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(CheckImport(*model, run_).code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ImportModel(*model, run_, client_, {}).code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(client_.imported().empty());
}

TEST_F(ImportTest, NamesTheTensorOfAValueThatIsNotFinite) {
  PutLastValue(std::nanf(""));
  const absl::Status status = Read().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const std::string& name =
      spec_.layout().tensors(spec_.layout().tensors_size() - 1).name();
  EXPECT_NE(status.message().find(name), std::string::npos) << status;
  EXPECT_NE(status.message().find("NaN"), std::string::npos) << status;
}

TEST_F(ImportTest, AnExternalModelGoesOutAndInByTheNamesOfItsTensors) {
  v1::RunSpec& spec = *pinned_.mutable_run()->mutable_spec();
  spec.mutable_model()->Clear();
  spec.mutable_model()->set_architecture("external");
  for (v1::TensorSpec& tensor : *spec.mutable_layout()->mutable_tensors()) {
    tensor.set_name("own." + tensor.name());
  }
  const auto exported = Export();
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(exported->parameters_sha256, trained_.parameters_sha256);
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/config.json"));
  const auto model = ReadModelToImport(directory_, spec.layout());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->parameters, trained_.parameters);
  EXPECT_TRUE(CheckImport(*model, run_).ok());
  EXPECT_EQ(Read().status().code(), absl::StatusCode::kInvalidArgument);
  GenerateOptions options;
  options.model_directory = directory_;
  EXPECT_NE(Generate(options).status().message().find("external model"),
            std::string::npos);
  EvaluateOptions evaluate;
  evaluate.model_directory = directory_;
  EXPECT_NE(Evaluate(evaluate).status().message().find("external model"),
            std::string::npos);
}

TEST_F(ModelFilesTest, ADamagedModelIsAnError) {
  ASSERT_TRUE(Export().ok());
  const std::string path = directory_ + "/model.safetensors";
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 4);
  GenerateOptions options;
  options.model_directory = directory_;
  EXPECT_EQ(Generate(options).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(ModelFilesTest, ChecksDataBeforeARunIsMade) {
  const auto tokens = CheckData(spec_);
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_EQ(*tokens, 18000);
  EXPECT_EQ(DataFingerprint(spec_.data())->size(), 64);
  spec_.mutable_data()->set_data_shard_count(5000);
  EXPECT_EQ(CheckData(spec_).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace atl::worker
