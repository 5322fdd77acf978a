#include "base/failpoint/test_point.h"

#include <atomic>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "base/sync/mutex.h"

namespace atl {
namespace {

using Hook = std::function<void(absl::string_view)>;

std::atomic<bool> is_set{false};

struct Holder {
  Mutex mutex;
  std::shared_ptr<const Hook> hook ABSL_GUARDED_BY(mutex);
};

// Never freed: a thread may read it after main returns.
Holder& TheHolder() {
  static Holder* const holder = new Holder;
  return *holder;
}

void Set(std::shared_ptr<const Hook> hook) {
  Holder& holder = TheHolder();
  MutexLock lock(&holder.mutex);
  is_set = hook != nullptr;
  holder.hook = std::move(hook);
}

}  // namespace

void TestPoint(absl::string_view name) {
  if (!is_set.load(std::memory_order_acquire)) return;
  std::shared_ptr<const Hook> hook;
  {
    Holder& holder = TheHolder();
    MutexLock lock(&holder.mutex);
    hook = holder.hook;
  }
  if (hook != nullptr) (*hook)(name);
}

ScopedTestHook::ScopedTestHook(Hook hook) {
  Set(std::make_shared<const Hook>(std::move(hook)));
}

ScopedTestHook::~ScopedTestHook() { Set(nullptr); }

}  // namespace atl
