// Memory that versions are held in, beside their files.
//
// An array of a version lies in an image from the moment that it is made:
// merges and pulls read it there, and its file is written behind. Images are
// mapped in huge pages where the system gives them, and used again, so that
// steady rounds fault no page in.
//
// Thread-safe.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/sync/mutex.h"

namespace atl::server {

// Elements; whoever shares one keeps its bytes where they are.
using VersionImage = std::shared_ptr<float[]>;

class ImagePool : public std::enable_shared_from_this<ImagePool> {
 public:
  // Holds at most `bytes_max`, images in use and free ones together.
  static std::shared_ptr<ImagePool> Create(int64_t bytes_max);
  // A pool whose images are those of this one, of which it has at most
  // `bytes_max` in use at a time.
  std::shared_ptr<ImagePool> Share(int64_t bytes_max);
  ~ImagePool();
  ImagePool(const ImagePool&) = delete;
  ImagePool& operator=(const ImagePool&) = delete;

  // An image of `element_count` elements, of any content. Null if there is no
  // room for it: then the version lives in its file alone, which is slower.
  // It comes back when its last holder lets go.
  VersionImage Take(int64_t element_count);

  // What Take counts for an image: an odd number of huge pages.
  static int64_t AsBytes(int64_t element_count);

  int64_t bytes_max() const { return bytes_max_; }
  // Bytes that are mapped now; of a pool that shares, that are in use.
  int64_t bytes() const;

 private:
  ImagePool(int64_t bytes_max, std::shared_ptr<ImagePool> owner)
      : bytes_max_(bytes_max), owner_(std::move(owner)) {}
  void Give(float* memory, int64_t bytes);
  VersionImage TakeShared(int64_t element_count);

  const int64_t bytes_max_;
  const std::shared_ptr<ImagePool> owner_;  // Null if it maps its own.
  mutable Mutex mutex_;
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, std::vector<float*>> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::server
