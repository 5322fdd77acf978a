// Sends one string to many receivers without copies of it.

#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "base/rpc/chunk_codec.h"
#include "grpcpp/support/slice.h"

namespace atl::coordinator {

// A slice of `size` bytes of `text` from `begin`, which keeps it alive. Not
// null.
inline grpc::Slice ShareSlice(std::shared_ptr<const std::string> text,
                              size_t begin = 0,
                              size_t size = std::string::npos) {
  using Shared = std::shared_ptr<const std::string>;
  auto kept = std::make_unique<Shared>(std::move(text));
  const absl::string_view bytes =
      absl::string_view(**kept).substr(begin, size);
  return rpc::BorrowSlice(
      bytes,
      [](void* part) {
        std::unique_ptr<Shared> last(static_cast<Shared*>(part));
      },
      kept.release());
}

}  // namespace atl::coordinator
