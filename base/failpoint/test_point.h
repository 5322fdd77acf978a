// Named places where a test of one process may step between two steps of ours,
// so that it need not hope for an unlucky moment.
//
// With no hook set, TestPoint is one load.
//
// Thread-safe.

#ifndef BASE_FAILPOINT_TEST_POINT_H_
#define BASE_FAILPOINT_TEST_POINT_H_

#include <functional>

#include "absl/strings/string_view.h"

namespace atl {

// Calls the hook, if one is set, in the caller's thread. To be called with no
// lock held.
void TestPoint(absl::string_view name);

// Sets the hook while it lives; one at a time. A call that is under way when it
// ends goes on: what `hook` refers to must outlive the threads that may be in
// it.
class ScopedTestHook {
 public:
  explicit ScopedTestHook(std::function<void(absl::string_view name)> hook);
  ~ScopedTestHook();
  ScopedTestHook(const ScopedTestHook&) = delete;
  ScopedTestHook& operator=(const ScopedTestHook&) = delete;
};

}  // namespace atl

#endif  // BASE_FAILPOINT_TEST_POINT_H_
