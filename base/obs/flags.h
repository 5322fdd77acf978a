// Flag spelling on every command line: --run-id, with dashes.
// style-ok(flag): the alias --run_id means the same.

#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace atl {

// The flag for a setting or field: "tls_cert" -> "--tls-cert".
std::string FlagName(absl::string_view name);

// Replaces underscores by dashes in the flag names of a command line, in place.
// Keeps values: the text after "=", and every argument after "--".
void SpellFlagsWithDashes(int argc, char** argv);

}  // namespace atl
