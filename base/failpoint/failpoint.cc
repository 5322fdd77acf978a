#include "base/failpoint/failpoint.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace atl::failpoint {
namespace {

struct Armed {
  std::string name;
  int hit = 1;
};

// Written once, before threads start. Never freed: a thread may read it after
// main returns.
std::atomic<const Armed*> armed{nullptr};
std::atomic<int> hit_count{0};

}  // namespace

absl::Status Arm(absl::string_view spec) {
  if (spec.empty()) return absl::OkStatus();
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(spec, absl::MaxSplits('@', 1));
  int hit = 1;
  const bool counted = spec.find('@') != absl::string_view::npos;
  if (parts.first.empty() ||
      (counted && (!absl::SimpleAtoi(parts.second, &hit) || hit < 1))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "failpoint \"", spec, "\" is not NAME or NAME@N with N >= 1"));
  }
  armed.store(new Armed{std::string(parts.first), hit},
              std::memory_order_release);
  return absl::OkStatus();
}

void Hit(absl::string_view name) {
  const Armed* point = armed.load(std::memory_order_acquire);
  if (point == nullptr || point->name != name) return;
  if (hit_count.fetch_add(1) + 1 != point->hit) return;
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

}  // namespace atl::failpoint
