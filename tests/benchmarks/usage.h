// Resource usage of processes: processor time and anonymous memory.

#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace atl::benchmarks {

// Processor seconds, user and system, of all threads of `pids` so far. An ended
// process counts 0.
double CpuSeconds(const std::vector<pid_t>& pids);

// Anonymous memory of `pid` in bytes, without pages of files. 0: it has ended.
int64_t AnonymousBytes(pid_t pid);

// Memory of `pid` in bytes, with pages of files. 0: it has ended.
int64_t ResidentBytes(pid_t pid);

// Bytes that the loopback interface of this network namespace has carried, with
// all headers. 0: there is no such interface.
int64_t LoopbackBytes();

// Bytes of file pages in memory, without shared memory, and bytes of them that
// are not yet on the disk.
struct PageCache {
  int64_t cached = 0;
  int64_t dirty = 0;
};
PageCache PageCacheBytes();

// "Intel(R) Xeon(R) Processor, 2 cores".
std::string CpuName();

// Peak anonymous memory of a process. A thread samples it every 10 ms.
class MemoryWatch {
 public:
  explicit MemoryWatch(pid_t pid);
  ~MemoryWatch();
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;

  int64_t peak_bytes() const { return peak_bytes_; }

 private:
  std::atomic<int64_t> peak_bytes_{0};
  std::jthread thread_;
};

}  // namespace atl::benchmarks
