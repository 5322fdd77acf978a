// An answer that is encoded once for all its callers. Each gets it whole, or a
// page of its repeated items, from the same bytes. Pure. Thread-safe.

#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/service/shared_slice.h"
#include "google/protobuf/io/coded_stream.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"

namespace atl::coordinator {

class EncodedItems {
 public:
  // Without items. `head`, if not null, is an encoded part that other answers
  // share, and comes first.
  template <typename Response>
  explicit EncodedItems(const Response& response,
                        std::shared_ptr<const std::string> head = nullptr)
      : head_(std::move(head)),
        bytes_(std::make_shared<const std::string>(
            response.SerializeAsString())) {}

  // `items` is the field of `response` that comes first; its number is below 16.
  // `name` returns an item's name.
  template <typename Response, typename Items, typename Name>
  EncodedItems(const Response& response, const Items& items, const Name& name)
      : EncodedItems(response) {
    for (const auto& item : items) {
      using google::protobuf::io::CodedOutputStream;
      const auto size = static_cast<uint32_t>(item.GetCachedSize());
      ends_.push_back(End(ends_.size()) + 1 +
                      CodedOutputStream::VarintSize32(size) + size);
      names_.push_back(name(item));
    }
  }

  const std::vector<std::string>& names() const { return names_; }  // By item.
  // The bytes of the items [begin, end). Requires: begin <= end <= their number.
  grpc::Slice Slice(size_t begin, size_t end) const {
    return ShareSlice(bytes_, End(begin), End(end) - End(begin));
  }
  // The bytes after the items.
  grpc::Slice Rest() const {
    const size_t begin = End(ends_.size());
    return ShareSlice(bytes_, begin, bytes_->size() - begin);
  }
  grpc::ByteBuffer Whole() const {
    const grpc::Slice parts[] = {
        head_ == nullptr ? grpc::Slice() : ShareSlice(head_),
        ShareSlice(bytes_)};
    return grpc::ByteBuffer(parts, std::size(parts));
  }

 private:
  size_t End(size_t count) const { return count == 0 ? 0 : ends_[count - 1]; }

  std::shared_ptr<const std::string> head_;
  std::shared_ptr<const std::string> bytes_;
  std::vector<size_t> ends_;  // By item: where it ends in bytes_.
  std::vector<std::string> names_;
};

}  // namespace atl::coordinator
