// An answer that is encoded once for all its callers. Each gets it whole, or a
// page of its repeated items, from the same bytes. Pure. Thread-safe.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "coordinator/service/shared_slice.h"
#include "google/protobuf/io/coded_stream.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"

namespace atl::coordinator {

class EncodedItems {
 public:
  // `items` is the field of `response` that comes first; its number is below 16.
  template <typename Response, typename Items>
  EncodedItems(const Response& response, const Items& items)
      : bytes_(std::make_shared<const std::string>(
            response.SerializeAsString())) {
    for (const auto& item : items) {
      using google::protobuf::io::CodedOutputStream;
      const auto size = static_cast<uint32_t>(item.GetCachedSize());
      ends_.push_back(End(ends_.size()) + 1 +
                      CodedOutputStream::VarintSize32(size) + size);
    }
  }

  // Without items.
  template <typename Response>
  explicit EncodedItems(const Response& response)
      : EncodedItems(response, std::vector<Response>()) {}

  size_t size() const { return ends_.size(); }
  // The bytes of the items [begin, end). Requires: begin <= end <= size().
  grpc::Slice Slice(size_t begin, size_t end) const {
    return ShareSlice(bytes_, End(begin), End(end) - End(begin));
  }
  // The bytes after the items.
  grpc::Slice Rest() const {
    return ShareSlice(bytes_, End(size()), bytes_->size() - End(size()));
  }

 private:
  size_t End(size_t count) const { return count == 0 ? 0 : ends_[count - 1]; }

  std::shared_ptr<const std::string> bytes_;
  std::vector<size_t> ends_;  // By item: where it ends in bytes_.
};

}  // namespace atl::coordinator
