// Unique ids: 128 random bits as 32 lower-case hex digits.
//
// Thread-safe. Never called in a core/ room: shells pass ids in.

#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace atl {

// A new id, from getrandom(2). Waits, after the machine's boot, until the
// kernel has entropy.
std::string RandomId();

// True if `id` has the form of RandomId.
bool IsRandomId(absl::string_view id);

}  // namespace atl
