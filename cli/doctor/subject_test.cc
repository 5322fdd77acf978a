#include "cli/doctor/subject.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/identity/join_string.h"
#include "cli/output/error.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

JoinString SomeJoin() {
  return {"gate.example.org:7402", "spring", "abcdefghijkl",
          std::string(32, 's'), std::string(43, 'A')};
}

class SubjectTest : public ::testing::Test {
 protected:
  SubjectTest() { std::filesystem::remove_all(parent_); }

  // As Enrolment leaves it.
  void Enrol(const std::string& run_id, const std::string& token_id) const {
    const std::string directory =
        absl::StrCat(parent_, "/", run_id, ".", token_id);
    std::filesystem::create_directories(directory);
    std::ofstream(directory + "/enrolment.json")
        << R"({"gate": "g:1", "pin": "p", "run_id": ")" << run_id
        << R"(", "token_id": ")" << token_id
        << R"(", "name": "attic", "coordinator": "c:1", "servers": ["s:1"]})";
    std::ofstream(directory + "/tls.crt") << "certificate";
    std::ofstream(directory + "/tls.key") << "key";
  }

  absl::StatusOr<std::optional<GateSubject>> Find(
      const SubjectFlags& flags, const std::string& input = "") const {
    std::istringstream in(input);
    std::ostringstream messages;
    return FindSubject(flags, parent_, {in}, messages,
                       [](const std::string& address, const rpc::TlsFiles&,
                          const std::string&) {
                         v1::Run run;
                         run.set_run_id(address);
                         return run;
                       });
  }

  const std::string parent_ = absl::StrCat(
      ::testing::TempDir(), "/subject_test.",
      ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(SubjectTest, AJoinStringNamesItsGate) {
  const std::string text = FormatJoinString(SomeJoin());
  for (const auto& [address, input] :
       {std::pair(text, std::string()), std::pair(std::string("-"), text)}) {
    const auto subject = Find({address, ""}, input);
    ASSERT_TRUE(subject.ok()) << subject.status();
    EXPECT_EQ((*subject)->address, "gate.example.org:7402");
    EXPECT_EQ((*subject)->token_id, "abcdefghijkl");
    EXPECT_EQ((*subject)->run_id, "spring");
  }
}

TEST_F(SubjectTest, AnEnrolmentIsFoundByItsRunOrAlone) {
  EXPECT_FALSE(Find({"", ""})->has_value());
  EXPECT_TRUE(absl::IsNotFound(Find({"", "spring"}).status()));
  Enrol("spring", "abcdefghijkl");
  for (const char* const run_id : {"", "spring"}) {
    const auto subject = Find({"", run_id});
    ASSERT_TRUE(subject.ok()) << subject.status();
    EXPECT_EQ((*subject)->address, "g:1");
    EXPECT_EQ((*subject)->token_id, "");
    EXPECT_EQ((*subject)->cert_pem, "certificate");
    EXPECT_EQ((*subject)->server_addresses, std::vector<std::string>{"s:1"});
    EXPECT_EQ((*subject)->get_run()->run_id(), "c:1");
  }
  Enrol("autumn", "abcdefghijkm");
  EXPECT_EQ(ToExitCode(Find({"", ""}).status()), ExitCode::kUsage);
  EXPECT_TRUE(Find({"", "autumn"}).ok());
}

TEST_F(SubjectTest, TheStringOfAnEnrolmentStandsForIt) {
  Enrol("spring", "abcdefghijkl");
  EXPECT_EQ((*Find({FormatJoinString(SomeJoin()), ""}))->token_id, "");
  JoinString other = SomeJoin();
  other.token_id = "abcdefghijkm";
  EXPECT_EQ((*Find({FormatJoinString(other), ""}))->token_id, "abcdefghijkm");
}

TEST_F(SubjectTest, AnythingElseIsAUsageError) {
  EXPECT_EQ(ToExitCode(Find({"10.0.0.7:7400", ""}).status()), ExitCode::kUsage);
  EXPECT_EQ(ToExitCode(Find({"-", ""}, "atoll://x").status()),
            ExitCode::kUsage);
  EXPECT_EQ(ToExitCode(Find({FormatJoinString(SomeJoin()), "autumn"}).status()),
            ExitCode::kUsage);
}

}  // namespace
}  // namespace atl::cli
