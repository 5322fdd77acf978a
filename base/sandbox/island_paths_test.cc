#include "base/sandbox/island_paths.h"

#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<PathAccess> AccessTo(const std::vector<PathRule>& rules,
                                 const std::string& path) {
  std::vector<PathAccess> found;
  for (const PathRule& rule : rules) {
    if (rule.path == path) found.push_back(rule.access);
  }
  return found;
}

// True if a rule is for `path` or for a directory above it.
bool Covers(const std::vector<PathRule>& rules, const std::string& path) {
  for (const PathRule& rule : rules) {
    if (rule.access == PathAccess::kList) continue;
    if (path == rule.path || path.rfind(rule.path + "/", 0) == 0) return true;
  }
  return false;
}

IslandPaths Anna() {
  IslandPaths paths;
  paths.home = "/home/anna";
  paths.program = "/home/anna/Downloads/atoll/bin/atoll";
  paths.mapped_files = {paths.program,
                        "/home/anna/Downloads/atoll/lib/libgrpc.so.29",
                        "/usr/lib/x86_64-linux-gnu/libc.so.6"};
  return paths;
}

TEST(IslandRulesTest, NothingOfTheHomeIsReadableButWhatIsNamed) {
  IslandPaths paths = Anna();
  paths.data = {"/home/anna/corpus"};
  paths.write = {"/home/anna/.local/state/atoll/islands/spring/kitchen"};
  const std::vector<PathRule> rules = IslandRules(paths);
  for (const char* path :
       {"/home/anna/.ssh/id_ed25519", "/home/anna", "/home/anna/mail",
        "/home/anna/.aws/credentials", "/home/anna/Downloads/letter.pdf",
        "/home/anna/Downloads/atoll/bin/other",
        "/home/anna/.local/state/atoll/enrolments/other/tls.key", "/home/ben",
        "/root", "/tmp", "/var/lib", "/srv", "/mnt", "/media", "/boot"}) {
    EXPECT_FALSE(Covers(rules, path)) << path;
  }
  EXPECT_THAT(AccessTo(rules, "/home/anna/corpus"),
              ElementsAre(PathAccess::kRead));
  EXPECT_THAT(
      AccessTo(rules, "/home/anna/.local/state/atoll/islands/spring/kitchen"),
      ElementsAre(PathAccess::kWrite));
}

TEST(IslandRulesTest, ProgramsLibrariesAndTheMachineAreReadable) {
  const std::vector<PathRule> rules = IslandRules(Anna());
  for (const char* path :
       {"/usr/lib/libm.so.6", "/lib64/ld-linux-x86-64.so.2", "/opt/cuda/lib",
        "/home/anna/Downloads/atoll/lib/libz.so", "/proc/self/exe",
        "/etc/resolv.conf", "/sys/fs/cgroup",
        "/run/systemd/resolve/stub-resolv.conf"}) {
    EXPECT_TRUE(Covers(rules, path)) << path;
  }
  for (const char* path : {"/etc", "/proc", "/sys"}) {
    EXPECT_THAT(AccessTo(rules, path), ElementsAre(PathAccess::kRead));
  }
}

TEST(IslandRulesTest, ALibraryInTheHomeItselfDoesNotOpenTheHome) {
  IslandPaths paths = Anna();
  paths.mapped_files.push_back("/home/anna/libhack.so");
  paths.library_directories = {"/home/anna/conda/lib", "/home/anna/", "/home",
                               "/"};
  const std::vector<PathRule> rules = IslandRules(paths);
  EXPECT_TRUE(Covers(rules, "/home/anna/libhack.so"));
  EXPECT_TRUE(Covers(rules, "/home/anna/conda/lib/libcuda.so"));
  EXPECT_FALSE(Covers(rules, "/home/anna/.ssh/id_ed25519"));
}

TEST(IslandRulesTest, AHomeWithoutANameOpensNothing) {
  IslandPaths paths = Anna();
  paths.home = "";
  EXPECT_FALSE(Covers(IslandRules(paths), "/.nv"));
  EXPECT_FALSE(Covers(IslandRules(paths), "/home/anna/.ssh/id_ed25519"));
}

TEST(IslandRulesTest, DevicesOfCudaAreWritableOthersAreNot) {
  IslandPaths paths = Anna();
  paths.device_names = {"nvidia0", "nvidiactl", "nvidia-uvm", "sda", "mem",
                        "infiniband", "kvm"};
  const std::vector<PathRule> rules = IslandRules(paths);
  for (const char* path : {"/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm",
                           "/dev/infiniband", "/dev/null", "/dev/urandom"}) {
    EXPECT_THAT(AccessTo(rules, path), ElementsAre(PathAccess::kDevice)) << path;
  }
  for (const char* path : {"/dev/sda", "/dev/mem", "/dev/kvm"}) {
    EXPECT_FALSE(Covers(rules, path)) << path;
  }
  EXPECT_THAT(AccessTo(rules, "/dev"), ElementsAre(PathAccess::kList));
  EXPECT_THAT(AccessTo(rules, "/dev/shm"), ElementsAre(PathAccess::kWrite));
  EXPECT_THAT(AccessTo(rules, "/home/anna/.nv"),
              ElementsAre(PathAccess::kWrite));
}

TEST(ParseMappedFilesTest, FindsFilesOnceAndNothingElse) {
  EXPECT_THAT(
      ParseMappedFiles(
          "55d0-55e0 r--p 00000000 fe:01 17  /opt/a b/bin/atoll\n"
          "55e0-55f0 r-xp 00010000 fe:01 17  /opt/a b/bin/atoll\n"
          "7f00-7f10 rw-p 00000000 00:00 0 \n"
          "7f10-7f20 r-xp 00000000 fe:01 18  /usr/lib/libc.so.6\n"
          "7f20-7f30 rw-s 00000000 00:01 19  /dev/zero (deleted)\n"
          "7f30-7f40 r-xp 00000000 fe:01 20  /usr/lib/old.so (deleted)\n"
          "7ffc-7ffd rw-p 00000000 00:00 0   [stack]\n"),
      ElementsAre("/opt/a b/bin/atoll", "/usr/lib/libc.so.6"));
  EXPECT_THAT(ParseMappedFiles(""), IsEmpty());
}

}  // namespace
}  // namespace atl
