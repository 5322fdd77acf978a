#include "coordinator/store/log_mark.h"

#include <cerrno>
#include <string>

#include "base/io/files.h"
#include "base/io/testing/fake_file_system.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using Call = FakeFileSystem::Fault::Call;

class LogMarkTest : public testing::Test {
 protected:
  LogMarkTest() {
    (void)files_.CreateDirectories("d");
    (void)files_.SyncDirectory("d");
  }

  std::optional<int64_t> Reread() {
    const auto mark = LogMark::Read(files_, "d/mark");
    EXPECT_TRUE(mark.ok()) << mark.status();
    return mark.ok() ? (*mark)->index() : std::nullopt;
  }

  void WriteAll(int64_t begin, int64_t end) {
    const auto mark = LogMark::Read(files_, "d/mark");
    ASSERT_TRUE(mark.ok()) << mark.status();
    for (int64_t index = begin; index < end; ++index) {
      ASSERT_TRUE((*mark)->Write(index).ok());
      EXPECT_EQ((*mark)->index(), index);
    }
  }

  void Zero(int64_t offset) {
    const auto file = files_.OpenForWrite("d/mark");
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->WriteAt(offset, std::string(4096, '\0')).ok());
  }

  FakeFileSystem files_;
};

TEST_F(LogMarkTest, ReadingMakesNoFile) {
  EXPECT_EQ(Reread(), std::nullopt);
  EXPECT_FALSE(files_.Exists("d/mark"));
}

TEST_F(LogMarkTest, SurvivesAPowerCutAfterEachWrite) {
  for (int64_t index = 0; index < 5; ++index) {
    WriteAll(index, index + 1);
    files_.Crash();
    EXPECT_EQ(Reread(), index);
  }
}

TEST_F(LogMarkTest, HasTheOlderNumberIfTheNewestSlotIsTorn) {
  WriteAll(0, 8);  // 7 is in the second slot.
  Zero(4096);
  EXPECT_EQ(Reread(), 6);
  // The next write replaces the torn slot.
  WriteAll(9, 10);
  EXPECT_EQ(Reread(), 9);
  Zero(4096);
  EXPECT_EQ(Reread(), 6);
}

TEST_F(LogMarkTest, HasNoNumberIfBothSlotsAreDamaged) {
  WriteAll(3, 5);
  Zero(0);
  EXPECT_EQ(Reread(), 4);
  Zero(4096);
  EXPECT_EQ(Reread(), std::nullopt);
}

TEST_F(LogMarkTest, NeverWritesOverTheSlotThatHolds) {
  const auto mark = LogMark::Read(files_, "d/mark");
  ASSERT_TRUE(mark.ok());
  ASSERT_TRUE((*mark)->Write(1).ok());
  for (const Call call : {Call::kWrite, Call::kSync, Call::kWrite}) {
    files_.AddFault({.call = call,
                     .path_part = "mark",
                     .error_number = EIO,
                     .written_bytes = 100});
    EXPECT_FALSE((*mark)->Write(2).ok());
    EXPECT_EQ((*mark)->index(), 1);
    EXPECT_GE(Reread(), 1);
  }
  files_.Crash();
  EXPECT_EQ(Reread(), 1);
  WriteAll(2, 3);
  EXPECT_EQ(Reread(), 2);
}

TEST_F(LogMarkTest, FinishesACreationThatFailed) {
  const auto mark = LogMark::Read(files_, "d/mark");
  ASSERT_TRUE(mark.ok());
  for (const Call call : {Call::kOpen, Call::kReserve, Call::kSync,
                          Call::kSyncDirectory, Call::kWrite}) {
    files_.AddFault({.call = call, .path_part = "", .error_number = ENOSPC});
    EXPECT_EQ((*mark)->Write(0).code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(Reread(), std::nullopt);
  }
  ASSERT_TRUE((*mark)->Write(0).ok());
  files_.Crash();
  EXPECT_EQ(Reread(), 0);
}

}  // namespace
}  // namespace atl::coordinator
