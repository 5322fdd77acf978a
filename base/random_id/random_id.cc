#include "base/random_id/random_id.h"

#include <sys/random.h>

#include <cerrno>
#include <cstddef>

#include "absl/strings/escaping.h"
#include "base/status/check.h"

namespace atl {
namespace {

constexpr size_t kBytes = 16;

}  // namespace

std::string RandomId() {
  std::string bytes(kBytes, '\0');
  ssize_t count = 0;
  // Up to 256 bytes come whole. A signal can interrupt only the wait for
  // entropy.
  do {
    count = ::getrandom(bytes.data(), bytes.size(), 0);
  } while (count < 0 && errno == EINTR);
  CHECK_EQ(count, static_cast<ssize_t>(bytes.size()));
  return absl::BytesToHexString(bytes);
}

bool IsRandomId(absl::string_view id) {
  return id.size() == 2 * kBytes &&
         id.find_first_not_of("0123456789abcdef") == absl::string_view::npos;
}

}  // namespace atl
