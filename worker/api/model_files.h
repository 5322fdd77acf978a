// Models as files: export of a cut, evaluation, generation. Imports have
// import_model.h.
//
// Functions block, print nothing and are thread-safe for different directories.

#ifndef WORKER_API_MODEL_FILES_H_
#define WORKER_API_MODEL_FILES_H_

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "atoll/v1/run.pb.h"
#include "atoll/v1/run_service.pb.h"
#include "base/layout/layout.h"
#include "server/client/parameter_client.h"
#include "server/client/transfer.h"
#include "worker/checkpoint/checkpoint.h"

namespace atl::worker {

// --- Export ------------------------------------------------------------------

struct ExportedModel {
  std::string parameters_sha256;
  int64_t size_bytes = 0;      // Of all files.
  int64_t received_bytes = 0;  // Payload pulled.
};

struct ExportModelOptions {
  std::string directory;  // Made; replaced if it is an export already.
  // Longest weight file; more than fits goes into several with an index.
  int64_t weight_file_bytes_max = kWeightFileBytesMax;
  // Longest time in which nothing moves: a slow link may take hours.
  absl::Duration idle_max = absl::Minutes(1);
  std::stop_token stop;
  // Bytes of parameters that have come, and in all; about once a second, from
  // the caller's thread. May be empty.
  std::function<void(int64_t, int64_t)> on_progress;
  std::function<void(const server::Waiting&)> on_waiting;  // CallBounds'.
};

// Reads the pinned cut from its shards and writes it as a model directory
// (worker/checkpoint/checkpoint.h). `client` is of the run and of
// pinned.run().spec().layout().
//
// As WriteCheckpoint; as ParameterClient::Pull; INVALID_ARGUMENT: the run has no
// model that can be written.
absl::StatusOr<ExportedModel> ExportModel(
    const v1::ExportCheckpointResponse& pinned, server::ParameterClient& client,
    const ExportModelOptions& options);

// The shape of the model in `directory`: for the spec of a run that imports it.
//
// NOT_FOUND, INVALID_ARGUMENT: there is no model that this program can train.
absl::StatusOr<v1::ModelSpec> ReadModelSpec(const std::string& directory);

// --- Evaluation --------------------------------------------------------------

struct EvaluateOptions {
  std::string model_directory;
  std::string data_path;  // A file, or a directory.
  v1::DataFormat format = v1::DATA_FORMAT_BYTES;
  int thread_count = 1;
  std::stop_token stop;
  // Tokens done and in all; may be empty.
  std::function<void(int64_t, int64_t)> on_progress;
};

struct EvaluateResult {
  double loss = 0;      // Mean, nats a token.
  int64_t tokens = 0;   // Targets that the mean is over.
};

// Loss of the model on windows [kT, kT + T] of the data, T the model's sequence
// length: inputs the first T tokens, targets the last T; the rest is dropped.
//
// NOT_FOUND: no model or no data. INVALID_ARGUMENT: too little data for one
// window; a token is not in the vocabulary. DATA_LOSS: the model is damaged.
// CANCELLED: stopped.
absl::StatusOr<EvaluateResult> Evaluate(const EvaluateOptions& options);

// --- Generation --------------------------------------------------------------

struct GenerateOptions {
  std::string model_directory;
  std::string prompt;
  // A file, as ReadTokenizer takes it. Empty: the model directory's
  // tokenizer.json; without one, a model of 256 tokens has bytes.
  std::string tokenizer;
  uint64_t seed = 0;
  double temperature = 0.8;     // <= 0 takes the likeliest.
  int64_t token_count_max = 200;
  int thread_count = 1;
  std::stop_token stop;
  // Each token's bytes as they come; may be empty.
  std::function<void(absl::string_view)> on_text;
};

// The text that the model goes on with after `prompt`, without it. A pure
// function of the model, the prompt, the seed and the temperature. The model
// sees the last T tokens.
//
// INVALID_ARGUMENT: no tokenizer and a vocabulary that is not of bytes, a
// tokenizer with more tokens than the model, or an option is out of range.
// Others as Evaluate and ReadTokenizer.
absl::StatusOr<std::string> Generate(const GenerateOptions& options);

// --- Data --------------------------------------------------------------------

// SHA-256 (hex) of the data set, as RunSpec.data.fingerprint has it; reads it
// whole.
//
// NOT_FOUND, INVALID_ARGUMENT: as DataSet::Open; messages say what to do.
absl::StatusOr<std::string> DataFingerprint(const v1::DataSpec& data);

// Checks that a run of `spec` can read its data: that every data shard has a
// window. Returns the number of training tokens.
//
// As DataFingerprint; INVALID_ARGUMENT: a data shard is too short.
absl::StatusOr<int64_t> CheckData(const v1::RunSpec& spec);

// Writes the held-out tokens of a data set of bytes to a new file `path`, for
// Evaluate. Returns how many.
//
// INVALID_ARGUMENT: the format is not bytes, or nothing is held out.
absl::StatusOr<int64_t> WriteValidationFile(const v1::DataSpec& data,
                                            const std::string& path);

}  // namespace atl::worker

#endif  // WORKER_API_MODEL_FILES_H_
