#include "base/machine/cgroup.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

constexpr char kV2Mount[] =
    "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr char kV2[] = "/sys/fs/cgroup/";

class CgroupTest : public testing::Test {
 protected:
  CgroupTest()
      : root_(absl::StrCat(
            testing::TempDir(), "/",
            testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::remove_all(root_);
  }
  ~CgroupTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path full(root_ + path);
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  void SetSelf(const std::string& mountinfo, const std::string& cgroup) {
    Write("/proc/self/mountinfo", mountinfo);
    Write("/proc/self/cgroup", cgroup);
  }
  CgroupLimits Read() { return ReadCgroupLimits(root_); }

  const std::string root_;
};

TEST_F(CgroupTest, NoTreeLimitsNothing) {
  EXPECT_FALSE(Read().memory_bytes.has_value());
  EXPECT_FALSE(Read().processors.has_value());
}

TEST_F(CgroupTest, AContainerReadsItsGroupAtTheMountPoint) {
  SetSelf(kV2Mount, "0::/\n");
  Write(absl::StrCat(kV2, "memory.max"), "1073741824\n");
  Write(absl::StrCat(kV2, "memory.high"), "max\n");
  Write(absl::StrCat(kV2, "cpu.max"), "150000 100000\n");
  EXPECT_EQ(Read().memory_bytes, int64_t{1} << 30);
  EXPECT_EQ(Read().processors, 1.5);
}

TEST_F(CgroupTest, MaxIsNoLimit) {
  SetSelf(kV2Mount, "0::/\n");
  Write(absl::StrCat(kV2, "memory.max"), "max\n");
  Write(absl::StrCat(kV2, "cpu.max"), "max 100000\n");
  EXPECT_FALSE(Read().memory_bytes.has_value());
  EXPECT_FALSE(Read().processors.has_value());
}

TEST_F(CgroupTest, TheSmallestLimitOfTheAncestorsCounts) {
  SetSelf(kV2Mount, "0::/a/b/c\n");
  Write(absl::StrCat(kV2, "a/memory.max"), "3000\n");
  Write(absl::StrCat(kV2, "a/cpu.max"), "400000 100000\n");
  Write(absl::StrCat(kV2, "a/b/memory.max"), "5000\n");
  Write(absl::StrCat(kV2, "a/b/cpu.max"), "300000 100000\n");
  Write(absl::StrCat(kV2, "a/b/c/memory.max"), "max\n");
  Write(absl::StrCat(kV2, "a/other/memory.max"), "1000\n");
  EXPECT_EQ(Read().memory_bytes, 3000);
  EXPECT_EQ(Read().processors, 3.0);
}

TEST_F(CgroupTest, MemoryHighCountsBecauseItStallsTheProcess) {
  SetSelf(kV2Mount, "0::/a\n");
  Write(absl::StrCat(kV2, "a/memory.max"), "5000\n");
  Write(absl::StrCat(kV2, "a/memory.high"), "4000\n");
  EXPECT_EQ(Read().memory_bytes, 4000);
}

TEST_F(CgroupTest, VersionOneHasAMountForEachController) {
  SetSelf(
      "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
      "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup "
      "rw,cpu,cpuacct\n"
      "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
      "4:memory:/m/n\n2:cpu,cpuacct:/c\n1:name=systemd:/s\n0::/\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "7000\n");
  Write("/sys/fs/cgroup/memory/m/n/memory.limit_in_bytes",
        "9223372036854771712\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us", "50000\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Read().memory_bytes, 7000);
  EXPECT_EQ(Read().processors, 0.5);
}

TEST_F(CgroupTest, AMountOfAGroupShowsThePathBelowIt) {
  SetSelf(
      "35 31 0:32 /docker/1a2b /sys/fs/cgroup/memory ro - cgroup cgroup "
      "rw,memory\n",
      "4:memory:/docker/1a2b/inner\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9000\n");
  Write("/sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "8000\n");
  EXPECT_EQ(Read().memory_bytes, 8000);
}

TEST_F(CgroupTest, AHostPathThatTheMountLacksFallsBackToTheMountPoint) {
  SetSelf(kV2Mount, "0::/kubepods/pod7/1a2b\n");
  Write(absl::StrCat(kV2, "memory.max"), "6000\n");
  Write(absl::StrCat(kV2, "cpu.max"), "200000 100000\n");
  EXPECT_EQ(Read().memory_bytes, 6000);
  EXPECT_EQ(Read().processors, 2.0);
}

TEST_F(CgroupTest, APathOutOfTheNamespaceFallsBackToTheMountPoint) {
  SetSelf("30 23 0:26 /pod7 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
          "0::/../other\n");
  Write(absl::StrCat(kV2, "memory.max"), "6000\n");
  Write(absl::StrCat(kV2, "other/memory.max"), "1000\n");
  EXPECT_EQ(Read().memory_bytes, 6000);
  SetSelf(kV2Mount, "0::/../other\n");
  EXPECT_EQ(Read().memory_bytes, 6000);
}

TEST_F(CgroupTest, DamagedFilesLimitNothing) {
  SetSelf(absl::StrCat("nonsense\n", kV2Mount, "30 23\n"), "x\n0::/a\n:\n");
  Write(absl::StrCat(kV2, "memory.max"), "many\n");
  Write(absl::StrCat(kV2, "a/memory.max"), "-1\n");
  Write(absl::StrCat(kV2, "a/cpu.max"), "100000\n");
  EXPECT_FALSE(Read().memory_bytes.has_value());
  EXPECT_FALSE(Read().processors.has_value());
}

TEST_F(CgroupTest, AMountPointMayHaveASpace) {
  SetSelf("30 23 0:26 / /sys/fs/c\\040group rw - cgroup2 cgroup2 rw\n",
          "0::/\n");
  Write("/sys/fs/c group/memory.max", "4000\n");
  EXPECT_EQ(Read().memory_bytes, 4000);
}

}  // namespace
}  // namespace atl
