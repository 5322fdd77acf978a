#include "worker/engine/ops/cuda/cudnn_api.h"

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "worker/engine/ops/cuda/shared_library.h"

namespace atl::engine::cuda {
namespace {

absl::StatusOr<CudnnApi> Open() {
  // Not libcudnn.so, which ends the process if this library is missing.
  ASSIGN_OR_RETURN(const SharedLibrary library,
                   SharedLibrary::Open(
                       absl::StrCat("libcudnn_graph.so.", CUDNN_MAJOR),
                       absl::StrCat("cuDNN ", CUDNN_MAJOR, ".", CUDNN_MINOR)));
  CudnnApi a;
  RETURN_IF_ERROR(library.Find("cudnnGetVersion", a.get_version));
  RETURN_IF_ERROR(library.Find("cudnnGetLastErrorString", a.get_last_error));
  RETURN_IF_ERROR(library.Find("cudnnCreate", a.create));
  RETURN_IF_ERROR(library.Find("cudnnDestroy", a.destroy));
  RETURN_IF_ERROR(library.Find("cudnnSetStream", a.set_stream));
  RETURN_IF_ERROR(library.Find("cudnnBackendCreateDescriptor", a.make));
  RETURN_IF_ERROR(library.Find("cudnnBackendDestroyDescriptor", a.end));
  RETURN_IF_ERROR(library.Find("cudnnBackendSetAttribute", a.set));
  RETURN_IF_ERROR(library.Find("cudnnBackendGetAttribute", a.get));
  RETURN_IF_ERROR(library.Find("cudnnBackendFinalize", a.finalize));
  RETURN_IF_ERROR(library.Find("cudnnBackendExecute", a.execute));
  if (a.get_version() < CUDNN_VERSION) {
    return library.Unusable(absl::StrCat("version ", a.get_version(),
                                         " is older than ", CUDNN_VERSION));
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
