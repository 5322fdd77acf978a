#include "server/directory/identity_file.h"

#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "base/io/testing/fake_file_system.h"
#include "gtest/gtest.h"

namespace atl::server {
namespace {

constexpr char kPath[] = "identity";

records::Identity MakeIdentity(int64_t incarnation) {
  records::Identity identity;
  identity.set_server_id("s0");
  identity.set_incarnation(incarnation);
  return identity;
}

// Damages one of the two copies.
void Damage(FileSystem& fs, int slot) {
  const auto file = *fs.OpenForWrite(kPath);
  ASSERT_TRUE(file->WriteAt(slot * SlotFile::kSlotBytes + 30, "x").ok());
}

TEST(IdentityFileTest, HasWhatWasWritten) {
  FakeFileSystem fs;
  EXPECT_TRUE(absl::IsNotFound(IdentityFile::Open(fs, kPath).status()));
  auto file = *IdentityFile::Create(fs, kPath, MakeIdentity(1));
  for (int64_t i = 2; i < 6; ++i) {
    ASSERT_TRUE(file->Write(MakeIdentity(i)).ok());
    fs.Crash();
    file = *IdentityFile::Open(fs, kPath);
    EXPECT_EQ(file->identity().incarnation(), i);
    EXPECT_EQ(file->identity().server_id(), "s0");
    EXPECT_FALSE(file->had_damaged_slot());
  }
}

TEST(IdentityFileTest, ATornWriteLeavesTheIdentityBefore) {
  FakeFileSystem fs;
  auto file = *IdentityFile::Create(fs, kPath, MakeIdentity(1));
  ASSERT_TRUE(file->Write(MakeIdentity(2)).ok());
  Damage(fs, 1);
  file = *IdentityFile::Open(fs, kPath);
  EXPECT_EQ(file->identity().incarnation(), 1);
  EXPECT_TRUE(file->had_damaged_slot());
}

TEST(IdentityFileTest, WithoutAWholeCopyItIsDataLoss) {
  FakeFileSystem fs;
  auto file = *IdentityFile::Create(fs, kPath, MakeIdentity(1));
  ASSERT_TRUE(file->Write(MakeIdentity(2)).ok());
  Damage(fs, 0);
  Damage(fs, 1);
  const absl::Status opened = IdentityFile::Open(fs, kPath).status();
  EXPECT_TRUE(absl::IsDataLoss(opened)) << opened;
  EXPECT_TRUE(absl::StrContains(opened.message(), kPath)) << opened;
}

TEST(IdentityFileTest, AnotherFormatIsNotRead) {
  FakeFileSystem fs;
  records::Identity identity = MakeIdentity(1);
  identity.set_format_number(999);
  ASSERT_TRUE(SlotFile::Create(fs, kPath, identity.SerializeAsString()).ok());
  const absl::Status opened = IdentityFile::Open(fs, kPath).status();
  EXPECT_TRUE(absl::IsDataLoss(opened)) << opened;
  EXPECT_TRUE(absl::StrContains(opened.message(), "999")) << opened;
}

}  // namespace
}  // namespace atl::server
