// An answer that is encoded once for all its callers. Each gets it whole, or a
// page of its repeated items, from the same bytes. They are kept in blocks, so
// that a page that is sent slowly keeps little besides itself. Pure.
// Thread-safe.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
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
  static constexpr size_t kBlockBytes = 64 << 10;
  // A page ends before it has more, because messages are bounded.
  static constexpr size_t kPageBytesMax = 2 << 20;

  // Without items. `head`, if not null, is an encoded part that other answers
  // share, and comes first.
  template <typename Response>
  explicit EncodedItems(const Response& response,
                        std::shared_ptr<const std::string> head = nullptr)
      : head_(std::move(head)) {
    const std::string bytes = response.SerializeAsString();
    size_ = bytes.size();
    for (size_t begin = 0; begin < size_; begin += kBlockBytes) {
      blocks_.push_back(std::make_shared<const std::string>(
          bytes.substr(begin, kBlockBytes)));
    }
  }

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
  // The items from `begin` that a page may have; at least one.
  // Requires: begin < their number.
  size_t CountFitting(size_t begin) const {
    const auto end = std::upper_bound(ends_.begin() + begin, ends_.end(),
                                      End(begin) + kPageBytesMax);
    return std::max<size_t>(1, end - ends_.begin() - begin);
  }
  // Adds the bytes of the items [begin, end). Requires: begin <= end <= their
  // number.
  void Add(size_t begin, size_t end, std::vector<grpc::Slice>& parts) const {
    AddBytes(End(begin), End(end), parts);
  }
  // Adds the bytes after the items.
  void AddRest(std::vector<grpc::Slice>& parts) const {
    AddBytes(End(ends_.size()), size_, parts);
  }
  grpc::ByteBuffer Whole() const {
    std::vector<grpc::Slice> parts;
    if (head_ != nullptr) parts.push_back(ShareSlice(head_));
    AddBytes(0, size_, parts);
    return grpc::ByteBuffer(parts.data(), parts.size());
  }
  // For tests: which blocks are still kept.
  std::vector<std::weak_ptr<const std::string>> blocks() const {
    return {blocks_.begin(), blocks_.end()};
  }

 private:
  size_t End(size_t count) const { return count == 0 ? 0 : ends_[count - 1]; }
  void AddBytes(size_t begin, size_t end,
                std::vector<grpc::Slice>& parts) const {
    while (begin < end) {
      const size_t from = begin % kBlockBytes;
      const size_t size = std::min(end - begin, kBlockBytes - from);
      parts.push_back(ShareSlice(blocks_[begin / kBlockBytes], from, size));
      begin += size;
    }
  }

  std::shared_ptr<const std::string> head_;
  size_t size_ = 0;  // Bytes of all blocks.
  // Each of kBlockBytes but the last.
  std::vector<std::shared_ptr<const std::string>> blocks_;
  std::vector<size_t> ends_;  // By item: where it ends in these bytes.
  std::vector<std::string> names_;
};

}  // namespace atl::coordinator
