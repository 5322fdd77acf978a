#include "worker/engine/ops/cuda/testing/emulator.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status/check.h"

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace atl::engine::emulator {
namespace {

constexpr size_t kStackBytes = 64 << 10;

enum class State { kReady, kAtWarp, kAtBlock, kDone };

struct Thread {
  void* stack_pointer = nullptr;
  std::unique_ptr<char[]> stack;
  dim3 index;
  State state = State::kReady;
};

struct Machine {
  std::vector<Thread> threads;  // As many as in the largest block so far.
  std::vector<char> slots;      // 64 bytes per thread.
  std::vector<char> shared;
  std::vector<int> order;
  const std::function<void()>* body = nullptr;
  void* scheduler_stack_pointer = nullptr;
  int current = 0;
  int thread_count = 0;
  Order order_kind = Order::kRising;
  std::mt19937 random{1};
  int launches_until_failure = 0;
  cudaError_t planned_error = cudaSuccess;
  cudaError_t last_error = cudaSuccess;
  size_t memory_limit = SIZE_MAX;
  size_t allocated = 0;
  std::unordered_map<void*, size_t> sizes;
  bool refuses_capture = false;
  // Null outside a capture.
  std::unique_ptr<std::vector<std::function<void()>>> captured;
  bool capture_is_valid = false;

  // Whether an uncapturable call may run. If not, the capture is invalid.
  bool MayCall() {
    if (captured == nullptr) return true;
    capture_is_valid = false;
    return false;
  }
};

Machine& TheMachine() {
  static Machine& machine = *new Machine;
  return machine;
}

}  // namespace
}  // namespace atl::engine::emulator

// Saves the callee-saved registers and switches to the stack `to`.
extern "C" void AtlEmulatorSwitch(void** save, void* to);
asm(R"(
.text
.type AtlEmulatorSwitch, @function
AtlEmulatorSwitch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size AtlEmulatorSwitch, .-AtlEmulatorSwitch
)");

namespace atl::engine::emulator {
namespace {

void Yield(State state) {
  Machine& machine = TheMachine();
  Thread& self = machine.threads[machine.current];
  self.state = state;
  AtlEmulatorSwitch(&self.stack_pointer, machine.scheduler_stack_pointer);
}

void ThreadMain() {
  (*TheMachine().body)();
  Yield(State::kDone);
  CHECK(false);
}

// A switch to this stack enters ThreadMain.
void Prepare(Thread& thread) {
  if (thread.stack == nullptr) {
    thread.stack = std::make_unique<char[]>(kStackBytes);
  }
  uintptr_t top = reinterpret_cast<uintptr_t>(thread.stack.get()) + kStackBytes;
  top = top / 16 * 16 - 24;  // 8 below a multiple of 16, as after a call.
  auto* words = reinterpret_cast<void**>(top);
  words[0] = nullptr;  // ThreadMain's return address.
  *--words = reinterpret_cast<void*>(&ThreadMain);
  for (int i = 0; i < 6; ++i) *--words = nullptr;
  thread.stack_pointer = words;
  thread.state = State::kReady;
}

void RunThread(int t) {
  Machine& machine = TheMachine();
  machine.current = t;
  threadIdx = machine.threads[t].index;
  AtlEmulatorSwitch(&machine.scheduler_stack_pointer,
                    machine.threads[t].stack_pointer);
}

// Releases the threads at complete barriers. False if all threads are done.
bool Release(Machine& machine) {
  int done = 0, at_block = 0;
  bool released = false;
  for (int first = 0; first < machine.thread_count; first += kWarp) {
    int at_warp = 0;
    for (int t = first; t < first + kWarp; ++t) {
      const State state = machine.threads[t].state;
      at_warp += state == State::kAtWarp;
      at_block += state == State::kAtBlock;
      done += state == State::kDone;
    }
    if (at_warp == 0) continue;
    CHECK_EQ(at_warp, kWarp);  // Otherwise a lane is elsewhere or has ended.
    released = true;
    for (int t = first; t < first + kWarp; ++t) {
      machine.threads[t].state = State::kReady;
    }
  }
  if (released) return true;
  if (done == machine.thread_count) return false;
  CHECK_EQ(at_block, machine.thread_count);  // Otherwise a thread has ended.
  for (int t = 0; t < machine.thread_count; ++t) {
    machine.threads[t].state = State::kReady;
  }
  return true;
}

void RunBlock(Machine& machine) {
  for (int t = 0; t < machine.thread_count; ++t) Prepare(machine.threads[t]);
  // Makes a read before the first write visible.
  std::fill(machine.shared.begin(), machine.shared.end(),
            static_cast<char>(0xff));
  do {
    if (machine.order_kind == Order::kShuffled) {
      std::shuffle(machine.order.begin(), machine.order.end(), machine.random);
    }
    for (int t : machine.order) {
      if (machine.threads[t].state == State::kReady) RunThread(t);
    }
  } while (Release(machine));
}

}  // namespace

void SetOrder(Order order) { TheMachine().order_kind = order; }

void Launch(dim3 grid, dim3 block, size_t shared_bytes,
            const std::function<void()>& thread) {
  Machine& machine = TheMachine();
  if (machine.captured != nullptr) {
    machine.captured->push_back([grid, block, shared_bytes, thread] {
      Launch(grid, block, shared_bytes, thread);
    });
    return;
  }
  if (machine.launches_until_failure > 0 &&
      --machine.launches_until_failure == 0) {
    machine.last_error = machine.planned_error;
    return;
  }
  machine.thread_count = static_cast<int>(block.x * block.y * block.z);
  // A device's limits. All our kernels use whole warps.
  CHECK(machine.thread_count >= kWarp && machine.thread_count <= 1024);
  CHECK_EQ(machine.thread_count % kWarp, 0);
  CHECK(grid.x >= 1 && grid.x <= 0x7fffffffu);
  CHECK(grid.y >= 1 && grid.y <= 65535 && grid.z >= 1 && grid.z <= 65535);
  CHECK(shared_bytes <= 227 << 10);
  if (machine.threads.size() < static_cast<size_t>(machine.thread_count)) {
    machine.threads.resize(machine.thread_count);
    machine.slots.resize(size_t{64} * machine.thread_count);
  }
  machine.order.resize(machine.thread_count);
  for (int t = 0; t < machine.thread_count; ++t) {
    const unsigned u = static_cast<unsigned>(t);
    machine.threads[t].index =
        dim3(u % block.x, u / block.x % block.y, u / block.x / block.y);
    machine.order[t] = machine.order_kind == Order::kFalling
                           ? machine.thread_count - 1 - t
                           : t;
  }
  machine.shared.resize(shared_bytes);
  machine.body = &thread;
  blockDim = block;
  gridDim = grid;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = dim3(x, y, z);
        RunBlock(machine);
      }
    }
  }
}

void SyncThreads() { Yield(State::kAtBlock); }
void SyncWarp() { Yield(State::kAtWarp); }
void* DynamicShared() { return TheMachine().shared.data(); }
int Lane() { return TheMachine().current % kWarp; }
char* LaneSlot(int lane) {
  Machine& machine = TheMachine();
  CHECK(lane >= 0 && lane < kWarp);
  return &machine.slots[size_t{64} * (machine.current / kWarp * kWarp + lane)];
}

void SetMemoryLimit(size_t bytes) { TheMachine().memory_limit = bytes; }
size_t AllocatedBytes() { return TheMachine().allocated; }
void RefuseCapture(bool refuse) { TheMachine().refuses_capture = refuse; }
void FailLaunch(int countdown, cudaError_t error) {
  TheMachine().launches_until_failure = countdown;
  TheMachine().planned_error = error;
}

}  // namespace atl::engine::emulator

using atl::engine::emulator::TheMachine;

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  auto& machine = TheMachine();
  if (!machine.MayCall()) return cudaErrorStreamCaptureUnsupported;
  if (bytes > machine.memory_limit ||
      machine.allocated > machine.memory_limit - bytes) {
    return cudaErrorMemoryAllocation;
  }
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (*memory == nullptr) return cudaErrorMemoryAllocation;
  std::memset(*memory, 0xff, bytes);  // Like memory with old contents.
  machine.allocated += bytes;
  machine.sizes[*memory] = bytes;
  return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  auto& machine = TheMachine();
  CHECK_EQ(machine.sizes.count(memory), 1u);
  machine.allocated -= machine.sizes[memory];
  machine.sizes.erase(memory);
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                            cudaMemcpyKind, cudaStream_t) {
  if (!TheMachine().MayCall()) return cudaErrorStreamCaptureUnsupported;
  if (bytes > 0) std::memcpy(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  auto& machine = TheMachine();
  if (machine.captured != nullptr) {
    machine.captured->push_back([=] { std::memset(to, value, bytes); });
    return cudaSuccess;
  }
  if (bytes > 0) std::memset(to, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return TheMachine().MayCall() ? cudaSuccess
                                : cudaErrorStreamCaptureUnsupported;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = nullptr;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = nullptr;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
  return cudaSuccess;
}

struct CUgraph_st {
  std::vector<std::function<void()>> calls;
};
struct CUgraphExec_st {
  std::vector<std::function<void()>> calls;
};

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  auto& machine = TheMachine();
  if (machine.refuses_capture) return cudaErrorStreamCaptureUnsupported;
  CHECK(machine.captured == nullptr);
  machine.captured = std::make_unique<std::vector<std::function<void()>>>();
  machine.capture_is_valid = true;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  auto& machine = TheMachine();
  CHECK(machine.captured != nullptr);
  const auto captured = std::move(machine.captured);
  *graph = nullptr;
  if (!machine.capture_is_valid) return cudaErrorStreamCaptureInvalidated;
  *graph =
      std::make_unique<CUgraph_st>(CUgraph_st{std::move(*captured)}).release();
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long) {
  *exec =
      std::make_unique<CUgraphExec_st>(CUgraphExec_st{graph->calls}).release();
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const std::unique_ptr<CUgraph_st> ends(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t) {
  for (const std::function<void()>& call : exec->calls) call();
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  const std::unique_ptr<CUgraphExec_st> ends(exec);
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  return std::exchange(TheMachine().last_error, cudaSuccess);
}
cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
  }
  return "unknown error";
}
