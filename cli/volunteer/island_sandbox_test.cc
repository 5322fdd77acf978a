#include "cli/volunteer/island_sandbox.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(SandboxMarkTest, IsForOneProcessAlone) {
  const Environment marked = {{"ATOLL_SANDBOX", "123:/state/enrolments/a:b"}};
  const SandboxMark own = ReadSandboxMark(marked, 123);
  EXPECT_TRUE(own.is_inside);
  EXPECT_EQ(own.enrolment_directory, "/state/enrolments/a:b");
  // A process that it starts.
  EXPECT_FALSE(ReadSandboxMark(marked, 124).is_inside);
  EXPECT_TRUE(ReadSandboxMark({{"ATOLL_SANDBOX", "7:"}}, 7).is_inside);
  for (const char* text : {"", ":", "x:/a", "123", "1e3:"}) {
    EXPECT_FALSE(ReadSandboxMark({{"ATOLL_SANDBOX", text}}, 7).is_inside);
  }
  EXPECT_FALSE(ReadSandboxMark({}, 7).is_inside);
}

TEST(FindIslandPathsTest, FindsLibrariesAndAuthorities) {
  const IslandPaths paths =
      FindIslandPaths({{"HOME", "/home/anna"},
                       {"LD_LIBRARY_PATH", "/conda/lib::relative"},
                       {"SSL_CERT_FILE", "/home/anna/ca.pem"},
                       {"CURL_CA_BUNDLE", ""}},
                      "/bin/atoll");
  EXPECT_EQ(paths.home, "/home/anna");
  EXPECT_EQ(paths.program, "/bin/atoll");
  EXPECT_THAT(paths.library_directories,
              ElementsAre("/conda/lib"));
  EXPECT_THAT(paths.read, Contains("/home/anna/ca.pem"));
  EXPECT_THAT(paths.mapped_files, Contains(HasSubstr("libc.so")));
  EXPECT_THAT(paths.device_names, Contains("null"));
  EXPECT_THAT(paths.data, IsEmpty());
}

TEST(HintAtSandboxTest, HintsIfThisMachineRefusedAFile) {
  const absl::Status file = HintAtSandbox(absl::PermissionDeniedError(
      "data file /home/anna/a cannot be opened: Permission denied"));
  EXPECT_TRUE(absl::IsPermissionDenied(file));
  EXPECT_NE(file, absl::PermissionDeniedError(file.message()));  // Has a hint.
  const absl::Status peer =
      absl::PermissionDeniedError("an island may not list runs");
  EXPECT_EQ(HintAtSandbox(peer), peer);
  EXPECT_EQ(HintAtSandbox(absl::OkStatus()), absl::OkStatus());
}

}  // namespace
}  // namespace atl::cli
