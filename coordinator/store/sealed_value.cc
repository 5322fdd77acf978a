#include "coordinator/store/sealed_value.h"

#include <cstdint>
#include <cstring>

#include "base/codec/crc32c.h"

namespace atl::coordinator {

std::string Seal(std::string bytes) {
  const uint32_t crc = codec::Crc32c(bytes);
  char tail[4];
  std::memcpy(tail, &crc, 4);
  bytes.append(tail, 4);
  return bytes;
}

bool Unseal(absl::string_view value, absl::string_view& bytes) {
  if (value.size() < 4) return false;
  bytes = value.substr(0, value.size() - 4);
  uint32_t crc;
  std::memcpy(&crc, value.data() + bytes.size(), 4);
  return crc == codec::Crc32c(bytes);
}

}  // namespace atl::coordinator
