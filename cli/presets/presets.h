// The run files of deploy/config, built into the binary.
//
// Pure. Thread-safe.

#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace atl::cli {

// The text of the preset `name` ("laptop"), or nothing.
std::optional<std::string> FindPreset(absl::string_view name);

// The names of all presets in order: "diloco, fedavg, laptop".
std::string PresetNames();

}  // namespace atl::cli
