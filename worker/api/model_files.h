// Models as files: import, export, evaluation, generation. Functions block,
// print nothing; thread-safe for different directories.

#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "atoll/v1/run.pb.h"
#include "atoll/v1/run_service.pb.h"
#include "base/layout/layout.h"
#include "base/mirror/mirrored_checkpoint.h"
#include "server/client/parameter_client.h"
#include "server/client/transfer.h"
#include "worker/checkpoint/checkpoint.h"

namespace atl::worker {

// A complete, validated model.
struct ModelToImport {
  // Shape [layout.element_count()], in the model order.
  std::vector<float> parameters;
  // As InitSpec.fragment_digests.
  std::vector<std::string> fragment_digests;
  std::string parameters_sha256;
};

// Reads the model in `directory` for a run of `layout`. As ReadCheckpoint;
// INVALID_ARGUMENT: a value is not finite; the message names its tensor.
absl::StatusOr<ModelToImport> ReadModelToImport(const std::string& directory,
                                                const v1::Layout& layout,
                                                std::stop_token stop = {});

// Checks that `run` starts from `model`. FAILED_PRECONDITION: the run generates
// version 0 itself. ALREADY_EXISTS: it was created for another model.
absl::Status CheckImport(const ModelToImport& model, const v1::Run& run);

struct ImportModelOptions {
  std::stop_token stop;
  // Bytes that the shards have, and in all; about once a second, on the
  // caller's thread. May be empty.
  std::function<void(int64_t, int64_t)> on_progress;
  // CallBounds::on_waiting.
  std::function<void(const server::TransferWait&)> on_waiting;
};

// Pushes the parts of `model` that the shards of `run` lack as version 0.
// `client` must have the routes of all shards. As CheckImport; as
// ParameterClient::Import.
absl::Status ImportModel(const ModelToImport& model, const v1::Run& run,
                         server::ParameterClient& client,
                         const ImportModelOptions& options);

struct ExportedModel {
  std::string parameters_sha256;
  int64_t size_bytes = 0;
  int64_t received_bytes = 0;  // Payload pulled.
  TemplateUse template_use;    // Empty without a template.
};

struct ExportModelOptions {
  // Created; an export of the same run and commit is replaced.
  std::string directory;
  bool replaces_other = false;  // As CheckpointOptions.
  // Longest weight file; a larger model gets several files and an index.
  int64_t weight_file_bytes_max = kWeightFileBytesMax;
  std::string template_directory;  // As CheckpointOptions.
  // Longest time without progress: a slow link may take hours.
  absl::Duration idle_max = absl::Minutes(1);
  std::stop_token stop;
  // Bytes of parameters received, and in all; about once a second, on the
  // caller's thread. May be empty.
  std::function<void(int64_t, int64_t)> on_progress;
  // CallBounds::on_waiting.
  std::function<void(const server::TransferWait&)> on_waiting;
};

// Reads the pinned cut from its shards and writes it as a model directory
// (worker/checkpoint/checkpoint.h). `client` must be of the run and of
// pinned.run().spec().layout().
//
// As CheckpointWriter, whose checks come before the first byte is read; as
// ParameterClient::Pull; INVALID_ARGUMENT: the run's model cannot be written.
absl::StatusOr<ExportedModel> ExportModel(
    const v1::ExportCheckpointResponse& pinned, server::ParameterClient& client,
    const ExportModelOptions& options);

// The same of a mirrored checkpoint, without a cluster. `idle_max` and
// `on_waiting` are not used; received_bytes counts whole parts.
//
// As CheckpointWriter and MirroredCheckpoint::Read; INVALID_ARGUMENT: as above.
absl::StatusOr<ExportedModel> ExportModel(
    const mirror::MirroredCheckpoint& checkpoint,
    const ExportModelOptions& options);

// Writes `parameters`, in the model order of `spec.layout`, as a model of shape
// `spec.model` (worker/checkpoint/checkpoint.h). Returns their SHA-256.
//
// As RunLayout::Create and WriteCheckpoint; INVALID_ARGUMENT: the number of
// parameters is not the layout's.
absl::StatusOr<std::string> SaveModel(const v1::RunSpec& spec,
                                      absl::Span<const float> parameters,
                                      const std::string& directory);

// The shape of the model in `directory`, for the spec of a run that imports it.
// NOT_FOUND, INVALID_ARGUMENT: no model that this program can train.
absl::StatusOr<v1::ModelSpec> ReadModelSpec(const std::string& directory);

struct EvaluateOptions {
  std::string model_directory;
  std::string data_path;  // A file or a directory.
  v1::DataFormat format = v1::DATA_FORMAT_BYTES;
  int thread_count = 1;
  std::stop_token stop;
  // Tokens done and in all; may be empty.
  std::function<void(int64_t, int64_t)> on_progress;
};

struct EvaluateResult {
  double loss = 0;      // Mean, nats a token.
  int64_t tokens = 0;   // Targets of the mean.
};

// Loss of the model on windows [kT, kT + T] of the data, T the model's sequence
// length: inputs are the first T tokens, targets the last T. The tokens after
// the last window are dropped.
//
// NOT_FOUND: no model or data. INVALID_ARGUMENT: data shorter than a window; a
// token outside the vocabulary. DATA_LOSS: the model is damaged. CANCELLED.
absl::StatusOr<EvaluateResult> Evaluate(const EvaluateOptions& options);

struct GenerateOptions {
  std::string model_directory;
  std::string prompt;
  // A file for ReadTokenizer. Empty: the model directory's tokenizer.json;
  // without one, a model of 256 tokens uses bytes.
  std::string tokenizer;
  uint64_t seed = 0;
  double temperature = 0.8;     // <= 0: greedy.
  int64_t token_count_max = 200;
  int thread_count = 1;
  std::stop_token stop;
};

// The continuation of `prompt`. A pure function of the model, the prompt, the
// seed and the temperature. The model sees the last T tokens.
//
// INVALID_ARGUMENT: no tokenizer for a vocabulary that is not bytes, a
// tokenizer with more tokens than the model, or an option out of range. Others
// as Evaluate and ReadTokenizer.
absl::StatusOr<std::string> Generate(const GenerateOptions& options);

// The next three open the path that the spec names: it is the caller's own run
// file, not a peer's.

// SHA-256 (hex) of the whole data set, as in RunSpec.data.fingerprint.
// NOT_FOUND, INVALID_ARGUMENT: as DataSet::Open; messages give a remedy.
absl::StatusOr<std::string> DataFingerprint(const v1::DataSpec& data);

// Checks that every data shard of `spec` has a window. Returns the number of
// training tokens. As DataFingerprint; INVALID_ARGUMENT: a shard is too short.
absl::StatusOr<int64_t> CheckData(const v1::RunSpec& spec);

// Writes the held-out bytes to a new file `path`, for Evaluate; returns their
// number. INVALID_ARGUMENT: the format is not bytes, or nothing is held out.
absl::StatusOr<int64_t> WriteValidationFile(const v1::DataSpec& data,
                                            const std::string& path);

}  // namespace atl::worker
