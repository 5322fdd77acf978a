#include "cli/commands/recipes.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "cli/presets/presets.h"
#include "cli/run_file/run_file.h"

namespace atl::cli {

absl::StatusOr<std::vector<worker::Recipe>> ReadRecipes() {
  std::vector<worker::Recipe> recipes;
  for (const worker::planner::Preset& preset : worker::planner::Presets()) {
    RunFileOptions options;
    options.name = "preset";
    options.default_run_id = std::string(preset.name);
    options.find_preset = FindPreset;
    options.preset_names = PresetNames();
    // A preset needs a data path; the path does not affect the exchange.
    absl::StatusOr<RunFile> file =
        ParseRunFile(absl::StrCat("preset = \"", preset.name,
                                  "\"\n[data]\npath = \"text\"\n"),
                     options);
    if (!file.ok()) return absl::InternalError(file.status().message());
    worker::Recipe recipe;
    recipe.preset = &preset;
    recipe.spec = std::move(file->spec);
    recipe.layers_a_fragment = file->layers_a_fragment;
    ASSIGN_OR_RETURN(recipe.assignment,
                     worker::ParseFragmentAssignment(file->fragment_pattern));
    recipes.push_back(std::move(recipe));
  }
  return recipes;
}

}  // namespace atl::cli
