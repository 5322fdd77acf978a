#include "worker/engine/ops/cuda/shared_library.h"

#include <dlfcn.h>

namespace atl::engine::cuda {

absl::StatusOr<SharedLibrary> SharedLibrary::Open(absl::string_view soname,
                                                  absl::string_view product) {
  SharedLibrary library(soname, product);
  library.handle_ =
      dlopen(library.soname_.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library.handle_ == nullptr) return library.Unusable(dlerror());
  return library;
}

absl::Status SharedLibrary::Unusable(absl::string_view why) const {
  return absl::FailedPreconditionError(absl::StrCat(
      "cannot use ", soname_, " (", why, "): install ", product_,
      " or newer; LD_LIBRARY_PATH must name its folder if the system's loader "
      "does not search there"));
}

void* SharedLibrary::Address(const char* name) const {
  return dlsym(handle_, name);
}

}  // namespace atl::engine::cuda
