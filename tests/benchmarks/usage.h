// What processes have used: processor time and memory of their own.

#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace atl::benchmarks {

// Processor seconds of all threads of `pids` so far, user and system. A process
// that is gone counts nothing.
double CpuSeconds(const std::vector<pid_t>& pids);

// Anonymous memory of `pid` now, in bytes: without files' pages. 0 if it is
// gone.
int64_t AnonymousBytes(pid_t pid);

// Bytes that the loopback interface of this network namespace has carried, all
// headers included. 0 if there is none.
int64_t LoopbackBytes();

// Pages of files that the system keeps in memory, without shared memory, and
// how much of them is not on the disk yet; bytes.
struct PageCache {
  int64_t cached = 0;
  int64_t dirty = 0;
};
PageCache PageCacheBytes();

// "Intel(R) Xeon(R) Processor, 2 cores", as the system names it.
std::string CpuName();

// The most anonymous memory that a process has had, looked at every 10 ms by a
// thread.
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
