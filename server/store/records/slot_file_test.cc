#include "server/store/records/slot_file.h"

#include <cerrno>
#include <string>

#include "base/io/files.h"
#include "base/io/testing/fake_file_system.h"
#include "gtest/gtest.h"

namespace atl::server {
namespace {

constexpr char kPath[] = "slots";

class SlotFileTest : public testing::Test {
 protected:
  SlotFileTest() { file_ = *SlotFile::Create(fs_, kPath, "0"); }

  void WriteDurably(const std::string& value) {
    ASSERT_TRUE(file_->Write(value).ok());
    ASSERT_TRUE(file_->Sync().ok());
  }

  void Damage(int slot) {
    const auto file = *fs_.OpenForWrite(kPath);
    ASSERT_TRUE(
        file->WriteAt(slot * SlotFile::kSlotBytes + 20, "damaged").ok());
    ASSERT_TRUE(file->Sync().ok());
  }

  FakeFileSystem fs_;
  std::unique_ptr<SlotFile> file_;
};

TEST_F(SlotFileTest, HasTheNewestDurableValueAfterACrash) {
  for (const char* value : {"1", "2", "3"}) {
    WriteDurably(value);
    ASSERT_TRUE(file_->Write("not synced").ok());
    fs_.Crash();
    file_ = *SlotFile::Open(fs_, kPath);
    EXPECT_EQ(file_->value(), value);
    EXPECT_FALSE(file_->had_damaged_slot());
  }
}

TEST_F(SlotFileTest, ATornSlotLeavesTheValueBefore) {
  WriteDurably("1");  // In slot 1.
  WriteDurably("2");  // In slot 0.
  Damage(0);
  file_ = *SlotFile::Open(fs_, kPath);
  EXPECT_EQ(file_->value(), "1");
  EXPECT_TRUE(file_->had_damaged_slot());
  // The damaged slot is the next one.
  WriteDurably("3");
  Damage(1);
  EXPECT_EQ(*SlotFile::Read(fs_, kPath), "3");
}

TEST_F(SlotFileTest, TwoDamagedSlotsAreDataLoss) {
  WriteDurably("1");
  Damage(0);
  Damage(1);
  EXPECT_TRUE(absl::IsDataLoss(SlotFile::Open(fs_, kPath).status()));
  EXPECT_TRUE(absl::IsNotFound(SlotFile::Open(fs_, "other").status()));
}

TEST_F(SlotFileTest, AFailedSyncNeverCostsTheDurableValue) {
  WriteDurably("1");
  for (int i = 0; i < 2; ++i) {
    fs_.AddFault({.call = FakeFileSystem::Fault::Call::kSync,
                  .path_part = kPath,
                  .error_number = EIO});
    ASSERT_TRUE(file_->Write("2").ok());
    EXPECT_FALSE(file_->Sync().ok());
  }
  // Not synced, and in place of the "2" that was not either.
  ASSERT_TRUE(file_->Write("3").ok());
  fs_.Crash();
  EXPECT_EQ(*SlotFile::Read(fs_, kPath), "1");
}

TEST_F(SlotFileTest, AValueThatDoesNotFitIsRefused) {
  const std::string value(SlotFile::kValueBytesMax, 'x');
  WriteDurably(value);
  EXPECT_EQ(*SlotFile::Read(fs_, kPath), value);
  EXPECT_FALSE(file_->Write(value + "x").ok());
}

}  // namespace
}  // namespace atl::server
