// How flags are spelt (--run-id, with dashes), and how help texts are wrapped.
// Pure.
// style-ok(flag): the alias --run_id means the same.

#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace atl::flags {

// The flag for a setting or field: "tls_cert" -> "--tls-cert".
std::string FlagName(absl::string_view name);

// Replaces underscores by dashes in the flag names of a command line, in place.
// Keeps values: the text after "=", and every argument after "--".
void SpellFlagsWithDashes(std::vector<std::string>& arguments);

// Breaks the lines of a help text at spaces, so that they have at most 80
// columns where possible. The next lines of a flag's text begin in
// `text_column`, those of other lines below their first word.
std::string WrapHelp(absl::string_view help, size_t text_column);

}  // namespace atl::flags
