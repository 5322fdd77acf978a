// An island inside its sandbox opens the path that a run's spec names, as it
// once did, and reads nothing.

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "base/sandbox/landlock.h"
#include "cli/volunteer/island_sandbox.h"
#include "gtest/gtest.h"
#include "worker/data/data_set.h"

namespace atl {
namespace {

class OldDataCodeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (LandlockAbi() == 0) GTEST_SKIP() << "this kernel has no Landlock";
    std::string name = ::testing::TempDir() + "/home.XXXXXX";
    home_ = ::mkdtemp(name.data());
    for (const char* folder : {".ssh", "corpus", "state"}) {
      ::mkdir((home_ + "/" + folder).c_str(), 0700);
    }
    std::ofstream(home_ + "/.ssh/id_ed25519") << "a private key of anna's\n";
    std::ofstream(home_ + "/corpus/text") << "text that anna gives\n";
  }

  // Opens `path` as data inside the sandbox of an island with
  // `--data HOME/corpus`.
  absl::StatusCode OpenInside(const std::string& path) const {
    const pid_t pid = ::fork();
    if (pid == 0) {
      IslandPaths paths =
          cli::FindIslandPaths({{"HOME", home_}}, "/proc/self/exe");
      paths.data = {home_ + "/corpus"};
      paths.write = {home_ + "/state"};
      if (!LimitPaths(LandlockAbi(), IslandRules(paths), true).ok()) {
        ::_exit(100);
      }
      ::_exit(static_cast<int>(Open(path)));
    }
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status));
    return static_cast<absl::StatusCode>(WEXITSTATUS(status));
  }

  static absl::StatusCode Open(const std::string& path) {
    v1::DataSpec spec;
    spec.set_format(v1::DATA_FORMAT_BYTES);
    spec.set_path(path);
    spec.set_data_shard_count(1);
    return worker::DataSet::Open(spec, path).status().code();
  }

  std::string home_;
};

TEST_F(OldDataCodeTest, ReadsAKeyOutsideTheSandbox) {
  EXPECT_EQ(Open(home_ + "/.ssh/id_ed25519"), absl::StatusCode::kOk);
  EXPECT_EQ(Open(home_), absl::StatusCode::kOk);
}

TEST_F(OldDataCodeTest, ReadsNothingOfTheHomeInside) {
  EXPECT_EQ(OpenInside(home_ + "/.ssh/id_ed25519"),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(OpenInside(home_ + "/corpus/../.ssh/id_ed25519"),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(OpenInside("/proc/self/root" + home_ + "/.ssh/id_ed25519"),
            absl::StatusCode::kPermissionDenied);
  EXPECT_NE(OpenInside(home_), absl::StatusCode::kOk);
}

TEST_F(OldDataCodeTest, ReadsInsideWhatItsPersonGave) {
  EXPECT_EQ(OpenInside(home_ + "/corpus"), absl::StatusCode::kOk);
  EXPECT_EQ(OpenInside(home_ + "/corpus/text"), absl::StatusCode::kOk);
}

TEST_F(OldDataCodeTest, ALinkInTheDataIsNoWayOut) {
  ASSERT_EQ(::symlink((home_ + "/.ssh/id_ed25519").c_str(),
                      (home_ + "/corpus/link").c_str()),
            0);
  EXPECT_EQ(OpenInside(home_ + "/corpus/link"),
            absl::StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace atl
