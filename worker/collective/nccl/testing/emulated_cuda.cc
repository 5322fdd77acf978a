#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "base/sync/mutex.h"
#include "worker/collective/nccl/testing/emulated_nccl.h"

namespace atl::collective {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

class Stream {
 public:
  Stream() : thread_([this] { Run(); }) {}
  ~Stream() {
    {
      MutexLock lock(&mutex_);
      ending_ = true;
      condition_.SignalAll();
    }
    thread_.join();
  }

  void Add(std::function<void()> work) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    work_.push_back(std::move(work));
    condition_.SignalAll();
  }

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_) {
    while (true) {
      std::function<void()> work;
      {
        MutexLock lock(&mutex_);
        while (work_.empty() && !ending_) condition_.Wait(&mutex_);
        if (work_.empty()) return;
        work = std::move(work_.front());
        work_.pop_front();
      }
      work();
    }
  }

  Mutex mutex_;
  CondVar condition_;
  std::deque<std::function<void()>> work_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // Last: it uses all other members.
};

// How often an event was recorded, and how often it happened.
class Marks {
 public:
  int64_t Record() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return ++recorded_;
  }
  int64_t recorded() const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return recorded_;
  }
  bool AllHappened() const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return happened_ >= recorded_;
  }
  void Happen(int64_t mark) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    happened_ = mark;
    condition_.SignalAll();
  }
  void Await(int64_t mark) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    while (happened_ < mark) condition_.Wait(&mutex_);
  }

 private:
  mutable Mutex mutex_;
  CondVar condition_;
  int64_t recorded_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t happened_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Queued work shares it, so an event may be destroyed before it happens.
using Event = std::shared_ptr<Marks>;

Stream& ToStream(cudaStream_t stream) {
  return *reinterpret_cast<Stream*>(stream);
}
Event& ToEvent(cudaEvent_t event) { return *reinterpret_cast<Event*>(event); }

// Counts cudaErrorNotReady.
struct Queries {
  Mutex mutex;
  CondVar condition;
  int64_t count ABSL_GUARDED_BY(mutex) = 0;
};
Queries& TheQueries() {
  static Queries& queries = *new Queries;
  return queries;
}

cudaError_t Done() { return cudaSuccess; }

}  // namespace

void Launch(cudaStream_t stream, std::function<void()> kernel) {
  ToStream(stream).Add(std::move(kernel));
}

void AwaitUnreadyQueries(int count) {
  Queries& queries = TheQueries();
  MutexLock lock(&queries.mutex);
  const int64_t enough = queries.count + count;
  while (queries.count < enough) queries.condition.Wait(&queries.mutex);
}

}  // namespace atl::collective

extern "C" {

using atl::collective::Done;
using atl::collective::Event;
using atl::collective::ToEvent;
using atl::collective::ToStream;

cudaError_t cudaSetDevice(int) { return Done(); }

cudaError_t cudaGetLastError() {
  return std::exchange(atl::collective::last_error, cudaSuccess);
}

const char* cudaGetErrorString(cudaError_t) { return "an emulated error"; }

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  *memory = std::malloc(bytes);
  return Done();
}

cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return Done();
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes,
                            cudaStream_t stream) {
  ToStream(stream).Add([=] { std::memset(to, value, bytes); });
  return Done();
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                            cudaMemcpyKind, cudaStream_t stream) {
  ToStream(stream).Add([=] { std::memcpy(to, from, bytes); });
  return Done();
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = reinterpret_cast<cudaStream_t>(new atl::collective::Stream);
  return Done();
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete &ToStream(stream);
  return Done();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(
      new Event(std::make_shared<atl::collective::Marks>()));
  return Done();
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete &ToEvent(event);
  return Done();
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Event marks = ToEvent(event);
  const int64_t mark = marks->Record();
  ToStream(stream).Add([=] { marks->Happen(mark); });
  return Done();
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (ToEvent(event)->AllHappened()) return Done();
  {
    atl::collective::Queries& queries = atl::collective::TheQueries();
    atl::MutexLock lock(&queries.mutex);
    ++queries.count;
    queries.condition.SignalAll();
  }
  // Kept, as the runtime keeps other errors.
  return atl::collective::last_error = cudaErrorNotReady;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned) {
  const Event marks = ToEvent(event);
  const int64_t mark = marks->recorded();
  ToStream(stream).Add([=] { marks->Await(mark); });
  return Done();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Event marks = std::make_shared<atl::collective::Marks>();
  const int64_t mark = marks->Record();
  ToStream(stream).Add([=] { marks->Happen(mark); });
  marks->Await(mark);
  return Done();
}

}  // extern "C"
