#include "worker/engine/ops/cuda/shared_library.h"

#include <cmath>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace atl::engine::cuda {
namespace {

TEST(SharedLibraryTest, FindsTheFunctionsOfALibrary) {
  const auto library = SharedLibrary::Open("libm.so.6", "glibc 2");
  ASSERT_TRUE(library.ok()) << library.status();
  double (*root)(double) = nullptr;
  ASSERT_TRUE(library->Find("sqrt", root).ok());
  EXPECT_EQ(root(9), 3);
}

TEST(SharedLibraryTest, NamesAMissingLibraryAndWhatToInstall) {
  const absl::Status status =
      SharedLibrary::Open("libnone.so.7", "None 7.1").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  const std::string message(status.message());
  EXPECT_TRUE(absl::StartsWith(message, "cannot use libnone.so.7 ("))
      << message;
  EXPECT_TRUE(absl::StrContains(message, "install None 7.1")) << message;
}

TEST(SharedLibraryTest, NamesAMissingFunction) {
  const auto library = SharedLibrary::Open("libm.so.6", "glibc 2");
  ASSERT_TRUE(library.ok()) << library.status();
  double (*root)(double) = std::sqrt;
  const absl::Status status = library->Find("no_such_root", root);
  EXPECT_EQ(root, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  const std::string message(status.message());
  EXPECT_TRUE(absl::StartsWith(message,
                               "cannot use libm.so.6 (it has no no_such_root)"))
      << message;
}

}  // namespace
}  // namespace atl::engine::cuda
