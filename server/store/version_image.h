// Memory for the arrays of versions, in addition to their files.
//
// A merge makes an array in an image. Merges and pulls read the image, and the
// file is written later. Images are mapped in huge pages where the system has
// them, and reused, so that steady rounds cause no page faults.
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

// The elements of an array. They stay valid while any copy of the pointer
// lives.
using VersionImage = std::shared_ptr<float[]>;

class ImagePool : public std::enable_shared_from_this<ImagePool> {
 public:
  // At most `bytes_max` for images in use and free ones together.
  static std::shared_ptr<ImagePool> Create(int64_t bytes_max);
  // A pool that takes its images from this one, at most `bytes_max` at a time.
  std::shared_ptr<ImagePool> Share(int64_t bytes_max);
  ~ImagePool();
  ImagePool(const ImagePool&) = delete;
  ImagePool& operator=(const ImagePool&) = delete;

  // An image of `element_count` elements with arbitrary content; its last
  // holder returns it. Null if the pool or the system has no memory: the array
  // then lives in its file only, which is slower.
  VersionImage Take(int64_t element_count);

  // Bytes that an image takes: an odd number of huge pages.
  static int64_t AsBytes(int64_t element_count);

  int64_t bytes_max() const { return bytes_max_; }
  // Bytes that are mapped now; for a pool that Share made, bytes in use.
  int64_t bytes() const;

 private:
  ImagePool(int64_t bytes_max, std::shared_ptr<ImagePool> owner)
      : bytes_max_(bytes_max), owner_(std::move(owner)) {}
  void Give(float* memory, int64_t bytes);
  VersionImage TakeShared(int64_t element_count);

  const int64_t bytes_max_;
  const std::shared_ptr<ImagePool> owner_;  // Null unless Share made it.
  mutable Mutex mutex_;
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, std::vector<float*>> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::server
