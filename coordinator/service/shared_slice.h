// Sends one string to many receivers without copies of it.

#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/rpc/chunk_codec.h"
#include "grpcpp/support/slice.h"

namespace atl::coordinator {

// A slice of the bytes of `text`, which it keeps alive. Not null.
inline grpc::Slice ShareSlice(std::shared_ptr<const std::string> text) {
  using Shared = std::shared_ptr<const std::string>;
  auto kept = std::make_unique<Shared>(std::move(text));
  const std::string& bytes = **kept;
  return rpc::BorrowSlice(
      bytes,
      [](void* part) {
        std::unique_ptr<Shared> last(static_cast<Shared*>(part));
      },
      kept.release());
}

}  // namespace atl::coordinator
