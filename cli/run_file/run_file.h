// Run files: a RunSpec as TOML.
//
// Pure. Thread-safe.
//
// The keys are the names of the fields of atoll.v1.RunSpec: a message is a
// table ([schedule]), a field is a key, an enum is its value's name without the
// prefix, in lower case ("adamw"), a duration is a string ("30s", "1m30s").
// Seven keys are the file's own:
//
//   run_id = "..."       the run's id; default: the file's name
//   preset = "..."       a file of deploy/config that this file changes
//   [init] model = "..."  directory of the model (config.json, safetensors) to
//                        import version 0 from; missing keys of [model] come
//                        from its config.json
//   [model] tensors = "..."   file with the list of tensors of an external model
//                        (worker/planner/tensors_file.h)
//   [layout] layers_a_fragment = N   one fragment for every N layers, at most
//                        fragment_count if that is also given
//   [layout] fragment_pattern = "..."   how layers go to fragments: "strided"
//                        or "balanced"
//   [checkpoint] every_round_count = N   checkpoint_every_round_count, which is
//                        its older name; a file has one of them
//
// Values come from the file, then its preset, then DefaultRunSpec (rules.h).
// Paths are relative to the file's directory. [layout] may have only these two
// keys and fragment_count: its tensors follow from the model. [init] may have
// only model and seed: the rest follows from the model. A file that gives only
// one of fragment_count and layers_a_fragment drops its preset's other one; the
// same holds for schedule.round_count and schedule.token_count.
//
// Defaults of keys that are 0 or missing:
//   model.kv_head_count       head_count
//   model, gpt2               intermediate_size 4 * hidden_size, tie_embeddings
//                             true
//   model, mixtral            router_loss_weight 0.001
//   schedule.min_quorum, data.data_shard_count   schedule.island_count_min
//   inner.weight_decay, outer.momentum   only for optimizers that have them
//   an async run (schedule.max_staleness above 0)   min_quorum 1, weighting
//                             uniform
//
// A file that gives data.url must give data.order = "by_file". The preset's
// values of data.path, format, fingerprint, seed and validation_fraction are
// dropped: the manifest decides.
//
// A file that gives schedule.timing = "strict" drops the preset's grace_window,
// round_deadline, max_ahead_steps and max_staleness. One that gives an
// island_count_min below the preset's min_quorum drops min_quorum.
//
// A file with model.architecture = "external" must have model.tensors. It may
// also give weight_unit, sequence_length in [model], batch_size and
// warmup_step_count in [inner], format and data_shard_count in [data], and
// fragment_count in [layout]. The preset's values of all other keys of these
// tables are dropped (rules.h). weight_unit = "samples" needs batch_size.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "atoll/v1/run.pb.h"

namespace atl::cli {

struct RunFile {
  std::string run_id;
  // CompleteSpec fills in the missing fields: layout.tensors, data.fingerprint
  // unless `has_fingerprint`, data.format with data.url, and with a
  // `model_directory` also init.import, init.fragment_digests and the keys of
  // [model] that are not in `model_keys`. With `layers_a_fragment`,
  // layout.fragment_count is only a bound; 0: none. An external model's
  // fragment_count is 0 if neither the file nor its preset gives it.
  v1::RunSpec spec;
  // Model to import version 0 from; empty: the run initializes its own.
  std::string model_directory;
  // File of the tensors of an external model; empty for other models.
  std::string tensors_path;
  // Keys of [model] in the file itself, without its preset and `tensors`.
  std::set<std::string> model_keys;
  // layout.fragment_pattern: "strided" or "balanced"; for CompleteLayout
  // (worker/api, ParseFragmentAssignment).
  std::string fragment_pattern = "strided";
  // layout.layers_a_fragment; 0: layout.fragment_count holds. For an external
  // model only the preset can give it.
  int64_t layers_a_fragment = 0;
  // The file or its preset gives data.fingerprint. Empty: each island has its
  // own data.
  bool has_fingerprint = false;
};

struct RunFileOptions {
  // The file's name in messages.
  std::string name = "run.toml";
  // Base of relative paths; empty: paths stay unchanged.
  std::string directory;
  // For a file without run_id.
  std::string default_run_id;
  // Replaces the file's init.model, if not empty.
  std::string model_directory;
  // Replaces the file's model.tensors, if not empty.
  std::string tensors_path;
  // Returns the text of a preset, or nothing.
  std::function<std::optional<std::string>(absl::string_view)> find_preset;
  // Names of all presets, for messages: "diloco, fedavg, laptop".
  std::string preset_names;
};

// Parses `text`.
//
// INVALID_ARGUMENT: not TOML; an unknown key (with the nearest known one); a
// value of the wrong type or out of range; an unknown enum value or preset; a
// missing key without a default. One line per fault, with "NAME:LINE: " in
// front if it has a line; at most the first 20 faults.
absl::StatusOr<RunFile> ParseRunFile(absl::string_view text,
                                     const RunFileOptions& options);

}  // namespace atl::cli
