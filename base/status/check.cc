#include "base/status/check.h"

#include <cstdio>
#include <cstdlib>

namespace atl::check_internal {

Failure::Failure(const char* file, int line, const char* condition) {
  stream_ << file << ":" << line << ": check failed: " << condition << " ";
}

Failure::~Failure() {
  const std::string message = stream_.str();
  std::fprintf(stderr, "%s\n", message.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace atl::check_internal
