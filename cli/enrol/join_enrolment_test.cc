#include "cli/enrol/join_enrolment.h"

#include <sstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

JoinString SomeJoin() {
  return {"gate.example.org:7402", "spring", "abcdefghijkl",
          std::string(32, 's'), std::string(43, 'A')};
}

// Refuses everybody, and remembers who asked.
struct ClosedGate {
  GateCall AsCall() {
    return [this](const GatePeer& peer, const v1::GateRequest& request)
               -> absl::StatusOr<v1::GateResponse> {
      address = peer.address;
      name = request.enrol().name();
      return absl::PermissionDeniedError("closed");
    };
  }
  std::string address, name;
};

absl::Status Find(const JoinRequestFlags& flags, ClosedGate& gate,
                  const std::string& input = "") {
  std::istringstream in(input);
  std::ostringstream messages;
  const auto found =
      FindEnrolment(flags, ::testing::TempDir() + "/nothing", {in}, messages,
                    gate.AsCall(), absl::Now());
  EXPECT_EQ(messages.str().find(input), input.empty() ? 0 : std::string::npos);
  EXPECT_FALSE(found.ok() && found->has_value());
  return found.status();
}

TEST(JoinEnrolmentTest, AsksTheGateOfTheString) {
  ClosedGate gate;
  JoinRequestFlags flags;
  flags.address = FormatJoinString(SomeJoin());
  flags.island_id = "attic";
  EXPECT_EQ(Find(flags, gate).message(), "closed");
  EXPECT_EQ(gate.address, "gate.example.org:7402");
  EXPECT_EQ(gate.name, "attic");
}

TEST(JoinEnrolmentTest, ReadsTheStringFromTheInput) {
  const std::string text = FormatJoinString(SomeJoin());
  JoinRequestFlags flags;
  flags.address = "-";
  ClosedGate gate;
  EXPECT_EQ(Find(flags, gate, text + "\n").message(), "closed");
  EXPECT_EQ(Find(flags, gate, "<" + text + ">\n").message(), "closed");
  EXPECT_EQ(Find(flags, gate, text + "\nmore").code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(JoinEnrolmentTest, RefusesWhatContradictsTheString) {
  ClosedGate gate;
  JoinRequestFlags flags;
  flags.address = FormatJoinString(SomeJoin());
  flags.run_id = "autumn";
  EXPECT_TRUE(absl::StrContains(Find(flags, gate).message(), "autumn"));
  flags.run_id = "";
  flags.has_tls_files = true;
  EXPECT_TRUE(absl::StrContains(Find(flags, gate).message(), "certificate"));
  flags.has_tls_files = false;
  flags.address.back() = flags.address.back() == '0' ? '1' : '0';
  EXPECT_EQ(Find(flags, gate).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(gate.address, "");
}

TEST(JoinEnrolmentTest, EnrolsNobodyWithoutAString) {
  ClosedGate gate;
  JoinRequestFlags flags;
  EXPECT_TRUE(Find(flags, gate).ok());
  flags.run_id = "spring";
  EXPECT_TRUE(Find(flags, gate).ok());  // There is no enrolment.
  flags.address = "127.0.0.1:7400";
  EXPECT_TRUE(Find(flags, gate).ok());
}

}  // namespace
}  // namespace atl::cli
