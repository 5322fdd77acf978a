#include "worker/engine/parallel/zero/moment_store.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <iterator>
#include <thread>
#include <utility>

#include "base/status/status_macros.h"
#include "base/sync/mutex.h"
#include "worker/engine/tensor/arena.h"

namespace atl::engine {
namespace {

template <typename T>
class InMemory final : public MomentStore<T> {
 public:
  using Chunk = typename MomentStore<T>::Chunk;

  InMemory(int64_t element_count, BasicOps<T>& ops)
      : element_count_(element_count), ops_(ops) {}
  absl::Status Init() {
    ASSIGN_OR_RETURN(arena_,
                     Arena::CreateFor([&](Arena& arena) { TakeBuffers(arena); },
                                      ops_.memory()));
    return absl::OkStatus();
  }

  absl::Status Update(absl::FunctionRef<void(const Chunk&)> f) override {
    f({.begin = 0,
       .count = element_count_,
       .first = moments_[0],
       .second = moments_[1]});
    return absl::OkStatus();
  }
  absl::Status Read(int moment, int64_t begin, absl::Span<T> out) override {
    ops_.ReadValues(static_cast<int64_t>(out.size()), moments_[moment] + begin,
                    out.data());
    return ops_.status();
  }
  absl::Status Write(int moment, int64_t begin,
                     absl::Span<const T> in) override {
    ops_.WriteValues(static_cast<int64_t>(in.size()), in.data(),
                     moments_[moment] + begin);
    return ops_.status();
  }
  int64_t memory_bytes() const override {
    return static_cast<int64_t>(arena_.used_bytes());
  }

 private:
  void TakeBuffers(Arena& arena) {
    for (T*& moment : moments_) moment = arena.Take<T>(element_count_);
  }

  const int64_t element_count_;
  BasicOps<T>& ops_;
  Arena arena_;
  T* moments_[2] = {nullptr, nullptr};
};

// Runs tasks in order on its own thread.
class Background {
 public:
  Background() : thread_([this] { Loop(); }) {}
  ~Background() {
    {
      MutexLock lock(&mutex_);
      is_ending_ = true;
      changed_.SignalAll();
    }
    thread_.join();
  }

  // Returns the task's number, from 1. After an error no task runs.
  int64_t Add(std::function<absl::Status()> task) {
    MutexLock lock(&mutex_);
    tasks_.push_back(std::move(task));
    changed_.SignalAll();
    return ++added_count_;
  }
  // Waits for that task and all before it. Returns the first error.
  absl::Status Wait(int64_t number) {
    MutexLock lock(&mutex_);
    while (done_count_ < number) changed_.Wait(&mutex_);
    return status_;
  }

 private:
  void Loop() {
    while (true) {
      std::function<absl::Status()> task;
      absl::Status status;
      {
        MutexLock lock(&mutex_);
        while (tasks_.empty() && !is_ending_) changed_.Wait(&mutex_);
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
        status = status_;
      }
      if (status.ok()) status = task();
      MutexLock lock(&mutex_);
      status_ = status;
      ++done_count_;
      changed_.SignalAll();
    }
  }

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<absl::Status()>> tasks_ ABSL_GUARDED_BY(mutex_);
  int64_t added_count_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t done_count_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool is_ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

template <typename T>
class Offloaded final : public MomentStore<T> {
 public:
  using Chunk = typename MomentStore<T>::Chunk;

  Offloaded(int64_t element_count, int64_t chunk_count,
            std::unique_ptr<BackingStore> store, BasicOps<T>& ops)
      : element_count_(element_count),
        chunk_count_(std::min(chunk_count, element_count)),
        ops_(ops),
        store_(std::move(store)) {}
  absl::Status Init() {
    ASSIGN_OR_RETURN(arena_,
                     Arena::CreateFor([&](Arena& arena) { TakeBuffers(arena); },
                                      ops_.memory()));
    std::copy(std::begin(buffers_), std::end(buffers_), host_buffers_);
    if (ops_.memory().is_host()) return absl::OkStatus();
    ASSIGN_OR_RETURN(host_arena_, Arena::CreateFor([&](Arena& arena) {
                       TakeChunks(arena, host_buffers_);
                     }));
    ASSIGN_OR_RETURN(copier_, ops_.MakeCopier());
    return absl::OkStatus();
  }

  absl::Status Update(absl::FunctionRef<void(const Chunk&)> f) override {
    const int64_t n = (element_count_ + chunk_count_ - 1) / chunk_count_;
    // Order: read 0, read 1, write 0, read 2, write 1, ... A buffer is reused
    // three chunks later, after its write.
    int64_t next = n > 0 ? AddRead(0) : 0;
    int64_t last = 0;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t read = next;
      if (i + 1 < n) next = AddRead(i + 1);
      RETURN_IF_ERROR(background_.Wait(read));
      f(ChunkAt(i));
      if (copier_ != nullptr) copier_->Follow();
      last = AddWrite(i);
    }
    return background_.Wait(last);
  }

  absl::Status Read(int moment, int64_t begin, absl::Span<T> out) override {
    return store_->Read(ComputeOffset(moment, begin), out.data(),
                        static_cast<int64_t>(out.size() * sizeof(T)));
  }
  absl::Status Write(int moment, int64_t begin,
                     absl::Span<const T> in) override {
    return store_->Write(ComputeOffset(moment, begin), in.data(),
                         static_cast<int64_t>(in.size() * sizeof(T)));
  }
  int64_t memory_bytes() const override {
    return static_cast<int64_t>(arena_.used_bytes());
  }

 private:
  static constexpr int kBufferCount = 3;

  void TakeBuffers(Arena& arena) { TakeChunks(arena, buffers_); }
  void TakeChunks(Arena& arena, Chunk (&chunks)[kBufferCount]) {
    for (Chunk& chunk : chunks) {
      chunk.first = arena.Take<T>(chunk_count_);
      chunk.second = arena.Take<T>(chunk_count_);
    }
  }
  int64_t ComputeOffset(int moment, int64_t begin) const {
    return (moment * element_count_ + begin) * static_cast<int64_t>(sizeof(T));
  }
  Chunk ChunkAt(int64_t i) const { return ChunkAt(i, buffers_); }
  Chunk ChunkAt(int64_t i, const Chunk (&chunks)[kBufferCount]) const {
    Chunk chunk = chunks[i % kBufferCount];
    chunk.begin = i * chunk_count_;
    chunk.count = std::min(chunk_count_, element_count_ - chunk.begin);
    return chunk;
  }
  static absl::Span<T> ToSpan(T* data, const Chunk& chunk) {
    return {data, static_cast<size_t>(chunk.count)};
  }
  int64_t AddRead(int64_t i) {
    return background_.Add([this, i]() -> absl::Status {
      const Chunk host = ChunkAt(i, host_buffers_);
      RETURN_IF_ERROR(Read(0, host.begin, ToSpan(host.first, host)));
      RETURN_IF_ERROR(Read(1, host.begin, ToSpan(host.second, host)));
      if (copier_ == nullptr) return absl::OkStatus();
      const Chunk chunk = ChunkAt(i);
      const size_t bytes = static_cast<size_t>(chunk.count) * sizeof(T);
      copier_->FromHost(bytes, host.first, chunk.first);
      copier_->FromHost(bytes, host.second, chunk.second);
      return copier_->status();
    });
  }
  int64_t AddWrite(int64_t i) {
    return background_.Add([this, i]() -> absl::Status {
      const Chunk host = ChunkAt(i, host_buffers_);
      if (copier_ != nullptr) {
        const Chunk chunk = ChunkAt(i);
        const size_t bytes = static_cast<size_t>(chunk.count) * sizeof(T);
        copier_->ToHost(bytes, chunk.first, host.first);
        copier_->ToHost(bytes, chunk.second, host.second);
        RETURN_IF_ERROR(copier_->status());
      }
      RETURN_IF_ERROR(Write(0, host.begin, ToSpan(host.first, host)));
      return Write(1, host.begin, ToSpan(host.second, host));
    });
  }

  const int64_t element_count_;
  const int64_t chunk_count_;
  BasicOps<T>& ops_;
  const std::unique_ptr<BackingStore> store_;
  Arena arena_, host_arena_;
  Chunk buffers_[kBufferCount];
  // The store's end: `buffers_`, or host memory with a device.
  Chunk host_buffers_[kBufferCount];
  std::unique_ptr<Copier> copier_;  // With a device only.
  Background background_;           // Its thread uses all members above.
};

}  // namespace

template <typename T>
absl::StatusOr<std::unique_ptr<MomentStore<T>>> MakeMomentStore(
    int64_t element_count, BasicOps<T>& ops) {
  auto store = std::make_unique<InMemory<T>>(element_count, ops);
  RETURN_IF_ERROR(store->Init());
  return store;
}

template <typename T>
absl::StatusOr<std::unique_ptr<MomentStore<T>>> MakeOffloadedMomentStore(
    int64_t element_count, int64_t chunk_count,
    std::unique_ptr<BackingStore> store, BasicOps<T>& ops) {
  auto moments = std::make_unique<Offloaded<T>>(element_count, chunk_count,
                                                std::move(store), ops);
  RETURN_IF_ERROR(moments->Init());
  return moments;
}

#define ATL_ENGINE_INSTANTIATE(T)                                           \
  template absl::StatusOr<std::unique_ptr<MomentStore<T>>> MakeMomentStore( \
      int64_t, BasicOps<T>&);                                               \
  template absl::StatusOr<std::unique_ptr<MomentStore<T>>>                  \
  MakeOffloadedMomentStore(int64_t, int64_t, std::unique_ptr<BackingStore>, \
                           BasicOps<T>&);
ATL_ENGINE_INSTANTIATE(float)
ATL_ENGINE_INSTANTIATE(double)
#undef ATL_ENGINE_INSTANTIATE

}  // namespace atl::engine
