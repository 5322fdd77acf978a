// cuDNN's functions, from a library opened at run time. It may be missing.

#pragma once

#include <cudnn.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace atl::engine::cuda {

// Immutable.
struct CudnnApi {
  decltype(&cudnnGetVersion) get_version = nullptr;
  decltype(&cudnnGetLastErrorString) get_last_error = nullptr;
  decltype(&cudnnCreate) create = nullptr;
  decltype(&cudnnDestroy) destroy = nullptr;
  decltype(&cudnnSetStream) set_stream = nullptr;
  decltype(&cudnnBackendCreateDescriptor) make = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) end = nullptr;
  decltype(&cudnnBackendSetAttribute) set = nullptr;
  decltype(&cudnnBackendGetAttribute) get = nullptr;
  decltype(&cudnnBackendFinalize) finalize = nullptr;
  decltype(&cudnnBackendExecute) execute = nullptr;

  // OK, or UNAVAILABLE with cuDNN's own message.
  absl::Status ToStatus(cudnnStatus_t error, absl::string_view what) const;
};

// This machine's library, which stays open.
//
// FAILED_PRECONDITION: it is missing, or older than at compile time.
absl::StatusOr<const CudnnApi*> OpenCudnn();

// A cuDNN descriptor: of a tensor, a step, a graph or an execution. After the
// first error calls do nothing. Thread-compatible.
class CudnnDescriptor {
 public:
  CudnnDescriptor(const CudnnApi& api, cudnnBackendDescriptorType_t type);
  CudnnDescriptor(CudnnDescriptor&&) = default;

  cudnnBackendDescriptor_t get() const { return descriptor_.get(); }
  const absl::Status& status() const { return status_; }

  template <typename T>
  void Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
           int64_t count, const T* values) {
    if (!status_.ok()) return;
    Keep(api_->set(get(), name, type, count, values), "describing a graph");
  }
  void Set(cudnnBackendAttributeName_t name, int64_t value) {
    Set(name, CUDNN_TYPE_INT64, 1, &value);
  }
  void Set(cudnnBackendAttributeName_t name, bool value) {
    Set(name, CUDNN_TYPE_BOOLEAN, 1, &value);
  }
  void Set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
    Set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
  }
  void Set(cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value) {
    Set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
  }
  absl::Status Finalize() {
    if (status_.ok()) Keep(api_->finalize(get()), "checking a graph");
    return status_;
  }

 private:
  struct Owner {
    const CudnnApi* api;
    void operator()(cudnnBackendDescriptor_t d) const { (void)api->end(d); }
  };

  void Keep(cudnnStatus_t error, absl::string_view what);

  const CudnnApi* api_;
  std::unique_ptr<void, Owner> descriptor_;
  absl::Status status_;
};

}  // namespace atl::engine::cuda
