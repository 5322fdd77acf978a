// Named places where a test in the same process can interpose between two
// steps, instead of relying on timing. Without a hook, TestPoint is one load.
// Thread-safe.

#pragma once

#include <functional>

#include "absl/strings/string_view.h"

namespace atl {

// Calls the hook, if one is set, in the caller's thread. Call it without
// holding a lock.
void TestPoint(absl::string_view name);

// Sets the hook during its lifetime; one at a time. The destructor does not
// wait for running calls: what `hook` refers to must outlive the threads that
// may call it.
class ScopedTestHook {
 public:
  explicit ScopedTestHook(std::function<void(absl::string_view name)> hook);
  ~ScopedTestHook();
  ScopedTestHook(const ScopedTestHook&) = delete;
  ScopedTestHook& operator=(const ScopedTestHook&) = delete;
};

}  // namespace atl
