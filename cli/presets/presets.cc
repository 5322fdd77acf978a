#include "cli/presets/presets.h"

#include <vector>

#include "absl/strings/str_join.h"
#include "cli/presets/preset_texts.h"

namespace atl::cli {

std::optional<std::string> FindPreset(absl::string_view name) {
  for (const PresetText& preset : kPresetTexts) {
    if (name == preset.name) return std::string(preset.text);
  }
  return std::nullopt;
}

std::string PresetNames() {
  std::vector<std::string> names;
  for (const PresetText& preset : kPresetTexts) names.push_back(preset.name);
  return absl::StrJoin(names, ", ");
}

}  // namespace atl::cli
