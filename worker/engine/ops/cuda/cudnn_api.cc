#include "worker/engine/ops/cuda/cudnn_api.h"

#include <dlfcn.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"

namespace atl::engine::cuda {
namespace {

template <typename F>
absl::Status Find(void* library, const char* name, F*& function) {
  function = reinterpret_cast<F*>(dlsym(library, name));
  if (function != nullptr) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("this cuDNN has no ", name));
}

absl::StatusOr<CudnnApi> Open() {
  // Not libcudnn.so, which ends the process if this library is missing.
  const std::string name = absl::StrCat("libcudnn_graph.so.", CUDNN_MAJOR);
  void* const library =
      dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("cannot load cuDNN: ", dlerror()));
  }
  CudnnApi a;
  RETURN_IF_ERROR(Find(library, "cudnnGetVersion", a.get_version));
  RETURN_IF_ERROR(Find(library, "cudnnGetLastErrorString", a.get_last_error));
  RETURN_IF_ERROR(Find(library, "cudnnCreate", a.create));
  RETURN_IF_ERROR(Find(library, "cudnnDestroy", a.destroy));
  RETURN_IF_ERROR(Find(library, "cudnnSetStream", a.set_stream));
  RETURN_IF_ERROR(Find(library, "cudnnBackendCreateDescriptor", a.make));
  RETURN_IF_ERROR(Find(library, "cudnnBackendDestroyDescriptor", a.end));
  RETURN_IF_ERROR(Find(library, "cudnnBackendSetAttribute", a.set));
  RETURN_IF_ERROR(Find(library, "cudnnBackendGetAttribute", a.get));
  RETURN_IF_ERROR(Find(library, "cudnnBackendFinalize", a.finalize));
  RETURN_IF_ERROR(Find(library, "cudnnBackendExecute", a.execute));
  if (a.get_version() < CUDNN_VERSION) {
    return absl::UnavailableError(
        absl::StrCat("cuDNN ", a.get_version(), " is older than ",
                     CUDNN_VERSION, ", which this program was built with"));
  }
  return a;
}

}  // namespace

absl::Status CudnnApi::ToStatus(cudnnStatus_t error,
                                absl::string_view what) const {
  if (error == CUDNN_STATUS_SUCCESS) return absl::OkStatus();
  char text[1024] = "";
  get_last_error(text, sizeof(text));
  return absl::UnavailableError(
      absl::StrCat("cuDNN failed in ", what, " (error ",
                   static_cast<int>(error), "): ", text));
}

absl::StatusOr<const CudnnApi*> OpenCudnn() {
  static const absl::StatusOr<CudnnApi> api = Open();
  if (!api.ok()) return api.status();
  return &*api;
}

CudnnDescriptor::CudnnDescriptor(const CudnnApi& api,
                                 cudnnBackendDescriptorType_t type)
    : api_(&api), descriptor_(nullptr, Owner{&api}) {
  cudnnBackendDescriptor_t made = nullptr;
  Keep(api.make(type, &made), "making a descriptor");
  descriptor_.reset(made);
}

void CudnnDescriptor::Keep(cudnnStatus_t error, absl::string_view what) {
  if (error != CUDNN_STATUS_SUCCESS) status_ = api_->ToStatus(error, what);
}

}  // namespace atl::engine::cuda
