// A library that a program opens on first use, so that it starts without it.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace atl::engine::cuda {

// Immutable. The library stays open until the program ends.
class SharedLibrary {
 public:
  // Opens `soname` where the system's loader finds it. `product` is its name
  // and least version, as errors tell the user to install it: "NCCL 2.28.9".
  //
  // FAILED_PRECONDITION: it is missing, or cannot be loaded.
  static absl::StatusOr<SharedLibrary> Open(absl::string_view soname,
                                            absl::string_view product);

  // Sets `function` to the library's function of that name.
  //
  // FAILED_PRECONDITION: it has no such function; `function` is null.
  template <typename F>
  absl::Status Find(const char* name, F*& function) const {
    function = reinterpret_cast<F*>(Address(name));
    return function != nullptr ? absl::OkStatus()
                               : Unusable(absl::StrCat("it has no ", name));
  }

  // FAILED_PRECONDITION, with the library, `why` and what to install.
  absl::Status Unusable(absl::string_view why) const;

 private:
  SharedLibrary(absl::string_view soname, absl::string_view product)
      : soname_(soname), product_(product) {}

  void* Address(const char* name) const;

  std::string soname_, product_;
  void* handle_ = nullptr;
};

}  // namespace atl::engine::cuda
