#include "worker/engine/ops/cuda/stream_copier.h"

#include <atomic>
#include <cstddef>

#include "absl/status/status.h"
#include "base/status/status_macros.h"
#include "worker/engine/ops/cuda/error_latch.h"

namespace atl::engine::cuda {
namespace {

class StreamCopier final : public Copier {
 public:
  StreamCopier(int device, cudaStream_t followed)
      : followed_(followed), latch_(device) {}
  ~StreamCopier() override {
    (void)cudaSetDevice(latch_.device());
    if (stream_ != nullptr) {
      (void)cudaStreamSynchronize(stream_);
      (void)cudaStreamDestroy(stream_);
    }
    if (event_ != nullptr) (void)cudaEventDestroy(event_);
  }

  absl::Status Init() {
    const int device = latch_.device();
    RETURN_IF_ERROR(ToStatus(cudaSetDevice(device), "selecting it", device));
    RETURN_IF_ERROR(
        ToStatus(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                 "making a stream", device));
    return ToStatus(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming),
                    "making an event", device);
  }

  void Follow() override {
    if (cudaSetDevice(latch_.device()) != cudaSuccess ||
        cudaEventRecord(event_, followed_) != cudaSuccess ||
        cudaStreamWaitEvent(stream_, event_, 0) != cudaSuccess) {
      is_lost_ = true;
    }
  }
  void FromHost(size_t bytes, const void* host, void* to) override {
    Copy(bytes, host, to, cudaMemcpyHostToDevice);
  }
  void ToHost(size_t bytes, const void* from, void* host) override {
    Copy(bytes, from, host, cudaMemcpyDeviceToHost);
  }
  absl::Status status() const override { return latch_.status(); }

 private:
  void Copy(size_t bytes, const void* from, void* to, cudaMemcpyKind kind) {
    if (is_lost_) {
      latch_.Fail(absl::UnavailableError(
          "the CUDA copies cannot wait for the computation"));
    }
    if (bytes == 0 || !latch_.ok()) return;
    if (!latch_.Check(cudaSetDevice(latch_.device()), "selecting it") ||
        !latch_.Check(cudaMemcpyAsync(to, from, bytes, kind, stream_),
                      "copying on a second stream")) {
      return;
    }
    latch_.Check(cudaStreamSynchronize(stream_), "copying on a second stream");
  }

  const cudaStream_t followed_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t event_ = nullptr;
  ErrorLatch latch_;                  // For the copying thread.
  std::atomic<bool> is_lost_{false};  // Follow failed.
};

}  // namespace

absl::StatusOr<std::unique_ptr<Copier>> MakeStreamCopier(int device,
                                                         cudaStream_t stream) {
  auto copier = std::make_unique<StreamCopier>(device, stream);
  RETURN_IF_ERROR(copier->Init());
  return copier;
}

}  // namespace atl::engine::cuda
