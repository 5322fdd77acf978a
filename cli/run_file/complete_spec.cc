#include "cli/run_file/complete_spec.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/layout/external_model.h"
#include "base/layout/run_length.h"
#include "base/layout/weight_unit.h"
#include "base/status/status_macros.h"
#include "cli/output/error.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/text_format.h"
#include "worker/api/model_files.h"
#include "worker/api/planner.h"

namespace atl::cli {
namespace {

using google::protobuf::TextFormat;

// Takes [model] from the config.json of the model to import. Keys that the file
// gives must agree, except those of training: the window length, and the
// experts' balancing loss and capacity.
absl::Status FollowConfig(RunFile* run) {
  ASSIGN_OR_RETURN(v1::ModelSpec config,
                   worker::ReadModelSpec(run->model_directory));
  v1::ModelSpec& model = *run->spec.mutable_model();
  if (run->model_keys.count("sequence_length") != 0) {
    config.set_sequence_length(model.sequence_length());
  }
  if (run->model_keys.count("router_loss_weight") != 0) {
    config.set_router_loss_weight(model.router_loss_weight());
  }
  if (run->model_keys.count("expert_capacity_factor") != 0) {
    config.set_expert_capacity_factor(model.expert_capacity_factor());
  }
  for (const std::string& key : run->model_keys) {
    const auto* field = v1::ModelSpec::descriptor()->FindFieldByName(key);
    std::string said, is;
    TextFormat::PrintFieldValueToString(model, field, -1, &said);
    TextFormat::PrintFieldValueToString(config, field, -1, &is);
    if (said != is) {
      return absl::InvalidArgumentError(
          absl::StrCat("[model] ", key, " is ", said, ", but config.json in ",
                       run->model_directory, " says ", is, ": leave it out"));
    }
  }
  model = std::move(config);
  return absl::OkStatus();
}

absl::Status CompleteImport(RunFile* run) {
  v1::InitSpec& init = *run->spec.mutable_init();
  ASSIGN_OR_RETURN(
      const worker::ModelToImport model,
      worker::ReadModelToImport(run->model_directory, run->spec.layout()));
  init.set_import(true);
  init.mutable_fragment_digests()->Assign(model.fragment_digests.begin(),
                                          model.fragment_digests.end());
  return absl::OkStatus();
}

// Fragments of an external model whose preset counts layers, unless the preset
// has a limit.
constexpr int32_t kStreamedFragments = 8;

absl::StatusOr<v1::Layout> ReadTensorsLayout(const RunFile& run) {
  absl::StatusOr<std::string> text = ReadFile(
      PosixFileSystem(), run.tensors_path, worker::kTensorsFileBytesMax);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(absl::StrCat(
        "there is no list of tensors ", run.tensors_path,
        ": give the path of the file that the trainer wrote"));
  }
  RETURN_IF_ERROR(text.status());
  worker::TensorsFileOptions options;
  options.name = run.tensors_path;
  options.fragment_count = run.spec.layout().fragment_count();
  if (run.layers_a_fragment > 0) {
    options.fragment_count_default =
        options.fragment_count > 0 ? options.fragment_count
                                   : kStreamedFragments;
    options.fragment_count = 0;
  }
  return worker::ParseTensorsFile(*text, options);
}

absl::Status CompleteExternalLayout(RunFile* run) {
  absl::StatusOr<v1::Layout> layout = ReadTensorsLayout(*run);
  if (!layout.ok()) {
    return WithReason(WithContext(layout.status(), "[model] tensors"),
                      "MODEL_INVALID");
  }
  *run->spec.mutable_layout() = *std::move(layout);
  return absl::OkStatus();
}

// Without a limit of a sample's tokens a budget would be many steps too short.
absl::Status CheckBudget(const RunFile& run) {
  if (!HasTokenBudget(run.spec.schedule()) ||
      run.model_keys.count("sequence_length") != 0 ||
      WeightUnitOf(run.spec.weight_unit()) != v1::WEIGHT_UNIT_TOKENS) {
    return absl::OkStatus();
  }
  return WithReason(
      absl::InvalidArgumentError(
          "[model] sequence_length is missing: the clock of a run with "
          "schedule.token_count counts merged tokens, and so needs the tokens "
          "of a step, inner.batch_size x model.sequence_length"),
      "MODEL_INVALID");
}

absl::Status DataUnusable(const absl::Status& status) {
  return WithReason(WithContext(status, "[data]"), "DATA_UNUSABLE");
}

absl::Status ModelUnusable(const absl::Status& status) {
  return WithReason(WithContext(status, "[init] model"), "MODEL_UNUSABLE");
}

}  // namespace

absl::Status CompleteLayout(RunFile* run) {
  v1::RunSpec& spec = run->spec;
  if (IsExternal(spec.model())) return CompleteExternalLayout(run);
  ASSIGN_OR_RETURN(const worker::FragmentAssignment assignment,
                   worker::ParseFragmentAssignment(run->fragment_pattern));
  absl::StatusOr<v1::Layout> layout = worker::BuildLayout(
      spec.model(),
      worker::CountFragments(spec.model().layer_count(), run->layers_a_fragment,
                             spec.layout().fragment_count()),
      assignment);
  if (!layout.ok()) {
    return WithReason(WithContext(layout.status(), "[model]"), "MODEL_INVALID");
  }
  *spec.mutable_layout() = *std::move(layout);
  return absl::OkStatus();
}

absl::Status CompleteSpec(RunFile* run,
                          const worker::StoreOpener& open_store) {
  v1::RunSpec& spec = run->spec;
  const bool external = IsExternal(spec.model());
  if (external) RETURN_IF_ERROR(CheckBudget(*run));
  if (!run->model_directory.empty() && !external) {
    const absl::Status followed = FollowConfig(run);
    if (!followed.ok()) return ModelUnusable(followed);
  }
  RETURN_IF_ERROR(CompleteLayout(run));
  if (!run->model_directory.empty()) {
    const absl::Status complete = CompleteImport(run);
    if (!complete.ok()) return ModelUnusable(complete);
  }
  if (!spec.data().url().empty()) {
    const absl::Status complete = worker::CompleteDataByUrl(spec, open_store);
    return complete.ok() ? complete : DataUnusable(complete);
  }
  if (run->has_fingerprint || external) return absl::OkStatus();
  absl::StatusOr<std::string> fingerprint =
      worker::DataFingerprint(spec.data());
  if (!fingerprint.ok()) return DataUnusable(fingerprint.status());
  spec.mutable_data()->set_fingerprint(*fingerprint);
  const absl::Status enough = worker::CheckData(spec).status();
  return enough.ok() ? enough : DataUnusable(enough);
}

absl::Status RefuseExternal(const RunFile& run, absl::string_view command) {
  if (!IsExternal(run.spec.model())) return absl::OkStatus();
  return WithHint(
      absl::InvalidArgumentError(absl::StrCat(
          "run ", run.run_id, " trains a model of its own (architecture ",
          kExternalArchitecture, "), which ", command, " does not know")),
      "Create it with `atoll run create`, and start its islands with their "
      "trainers: atoll join --trainer unix:PATH.");
}

}  // namespace atl::cli
