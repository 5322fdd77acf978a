// A model on disk: a directory that Hugging Face's transformers can load. An
// external model (base/layout/external_model.h) has no config.json and no
// generation_config.json: its own program loads it by the names of its tensors.
//
//   model.safetensors       the parameters, f32, in the model order; or several
//                           files model-00001-of-0000N.safetensors ... with
//                           model.safetensors.index.json
//   config.json             the shape
//   generation_config.json
//   manifest.json           its source, and length and SHA-256 of each file
//
// With a template (model_template.h) the files are the template's, with the
// run's values, and manifest.json.
//
// Other files in the directory stay (export_directory.h). Reads and writes
// stream the parameters, without a second copy.
//
// Thread-safe for different directories.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "atoll/v1/run.pb.h"
#include "base/io/file_system.h"
#include "base/layout/layout.h"
#include "worker/checkpoint/checkpoint_manifest.h"
#include "worker/checkpoint/export_directory.h"
#include "worker/checkpoint/model_template.h"

namespace atl::worker {

struct CheckpointFiles {
  std::string parameters_sha256;  // As ParametersSha256.
  int64_t size_bytes = 0;         // Sum over all files.
  TemplateUse template_use;       // Empty without a template.
};

// Default longest weight file: 5 GB, as in other tools.
inline constexpr int64_t kWeightFileBytesMax = 5'000'000'000;

struct CheckpointOptions {
  // Limit for a weight file with more than one tensor; > 0.
  int64_t weight_file_bytes_max = kWeightFileBytesMax;
  bool replaces_other = false;  // As ExportDirectoryOptions.
  std::string template_directory;  // Empty: no template.
  std::stop_token stop = {};
};

// Writes one model. Thread-compatible.
class CheckpointWriter {
 public:
  // Takes the directory. `file_system` must outlive the writer. As
  // ExportDirectory::Open; errors of RunLayout::Create, and of
  // ModelTemplate::Open.
  static absl::StatusOr<std::unique_ptr<CheckpointWriter>> Open(
      FileSystem &file_system, const std::string &directory,
      const v1::ModelSpec &model, const v1::Layout &layout,
      const CheckpointSource &source, const CheckpointOptions &options);

  // Writes `parameters`, shape [layout.element_count()], in the model order, as
  // a model of shape `model`. Called once.
  //
  // RESOURCE_EXHAUSTED: the disk is full; CANCELLED: stopped; neither leaves
  // files behind. ALREADY_EXISTS: another program put a file in the way.
  // Others: the file system's, and those of ModelTemplate::Write.
  absl::StatusOr<CheckpointFiles> Write(absl::Span<const float> parameters);

 private:
  // Tensors [begin, end) of the layout, in one weight file.
  struct WeightRange {
    std::string name;
    int begin = 0;
    int end = 0;
    int64_t element_count = 0;
  };

  CheckpointWriter(const v1::ModelSpec &model, const v1::Layout &layout,
                   const CheckpointSource &source,
                   const CheckpointOptions &options, RunLayout run_layout)
      : model_(model),
        layout_(layout),
        options_(options),
        run_layout_(std::move(run_layout)) {
    manifest_.source = source;
  }

  static std::vector<WeightRange> CutWeights(const v1::Layout &layout,
                                             int64_t file_bytes_max);
  absl::Status WriteAll(absl::Span<const float> parameters);
  absl::Status WriteWeights(absl::Span<const float> parameters);
  absl::Status WriteText(const std::string &name, absl::string_view text);
  // Writes a file of the bytes that `write` appends.
  using Append = ModelTemplate::Append;
  absl::Status WriteFile(
      const std::string &name,
      const std::function<absl::Status(const Append &)> &write);

  const v1::ModelSpec model_;
  const v1::Layout layout_;
  const CheckpointOptions options_;
  const RunLayout run_layout_;
  std::vector<WeightRange> ranges_;
  std::unique_ptr<ModelTemplate> template_;  // Null: none.
  std::unique_ptr<ExportDirectory> directory_;
  CheckpointManifest manifest_;
};

// CheckpointWriter's Open and Write.
absl::StatusOr<CheckpointFiles> WriteCheckpoint(
    FileSystem &file_system, const std::string &directory,
    const v1::ModelSpec &model, const v1::Layout &layout,
    absl::Span<const float> parameters, const CheckpointSource &source,
    const CheckpointOptions &options = {});

// The shape of the model in `directory`. NOT_FOUND: no config.json.
// FAILED_PRECONDITION: an export into it did not finish. INVALID_ARGUMENT: as
// ParseModelConfig, or WriteCheckpoint wrote an external model.
absl::StatusOr<v1::ModelSpec> ReadCheckpointModel(FileSystem &file_system,
                                                  const std::string &directory);

// Reads the parameters into `parameters`, shape [layout.element_count()], in
// the model order, from one safetensors file or several with an index. Widens
// BF16 and F16. Checks names, shapes and dtypes before it reads values, and
// SHA-256 if there is a manifest. Names of a GPT-2 may lack "transformer.".
// Ignores buffers, and a head that the layout ties to the embedding. A tensor
// of shape [] may stand for shape [1].
//
// NOT_FOUND: no weights, or a file of them is missing. FAILED_PRECONDITION: an
// export into the directory did not finish. INVALID_ARGUMENT: other
// tensors than the layout's, or an unsupported dtype. DATA_LOSS: a file is
// truncated or damaged. Messages name the file, the tensor and a remedy.
// CANCELLED: stopped.
absl::Status ReadCheckpoint(FileSystem &file_system,
                            const std::string &directory,
                            const v1::Layout &layout,
                            absl::Span<float> parameters,
                            std::stop_token stop = {});

}  // namespace atl::worker
