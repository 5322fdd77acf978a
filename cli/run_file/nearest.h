// Finds the name that an unknown word may stand for.
//
// Pure. Thread-safe.

#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace atl::cli {

// Fewest insertions, deletions, replacements and swaps of neighbours that turn
// `a` into `b` (restricted Damerau-Levenshtein distance).
int EditDistance(absl::string_view a, absl::string_view b);

// The name nearest to `word`; of equals the first. Empty if every distance is
// above a third of the longer word, rounded up.
std::string NearestName(absl::string_view word,
                        const std::vector<std::string>& names);

}  // namespace atl::cli
