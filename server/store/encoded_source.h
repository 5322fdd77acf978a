// The source from which a merge reads one contribution: a shard's log, or a
// replay's memory.
//
// Thread-safe.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "base/layout/layout.h"
#include "server/store/encoded_range.h"

namespace atl::server {

class EncodedSource {
 public:
  virtual ~EncodedSource() = default;

  virtual const EncodedRange& encoded() const = 0;
  // For messages.
  virtual std::string ToString() const = 0;
  // Reads the encoding of `blocks` into `bytes`, of
  // encoded().ByteCount(blocks).
  //
  // DATA_LOSS: a checksum does not match; the message names the file.
  virtual absl::Status ReadEncoded(IndexRange blocks, char* bytes) const = 0;

  // Reads and decodes `blocks` into `elements`, of their element count.
  //
  // DATA_LOSS: also if a block cannot be decoded.
  absl::Status Read(IndexRange blocks, float* elements) const;
};

}  // namespace atl::server
