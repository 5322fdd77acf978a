// The spelling of flags on every command line: --run-id, as in other tools.
// style-ok(flag): the alias --run_id means the same.

#ifndef BASE_OBS_FLAGS_H_
#define BASE_OBS_FLAGS_H_

#include <string>

#include "absl/strings/string_view.h"

namespace atl {

// The flag of a setting or field: "tls_cert" -> "--tls-cert".
std::string FlagName(absl::string_view name);

// Rewrites each flag of a command line, in place, to its spelling with dashes.
// Values stay as they are: those after "=", and every argument behind "--".
void SpellFlagsWithDashes(int argc, char** argv);

}  // namespace atl

#endif  // BASE_OBS_FLAGS_H_
