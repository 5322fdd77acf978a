#include "cli/curves/event_writer.h"

#include <cerrno>

#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/io/testing/fake_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr char kPath[] = "/d/events.out.tfevents.5.host.u1.atoll";

class EventWriterTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<EventWriter>> Open(const std::string& uid) {
    return EventWriter::Open(files_,
                             {"/d", uid, "host", absl::FromUnixSeconds(5)});
  }

  static CurvePoint Point(const std::string& tag, int64_t step) {
    return {tag, step, absl::FromUnixSeconds(10), 0.5};
  }

  // "tag@step" of each point in the file.
  std::vector<std::string> Points() {
    const std::string bytes = *ReadFile(files_, kPath);
    const EventRecords records = ReadEventRecords(bytes);
    EXPECT_EQ(records.size_bytes, static_cast<int64_t>(bytes.size()));
    std::vector<std::string> points;
    for (const curves::Event& event : records.events) {
      for (const auto& value : event.summary().value()) {
        points.push_back(value.tag() + "@" + std::to_string(event.step()));
      }
    }
    return points;
  }

  FakeFileSystem files_;
};

TEST_F(EventWriterTest, AnotherProcessAppendsOnlyWhatIsNew) {
  auto writer = *Open("u1");
  EXPECT_EQ(writer->path(), kPath);
  ASSERT_TRUE(writer->Add({Point("a", 1), Point("b", 1)}).ok());
  ASSERT_TRUE(writer->Add({Point("a", 1), Point("a", 2)}).ok());
  writer.reset();
  writer = *Open("u1");
  ASSERT_TRUE(writer->Add({Point("a", 2), Point("b", 2)}).ok());
  EXPECT_THAT(Points(), ElementsAre("a@1", "b@1", "a@2", "b@2"));
}

TEST_F(EventWriterTest, ARecordThatADiskFullTornIsCutOffAndWrittenAgain) {
  auto writer = *Open("u1");
  ASSERT_TRUE(writer->Add({Point("a", 1)}).ok());
  files_.AddFault({.call = FakeFileSystem::Fault::Call::kWrite,
                   .path_part = "tfevents",
                   .error_number = ENOSPC,
                   .written_bytes = 20});
  EXPECT_EQ(writer->Add({Point("a", 2)}).code(),
            absl::StatusCode::kResourceExhausted);
  writer.reset();
  writer = *Open("u1");
  ASSERT_TRUE(writer->Add({Point("a", 2)}).ok());
  EXPECT_THAT(Points(), ElementsAre("a@1", "a@2"));
}

TEST_F(EventWriterTest, RefusesADirectoryOfAnotherRun) {
  ASSERT_TRUE(Open("u1").ok());
  const absl::Status status = Open("u2").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("another run"));
}

TEST(EventWriterOnDiskTest, RefusesASecondWriterAtATime) {
  const std::string directory = ::testing::TempDir() + "/events";
  const auto open = [&] {
    return EventWriter::Open(
        PosixFileSystem(), {directory, "u1", "host", absl::FromUnixSeconds(5)});
  };
  auto first = open();
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status status = open().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), EndsWith("another process"));
}

}  // namespace
}  // namespace atl::cli
