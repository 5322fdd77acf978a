#include "worker/api/model_files.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "base/io/files.h"
#include "base/io/own_file.h"
#include "base/io/posix_file_system.h"
#include "base/layout/digest.h"
#include "base/layout/external_model.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "worker/api/tokenize.h"
#include "worker/data/batch_reader.h"
#include "worker/data/data_set.h"
#include "worker/engine/sampling.h"
#include "worker/engine/trainer.h"
#include "worker/planner/model_spec.h"

namespace atl::worker {
namespace {

constexpr int64_t kEvaluationBatch = 8;
constexpr int32_t kByteVocabulary = 256;

// The elements of one fragment in its flat order.
std::vector<float> Gather(const RunLayout& layout, int32_t fragment,
                          absl::Span<const float> model) {
  std::vector<float> elements(layout.fragment_element_count(fragment));
  for (const int32_t index : layout.fragment_tensors(fragment)) {
    const TensorPlace& place = layout.tensors()[index];
    std::copy_n(model.begin() + place.model_offset, place.element_count,
                elements.begin() + place.fragment_offset);
  }
  return elements;
}

// Copies a fragment's elements to their places in the model order.
void Scatter(const RunLayout& layout, int32_t fragment,
             absl::Span<const float> elements, absl::Span<float> model) {
  for (const int32_t index : layout.fragment_tensors(fragment)) {
    const TensorPlace& place = layout.tensors()[index];
    std::copy_n(elements.begin() + place.fragment_offset, place.element_count,
                model.begin() + place.model_offset);
  }
}

absl::Status CheckFinite(const std::string& directory, const RunLayout& layout,
                         absl::Span<const float> model) {
  for (const TensorPlace& place : layout.tensors()) {
    const auto values = model.subspan(place.model_offset, place.element_count);
    const auto bad = std::find_if_not(values.begin(), values.end(),
                                      [](float x) { return std::isfinite(x); });
    if (bad == values.end()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        directory, ": tensor ", place.name, " has a value that is ",
        std::isnan(*bad) ? "NaN" : "infinite", " (element ",
        bad - values.begin(),
        "): no run can start from it; give a model whose values are finite"));
  }
  return absl::OkStatus();
}

CheckpointSource MakeSource(const std::string& run_id,
                            const std::string& run_uid, int64_t run_epoch,
                            const v1::Pin& pin) {
  return {.run_id = run_id,
          .run_uid = run_uid,
          .run_epoch = run_epoch,
          .commit_seq = pin.commit_seq(),
          .version = pin.cut_size() > 0 ? pin.cut(0).version() : 0};
}

// Takes the directory, lets `read` fill the parameters, in the model order, and
// writes the files. Does not set received_bytes.
absl::StatusOr<ExportedModel> WriteExport(
    const v1::RunSpec& spec, const RunLayout& layout,
    const CheckpointSource& source, const ExportModelOptions& options,
    absl::FunctionRef<absl::Status(absl::Span<float>)> read) {
  if (!IsExternal(spec.model())) {
    RETURN_IF_ERROR(MakeTrainerOptions(spec, 1).status());
  }
  CheckpointOptions write;
  write.weight_file_bytes_max = options.weight_file_bytes_max;
  write.replaces_other = options.replaces_other;
  write.template_directory = options.template_directory;
  write.stop = options.stop;
  ASSIGN_OR_RETURN(
      const std::unique_ptr<CheckpointWriter> writer,
      CheckpointWriter::Open(PosixFileSystem(), options.directory, spec.model(),
                             spec.layout(), source, write));
  std::vector<float> parameters(layout.element_count());
  RETURN_IF_ERROR(read(absl::MakeSpan(parameters)));
  ASSIGN_OR_RETURN(const CheckpointFiles files, writer->Write(parameters));
  ExportedModel exported;
  exported.parameters_sha256 = files.parameters_sha256;
  exported.size_bytes = files.size_bytes;
  exported.template_use = files.template_use;
  return exported;
}

// Pulls the fragments of a pinned cut.
absl::Status PullCut(const RunLayout& layout, const v1::Pin& pin,
                     server::ParameterClient& client,
                     const ExportModelOptions& options,
                     absl::Span<float> parameters) {
  if (pin.cut_size() != layout.fragment_count()) {
    return absl::InternalError("the pinned cut lacks a fragment");
  }
  std::vector<float> buffer;
  const auto total = static_cast<int64_t>(parameters.size() * sizeof(float));
  int64_t done = 0;
  for (const v1::FragmentVersion& at : pin.cut()) {
    if (at.fragment() < 0 || at.fragment() >= layout.fragment_count()) {
      return absl::InternalError("the pinned cut names an unknown fragment");
    }
    // A single fragment has the model's order: no second copy.
    const bool whole = layout.fragment_count() == 1;
    if (!whole) buffer.resize(layout.fragment_element_count(at.fragment()));
    const absl::Span<float> out = whole ? parameters : absl::MakeSpan(buffer);
    server::CallBounds bounds;
    bounds.idle_max = options.idle_max;
    bounds.stop = options.stop;
    bounds.on_waiting = options.on_waiting;
    if (options.on_progress) {
      bounds.on_progress = [&](int64_t bytes) {
        options.on_progress(std::min(done + bytes, total), total);
      };
    }
    const server::TransferOutcome outcome =
        client.Pull(at.fragment(), at.version(),
                    Digest128::FromProto(at.digest()), out, bounds);
    RETURN_IF_ERROR(Annotate(outcome.status,
                             absl::StrCat("reading fragment ", at.fragment(),
                                          " at version ", at.version())));
    if (!whole) Scatter(layout, at.fragment(), buffer, parameters);
    done += static_cast<int64_t>(out.size() * sizeof(float));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<engine::Trainer>> LoadModel(
    const std::string& directory, int thread_count, v1::ModelSpec& model) {
  ASSIGN_OR_RETURN(model, ReadCheckpointModel(PosixFileSystem(), directory));
  ASSIGN_OR_RETURN(const v1::Layout layout, BuildLayout(model));
  engine::TrainerOptions options;
  ASSIGN_OR_RETURN(options.model, MakeModelConfig(model));
  // No optimizer state is needed.
  options.optimizer.kind = engine::OptimizerKind::kSgd;
  options.batch_size = kEvaluationBatch;
  options.sequence_length = model.sequence_length();
  options.thread_count = thread_count;
  ASSIGN_OR_RETURN(std::unique_ptr<engine::Trainer> trainer,
                   engine::Trainer::Create(options));
  RETURN_IF_ERROR(ReadCheckpoint(PosixFileSystem(), directory, layout,
                                 trainer->parameters()));
  return trainer;
}

absl::Status CheckTokens(absl::Span<const int32_t> tokens, int32_t vocab_size) {
  for (const int32_t token : tokens) {
    if (token >= vocab_size) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the data has token ", token, ", but the model's vocabulary ends at ",
          vocab_size - 1, ": give data of the model's tokens"));
    }
  }
  return absl::OkStatus();
}

// The tokenizer of `options`, or the model's. nullopt: tokens are bytes.
absl::StatusOr<std::optional<Tokenizer>> FindTokenizer(
    const GenerateOptions& options, int32_t vocab_size) {
  std::string path = options.tokenizer;
  if (path.empty()) {
    ASSIGN_OR_RETURN(const std::vector<std::string> names,
                     PosixFileSystem().List(options.model_directory));
    if (absl::c_linear_search(names, "tokenizer.json")) {
      path = options.model_directory + "/tokenizer.json";
    }
  }
  if (path.empty()) {
    if (vocab_size == kByteVocabulary) return std::nullopt;
    return absl::InvalidArgumentError(absl::StrCat(
        "the model has ", vocab_size,
        " tokens, which are not bytes (256): give the tokenizer that its data "
        "was made with, or put its tokenizer.json into the model's directory"));
  }
  ASSIGN_OR_RETURN(Tokenizer tokenizer, ReadTokenizer(path));
  if (tokenizer.vocab_size() > vocab_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " has ", tokenizer.vocab_size(), " tokens, more than the model (",
        vocab_size, "): give the tokenizer that its data was made with"));
  }
  return tokenizer;
}

std::vector<int32_t> ToTokens(const std::optional<Tokenizer>& tokenizer,
                              absl::string_view text) {
  if (tokenizer.has_value()) return tokenizer->Encode(text);
  std::vector<int32_t> tokens;
  for (const char c : text) tokens.push_back(static_cast<uint8_t>(c));
  return tokens;
}

}  // namespace

absl::StatusOr<ModelToImport> ReadModelToImport(const std::string& directory,
                                                const v1::Layout& layout,
                                                std::stop_token stop) {
  ASSIGN_OR_RETURN(const RunLayout run_layout, RunLayout::Create(layout));
  ModelToImport model;
  model.parameters.resize(run_layout.element_count());
  RETURN_IF_ERROR(ReadCheckpoint(PosixFileSystem(), directory, layout,
                                 absl::MakeSpan(model.parameters), stop));
  RETURN_IF_ERROR(CheckFinite(directory, run_layout, model.parameters));
  for (int32_t f = 0; f < run_layout.fragment_count(); ++f) {
    if (stop.stop_requested()) return absl::CancelledError("stopped");
    const std::vector<float> elements = Gather(run_layout, f, model.parameters);
    model.fragment_digests.push_back(
        RangeDigest(run_layout, f, {0, run_layout.fragment_block_count(f)},
                    elements)
            .ToHex());
  }
  model.parameters_sha256 = ParametersSha256(run_layout, model.parameters);
  return model;
}

absl::Status CheckImport(const ModelToImport& model, const v1::Run& run) {
  const v1::InitSpec& init = run.spec().init();
  if (!init.import()) {
    return absl::FailedPreconditionError(
        absl::StrCat("run ", run.run_id(),
                     " generates version 0 itself: create a run with "
                     "init.model in its run file"));
  }
  if (!std::equal(init.fragment_digests().begin(),
                  init.fragment_digests().end(), model.fragment_digests.begin(),
                  model.fragment_digests.end())) {
    return absl::AlreadyExistsError(
        absl::StrCat("run ", run.run_id(),
                     " was created for another model than this one: give that "
                     "model, or create another run for this one"));
  }
  return absl::OkStatus();
}

absl::Status ImportModel(const ModelToImport& model, const v1::Run& run,
                         server::ParameterClient& client,
                         const ImportModelOptions& options) {
  RETURN_IF_ERROR(CheckImport(model, run));
  ASSIGN_OR_RETURN(const RunLayout layout,
                   RunLayout::Create(run.spec().layout()));
  constexpr int64_t kElementBytes = sizeof(float);
  const int64_t total = layout.element_count() * kElementBytes;
  int64_t done = 0;
  for (int32_t f = 0; f < layout.fragment_count(); ++f) {
    const std::vector<float> elements = Gather(layout, f, model.parameters);
    server::CallBounds bounds;
    bounds.stop = options.stop;
    bounds.on_waiting = options.on_waiting;
    if (options.on_progress) {
      bounds.on_progress = [&](int64_t bytes) {
        options.on_progress(done + bytes, total);
      };
    }
    RETURN_IF_ERROR(Annotate(client.Import(f, elements, bounds).status,
                             absl::StrCat("pushing fragment ", f)));
    done += static_cast<int64_t>(elements.size()) * kElementBytes;
  }
  return absl::OkStatus();
}

absl::StatusOr<ExportedModel> ExportModel(
    const v1::ExportCheckpointResponse& pinned, server::ParameterClient& client,
    const ExportModelOptions& options) {
  const v1::Run& run = pinned.run();
  ASSIGN_OR_RETURN(const RunLayout layout,
                   RunLayout::Create(run.spec().layout()));
  ASSIGN_OR_RETURN(
      ExportedModel exported,
      WriteExport(run.spec(), layout,
                  MakeSource(run.run_id(), run.run_uid(), run.run_epoch(),
                             pinned.pin()),
                  options, [&](absl::Span<float> parameters) {
                    client.SetRoutes(server::ToRoutes(pinned));
                    return PullCut(layout, pinned.pin(), client, options,
                                   parameters);
                  }));
  exported.received_bytes = client.counters().received_payload_bytes;
  return exported;
}

absl::StatusOr<ExportedModel> ExportModel(
    const mirror::MirroredCheckpoint& checkpoint,
    const ExportModelOptions& options) {
  const storage::v1::MirrorManifest& from = checkpoint.manifest();
  const int64_t total = checkpoint.PartBytes();
  const auto on_bytes = [&](int64_t done) {
    if (options.stop.stop_requested()) {
      return absl::CancelledError("the export was stopped");
    }
    if (options.on_progress) options.on_progress(done, total);
    return absl::OkStatus();
  };
  ASSIGN_OR_RETURN(
      ExportedModel exported,
      WriteExport(from.spec(), checkpoint.layout(),
                  MakeSource(from.run_id(), from.run_uid(), from.run_epoch(),
                             from.pin()),
                  options, [&](absl::Span<float> parameters) {
                    return checkpoint.Read(parameters, on_bytes);
                  }));
  exported.received_bytes = total;
  return exported;
}

absl::StatusOr<std::string> SaveModel(const v1::RunSpec& spec,
                                      absl::Span<const float> parameters,
                                      const std::string& directory) {
  ASSIGN_OR_RETURN(const RunLayout layout, RunLayout::Create(spec.layout()));
  if (static_cast<int64_t>(parameters.size()) != layout.element_count()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", parameters.size(), " parameters, not ",
                     layout.element_count()));
  }
  ASSIGN_OR_RETURN(
      const CheckpointFiles files,
      WriteCheckpoint(PosixFileSystem(), directory, spec.model(), spec.layout(),
                      parameters, CheckpointSource{}));
  return files.parameters_sha256;
}

absl::StatusOr<v1::ModelSpec> ReadModelSpec(const std::string& directory) {
  return ReadCheckpointModel(PosixFileSystem(), directory);
}

absl::StatusOr<EvaluateResult> Evaluate(const EvaluateOptions& options) {
  v1::ModelSpec model;
  ASSIGN_OR_RETURN(
      const std::unique_ptr<engine::Trainer> trainer,
      LoadModel(options.model_directory, options.thread_count, model));
  v1::DataSpec spec;
  spec.set_format(options.format);
  spec.set_data_shard_count(1);
  ASSIGN_OR_RETURN(const std::unique_ptr<DataSet> data,
                   DataSet::Open(spec, options.data_path));
  const int64_t length = model.sequence_length();
  const int64_t window_count = (data->token_count() - 1) / length;
  if (window_count < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.data_path, " has ", data->token_count(),
                     " tokens, but one window of the model takes ", length + 1,
                     ": give more data"));
  }
  EvaluateResult result;
  double sum = 0;
  for (int64_t k = 0; k < window_count; k += kEvaluationBatch) {
    if (options.stop.stop_requested()) {
      return absl::CancelledError("evaluation was stopped");
    }
    const int64_t n = std::min(kEvaluationBatch, window_count - k);
    std::vector<int32_t> tokens(n * length + 1);
    RETURN_IF_ERROR(data->Read(k * length, absl::MakeSpan(tokens)));
    RETURN_IF_ERROR(CheckTokens(tokens, model.vocab_size()));
    const absl::Span<const int32_t> all = tokens;
    ASSIGN_OR_RETURN(const double loss,
                     trainer->EvaluateLoss(all.subspan(0, n * length),
                                           all.subspan(1, n * length)));
    sum += loss * static_cast<double>(n * length);
    result.tokens += n * length;
    if (options.on_progress) {
      options.on_progress(result.tokens, window_count * length);
    }
  }
  result.loss = sum / static_cast<double>(result.tokens);
  return result;
}

absl::StatusOr<std::string> Generate(const GenerateOptions& options) {
  if (options.token_count_max < 0) {
    return absl::InvalidArgumentError("the number of tokens is negative");
  }
  v1::ModelSpec model;
  ASSIGN_OR_RETURN(
      const std::unique_ptr<engine::Trainer> trainer,
      LoadModel(options.model_directory, options.thread_count, model));
  ASSIGN_OR_RETURN(const std::optional<Tokenizer> tokenizer,
                   FindTokenizer(options, model.vocab_size()));
  std::vector<int32_t> tokens = ToTokens(tokenizer, options.prompt);
  // A model needs at least one token.
  if (tokens.empty()) tokens = ToTokens(tokenizer, "\n");
  std::string text;
  for (int64_t i = 0; i < options.token_count_max; ++i) {
    if (options.stop.stop_requested()) {
      return absl::CancelledError("generation was stopped");
    }
    const int64_t count = std::min<int64_t>(static_cast<int64_t>(tokens.size()),
                                            model.sequence_length());
    ASSIGN_OR_RETURN(
        const absl::Span<const float> logits,
        trainer->NextTokenLogits(
            absl::MakeConstSpan(tokens).subspan(tokens.size() - count)));
    const int32_t token = engine::SampleToken(
        logits, options.temperature, engine::CounterUniform(options.seed, i));
    tokens.push_back(token);
    text += tokenizer.has_value() ? tokenizer->Decode({token})
                                  : std::string(1, static_cast<char>(token));
  }
  return text;
}

absl::StatusOr<std::string> DataFingerprint(const v1::DataSpec& data) {
  v1::DataSpec spec = data;
  if (spec.data_shard_count() < 1) spec.set_data_shard_count(1);
  ASSIGN_OR_RETURN(const std::unique_ptr<DataSet> data_set,
                   DataSet::Open(spec, data.path()));
  return data_set->Fingerprint();
}

absl::StatusOr<int64_t> CheckData(const v1::RunSpec& spec) {
  ASSIGN_OR_RETURN(std::unique_ptr<DataSet> data,
                   DataSet::Open(spec.data(), spec.data().path()));
  ASSIGN_OR_RETURN(const BatchReader reader,
                   BatchReader::Create(std::move(data), spec));
  return reader.data_set().validation().begin;
}

absl::StatusOr<int64_t> WriteValidationFile(const v1::DataSpec& data,
                                            const std::string& path) {
  if (data.format() != v1::DATA_FORMAT_BYTES) {
    return absl::InvalidArgumentError(
        "only held-out bytes can be written to a file");
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<DataSet> data_set,
                   DataSet::Open(data, data.path()));
  const TokenRange held_out = data_set->validation();
  if (held_out.size() == 0) {
    return absl::InvalidArgumentError("the data set has no held-out tokens");
  }
  std::vector<int32_t> tokens(held_out.size());
  RETURN_IF_ERROR(data_set->Read(held_out.begin, absl::MakeSpan(tokens)));
  const std::string text(tokens.begin(), tokens.end());
  RETURN_IF_ERROR(ReplaceFile(PosixFileSystem(), path, text));
  return held_out.size();
}

}  // namespace atl::worker
