// Run files: a RunSpec as TOML.
//
// Pure. Thread-safe.
//
// The keys are the names of the fields of atoll.v1.RunSpec: a message is a
// table ([schedule]), a field is a key, an enum is its value's name without the
// prefix, in lower case ("adamw"), a duration is a string ("30s", "1m30s").
// Five keys are the file's own:
//
//   run_id = "..."       the run's id; the file's name without it
//   preset = "..."       a file of deploy/config that this one changes
//   [init] model = "..."  directory of a model (config.json, safetensors) that
//                        version 0 is imported from. What [model] does not say
//                        then follows from its config.json
//   [layout] layers_a_fragment = N   one fragment for every N layers, however
//                        many the model has, but at most fragment_count if that
//                        is given, too
//   [layout] fragment_pattern = "..."   which layers they are: "strided",
//                        "balanced"
//
// Values come from the file, then from its preset, then from the defaults of
// DefaultRunSpec. Of `layout` only these two and fragment_count may be given:
// its tensors follow from the model; of `init` only the seed: the rest follows
// from init.model. Paths are relative to the file's directory. A file that says
// fragment_count alone takes its preset's layers_a_fragment away, and the other
// way round.
//
// Left at 0 or out: model.kv_head_count is head_count; of a gpt2
// intermediate_size is four times hidden_size and tie_embeddings true; of a
// mixtral router_loss_weight is 0.001; schedule.min_quorum and
// data.data_shard_count are schedule.island_count_min. The defaults of
// inner.weight_decay and outer.momentum hold for optimizers that have them. An
// async run (schedule.max_staleness above 0) has min_quorum 1 and weighting
// uniform unless the file says otherwise.

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

// A run file, read.
struct RunFile {
  std::string run_id;
  // Complete but for layout.tensors and, unless `has_fingerprint`,
  // data.fingerprint; with `layers_a_fragment` layout.fragment_count is only a
  // bound, or 0 for none; with a `model_directory` also but for what follows from
  // it: init.import, init.fragment_digests, and in [model] all but
  // `model_keys`.
  v1::RunSpec spec;
  // What version 0 is imported from; empty for a run that makes its own.
  std::string model_directory;
  // Keys of [model] that the file itself gives, not its preset.
  std::set<std::string> model_keys;
  // layout.fragment_pattern: "strided" or "balanced"
  // (worker/planner/model_spec.h); how complete_spec makes layout.tensors.
  std::string fragment_pattern = "strided";
  // layout.layers_a_fragment; 0: the file says how many fragments there are.
  int64_t layers_a_fragment = 0;
  // The file or its preset says data.fingerprint, be it empty: data that is
  // local to each island.
  bool has_fingerprint = false;
};

struct RunFileOptions {
  // How messages call the file.
  std::string name = "run.toml";
  // What relative paths are relative to; empty leaves them alone.
  std::string directory;
  // Used when the file has no run_id.
  std::string default_run_id;
  // Stands for the file's init.model, if not empty.
  std::string model_directory;
  // Returns the text of a preset, or nothing.
  std::function<std::optional<std::string>(absl::string_view)> find_preset;
  // What the preset names, for messages: "diloco, fedavg, laptop".
  std::string preset_names;
};

// What a run file that says nothing means.
v1::RunSpec DefaultRunSpec();

// Reads `text`.
//
// INVALID_ARGUMENT: not TOML; an unknown key (with the nearest known one); a
// value of the wrong type or out of its range; an unknown enum value or preset;
// something that has no default is missing. One line a fault, each beginning
// with "NAME:LINE: " where it has a line; the first 20 are told.
absl::StatusOr<RunFile> ParseRunFile(absl::string_view text,
                                     const RunFileOptions& options);

}  // namespace atl::cli
