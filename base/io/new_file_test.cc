#include "base/io/new_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

TEST(NewFileTest, WhatExistsStays) {
  const std::string path =
      absl::StrCat(::testing::TempDir(), "/new_file_", ::getpid());
  ASSERT_TRUE(WriteNewFile(path, "first", 0600).ok());
  struct stat info;
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  const absl::Status again = WriteNewFile(path, "second", 0600);
  EXPECT_EQ(again.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(again.message()), ::testing::HasSubstr(path));
  EXPECT_EQ(*ReadFile(PosixFileSystem(), path), "first");

  const std::string link = path + ".link";
  ASSERT_EQ(::symlink((path + ".nowhere").c_str(), link.c_str()), 0);
  EXPECT_EQ(WriteNewFile(link, "x", 0600).code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(WriteNewFile(path + ".none/x", "x", 0600).code(),
            absl::StatusCode::kNotFound);
  ::unlink(link.c_str());
  ::unlink(path.c_str());
}

}  // namespace
}  // namespace atl
