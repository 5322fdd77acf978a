#include "cli/volunteer/machine_use.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

// A machine of files.
class MachineUseTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = absl::StrCat(testing::TempDir(), "/machine_", ::getpid());
    std::filesystem::remove_all(root_);
    facts_.emplace(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  // Sets the times of access and of change.
  void Touch(const std::string& path, absl::Time access, absl::Time change) {
    Write(path, "");
    const timespec times[] = {absl::ToTimespec(access),
                              absl::ToTimespec(change)};
    ASSERT_EQ(::utimensat(AT_FDCWD, (root_ + path).c_str(), times, 0), 0);
  }
  // Ticks of all processors since the boot.
  void SetTicks(int64_t busy, int64_t idle, int64_t own) {
    Write("/proc/stat", absl::StrCat("cpu  ", busy, " 0 0 ", idle,
                                     " 0 0 0 0 0 0\ncpu0 1 1 1 1\n"));
    Write("/proc/self/stat",
          absl::StrCat("7 (my (own) name) R 1 1 1 1 1 1 1 1 1 1 ", own,
                       " 0 0 0 20 0\n"));
  }

  std::string root_;
  std::optional<MachineUse> facts_;
  const absl::Time now_ = absl::FromUnixSeconds(1'780'000'000);
};

TEST_F(MachineUseTest, AMachineThatTellsNothingMayTrain) {
  const Facts facts = facts_->Read(now_);
  EXPECT_EQ(facts.untouched, absl::InfiniteDuration());
  EXPECT_EQ(facts.others_share, 0);
  EXPECT_FALSE(facts.on_battery);
}

TEST_F(MachineUseTest, ATerminalsInputIsATouchAndItsOutputIsNone) {
  Touch("/dev/pts/3", now_ - absl::Minutes(7), now_);
  Touch("/dev/pts/ptmx", now_, now_);
  Touch("/dev/tty2", now_ - absl::Minutes(9), now_);
  Touch("/dev/tty", now_, now_);
  EXPECT_EQ(facts_->Read(now_).untouched, absl::Minutes(7));
  Touch("/dev/tty2", now_ - absl::Seconds(3), now_);
  EXPECT_EQ(facts_->Read(now_).untouched, absl::Seconds(3));
  EXPECT_EQ(facts_->Read(now_ - absl::Hours(1)).untouched,
            absl::InfiniteDuration())
      << "the clock went back: nobody knows";
}

TEST_F(MachineUseTest, AnInterruptOfTheKeyboardIsATouch) {
  Write("/proc/interrupts",
        "  CPU0 CPU1\n  1:  9  5  IO-APIC  1-edge  i8042\n 25: 7 7 eth0\n");
  EXPECT_EQ(facts_->Read(now_).untouched, absl::InfiniteDuration());
  Write("/proc/interrupts",
        "  CPU0 CPU1\n  1:  9  6  IO-APIC  1-edge  i8042\n 25: 9 9 eth0\n");
  EXPECT_EQ(facts_->Read(now_ + absl::Seconds(5)).untouched,
            absl::ZeroDuration());
  EXPECT_EQ(facts_->Read(now_ + absl::Seconds(65)).untouched, absl::Minutes(1));
}

TEST_F(MachineUseTest, OwnWorkIsNotThatOfOtherPrograms) {
  SetTicks(1000, 1000, 500);
  facts_->Read(now_);
  SetTicks(1000 + 10000, 1000, 500 + 10000);
  EXPECT_LT(facts_->Read(now_ + absl::Minutes(5)).others_share, 0.01);
  SetTicks(11000 + 3000, 1000 + 7000, 10500);
  EXPECT_NEAR(facts_->Read(now_ + absl::Minutes(10)).others_share, 0.3, 0.01);
}

TEST_F(MachineUseTest, AShortBurstOfAnotherProgramChangesLittle) {
  SetTicks(1000, 1000, 500);
  facts_->Read(now_);
  SetTicks(1500, 1000, 500);
  EXPECT_LT(facts_->Read(now_ + absl::Seconds(5)).others_share, 0.2);
}

TEST_F(MachineUseTest, RunsOnItsBatteryUnlessAMainsIsOnline) {
  const std::string supplies = "/sys/class/power_supply/";
  Write(supplies + "mouse/type", "Battery\n");
  Write(supplies + "mouse/scope", "Device\n");
  EXPECT_FALSE(facts_->OnBattery()) << "a desktop with a mouse";
  Write(supplies + "BAT0/type", "Battery\n");
  EXPECT_TRUE(facts_->OnBattery());
  Write(supplies + "AC/type", "Mains\n");
  Write(supplies + "AC/online", "0\n");
  EXPECT_TRUE(facts_->OnBattery());
  Write(supplies + "AC/online", "1\n");
  EXPECT_FALSE(facts_->OnBattery());
}

}  // namespace
}  // namespace atl::cli
