#include "worker/engine/tensor/memory.h"

#include <sys/mman.h>

#include <atomic>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace atl::engine {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;

size_t RoundUp(size_t bytes) {
  return (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
}

class HostMemoryImpl final : public Memory {
 public:
  absl::StatusOr<void*> Allocate(size_t bytes) override {
    const size_t whole = RoundUp(std::max<size_t>(bytes, 1));
    // One extra huge page aligns the start; the unused ends are unmapped.
    const size_t mapped = whole + kHugePageBytes;
    void* mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) {
      return absl::ResourceExhaustedError(
          absl::StrCat("out of memory: tensors need ", bytes, " more bytes"));
    }
    char* const begin = static_cast<char*>(mapping);
    const size_t misfit = reinterpret_cast<uintptr_t>(begin) % kHugePageBytes;
    const size_t before = (kHugePageBytes - misfit) % kHugePageBytes;
    if (before > 0) munmap(begin, before);
    if (before < kHugePageBytes) {
      munmap(begin + before + whole, kHugePageBytes - before);
    }
    // Advice: everything works without huge pages, only slower. For a small
    // buffer the system would clear 2 MiB at its first use.
    if (bytes >= kHugePageBytes / 2) {
      (void)madvise(begin + before, whole, MADV_HUGEPAGE);
    }
    bytes_ += static_cast<int64_t>(bytes);
    return begin + before;
  }

  void Free(void* memory, size_t bytes) override {
    if (memory == nullptr) return;
    munmap(memory, RoundUp(std::max<size_t>(bytes, 1)));
    bytes_ -= static_cast<int64_t>(bytes);
  }

  bool is_host() const override { return true; }

  int64_t bytes() const { return bytes_; }

 private:
  std::atomic<int64_t> bytes_ = 0;
};

HostMemoryImpl& TheHost() {
  static HostMemoryImpl& memory = *new HostMemoryImpl;
  return memory;
}

}  // namespace

Memory& HostMemory() { return TheHost(); }

int64_t HostMemoryBytes() { return TheHost().bytes(); }

}  // namespace atl::engine
