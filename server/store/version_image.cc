#include "server/store/version_image.h"

#include <sys/mman.h>

#include "absl/memory/memory.h"

namespace atl::server {
namespace {

constexpr int64_t kHugePageBytes = 2 << 20;

// Null if the system has no memory left.
float* Map(int64_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  madvise(memory, bytes, MADV_HUGEPAGE);
  return static_cast<float*>(memory);
}

}  // namespace

std::shared_ptr<ImagePool> ImagePool::Create(int64_t bytes_max) {
  return absl::WrapUnique(new ImagePool(bytes_max, nullptr));
}

std::shared_ptr<ImagePool> ImagePool::Share(int64_t bytes_max) {
  return absl::WrapUnique(new ImagePool(bytes_max, shared_from_this()));
}

int64_t ImagePool::AsBytes(int64_t element_count) {
  // Whole huge pages, so that images share none. An odd number of them, so that
  // no two arrays lie at a multiple of 256 MiB: the first-level cache of AMD's
  // Zen to Zen 3 identifies lines by a hash of address bits 12 to 27 and holds
  // only one of those with the same hash.
  const int64_t pages = (element_count * static_cast<int64_t>(sizeof(float)) +
                         kHugePageBytes - 1) /
                        kHugePageBytes;
  return (pages | 1) * kHugePageBytes;
}

ImagePool::~ImagePool() {
  // Every image holds a reference to the pool, so none is in use.
  for (const auto& [bytes, free] : free_) {
    for (float* memory : free) munmap(memory, bytes);
  }
}

VersionImage ImagePool::TakeShared(int64_t element_count) {
  const int64_t bytes = AsBytes(element_count);
  {
    MutexLock lock(&mutex_);
    if (bytes_ + bytes > bytes_max_) return nullptr;
    bytes_ += bytes;
  }
  VersionImage image = owner_->Take(element_count);
  const auto give = [pool = shared_from_this(), bytes] {
    MutexLock lock(&pool->mutex_);
    pool->bytes_ -= bytes;
  };
  if (image == nullptr) {
    give();
    return nullptr;
  }
  float* const memory = image.get();
  return VersionImage(memory,
                      [image = std::move(image), give](float*) mutable {
                        image.reset();
                        give();
                      });
}

VersionImage ImagePool::Take(int64_t element_count) {
  if (owner_ != nullptr) return TakeShared(element_count);
  const int64_t bytes = AsBytes(element_count);
  float* memory = nullptr;
  {
    MutexLock lock(&mutex_);
    auto& same = free_[bytes];
    if (!same.empty()) {
      memory = same.back();
      same.pop_back();
    } else {
      // Unmap free images of other sizes first.
      for (auto& [size, free] : free_) {
        while (!free.empty() && bytes_ + bytes > bytes_max_) {
          munmap(free.back(), size);
          free.pop_back();
          bytes_ -= size;
        }
      }
      if (bytes_ + bytes > bytes_max_) return nullptr;
      memory = Map(bytes);
      if (memory == nullptr) return nullptr;
      bytes_ += bytes;
    }
  }
  return VersionImage(memory, [pool = shared_from_this(), bytes](float* image) {
    pool->Give(image, bytes);
  });
}

void ImagePool::Give(float* memory, int64_t bytes) {
  MutexLock lock(&mutex_);
  free_[bytes].push_back(memory);
}

int64_t ImagePool::bytes() const {
  MutexLock lock(&mutex_);
  return bytes_;
}

}  // namespace atl::server
