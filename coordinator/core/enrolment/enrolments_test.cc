// The bounds on enrolled names. coordinator_enrolment_test.cc has the rest.

#include "coordinator/core/enrolment/enrolments.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/codec/sha256.h"
#include "base/identity/identity.h"
#include "base/status/refusal.h"
#include "base/time/proto_time.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

constexpr char kTokenId[] = "abcdefghijkl";
constexpr char kSecret[] = "sixteen bytes or";

class EnrolmentsTest : public ::testing::Test {
 protected:
  EnrolmentsTest() {
    run_.run_id = "spring";
    run_.run_uid = "uid";
    run_.islands_max = 2 * kUsesMax;
    AddToken(kTokenId, kUsesMax, 0);
    for (int64_t i = 0; i < kIdentitiesARunMax; ++i) {
      Add(absl::StrCat("e-island-", i), now_ + absl::Hours(24), false);
    }
  }

  void AddToken(const std::string& id, int64_t uses_max, int64_t uses) {
    storage::v1::Record record;
    storage::v1::TokenSet& set = *record.mutable_token_set();
    set.mutable_token()->set_token_id(id);
    set.mutable_token()->set_role(v1::ENROLLED_ROLE_ISLAND);
    set.mutable_token()->set_run_id(run_.run_id);
    set.mutable_token()->set_run_uid(run_.run_uid);
    set.mutable_token()->set_use_count_max(uses_max);
    set.mutable_token()->set_use_count(uses);
    *set.mutable_token()->mutable_expire_time() =
        ToProto(now_ + absl::Hours(1));
    set.set_secret_sha256(Hash(kSecret));
    enrolments_.Apply(record);
  }

  static std::string Hash(const std::string& secret) {
    const codec::Sha256Digest digest = codec::ComputeSha256(secret);
    return std::string(digest.begin(), digest.end());
  }

  void Add(const std::string& name, absl::Time end, bool revoked,
           const std::string& token_id = "") {
    storage::v1::Record record;
    storage::v1::IdentitySet& set = *record.mutable_identity_set();
    set.mutable_grant()->mutable_identity()->set_run_uid(run_.run_uid);
    set.mutable_grant()->mutable_identity()->set_name(name);
    *set.mutable_grant()->mutable_end_time() = ToProto(end);
    set.set_key_sha256(std::string(32, 'o'));
    set.set_revoked(revoked);
    set.set_token_id(token_id);
    enrolments_.Apply(record);
  }

  // Applies the decision's records. Returns the reason of a refusal.
  template <typename Decision>
  std::string Take(const Decision& decision) {
    if (!decision.ok()) return GetReason(decision.status())->reason;
    for (const storage::v1::Record& record : Records(*decision)) {
      enrolments_.Apply(record);
    }
    return "";
  }
  static const std::vector<storage::v1::Record>& Records(const Grant& grant) {
    return grant.records;
  }
  static const std::vector<storage::v1::Record>& Records(
      const std::vector<storage::v1::Record>& records) {
    return records;
  }

  std::string Create(const std::string& id, int64_t uses) {
    v1::CreateTokenRequest request;
    request.mutable_token()->set_token_id(id);
    request.mutable_token()->set_role(v1::ENROLLED_ROLE_ISLAND);
    request.mutable_token()->set_use_count_max(uses);
    *request.mutable_token()->mutable_expire_time() =
        ToProto(now_ + absl::Hours(1));
    request.set_secret_sha256(Hash(kSecret));
    return Take(enrolments_.Create(request, run_, now_));
  }

  absl::StatusOr<Grant> Enrol(const std::string& name) {
    v1::ConsumeTokenRequest request;
    request.set_token_id(kTokenId);
    request.set_token_secret(kSecret);
    request.set_run_id(run_.run_id);
    request.set_role(v1::ENROLLED_ROLE_ISLAND);
    request.set_name(name);
    request.set_key_sha256(std::string(32, 'n'));
    *request.mutable_lifetime() = ToProto(absl::Hours(1));
    return enrolments_.Consume(
        request, *enrolments_.FindBySecret(kTokenId, kSecret).value(), run_,
        {std::string(32, 'a'), std::string(6, 'b')}, now_);
  }

  bool Knows(const std::string& name) const {
    return enrolments_.FindIdentity(run_.run_uid, name) != nullptr;
  }

  const absl::Time now_ = absl::FromUnixSeconds(1'800'000'000);
  EnrolmentRun run_;
  Enrolments enrolments_;
};

TEST_F(EnrolmentsTest, RefusesANameMoreWhileAllOthersCanBeRenewed) {
  Add("e-island-7", now_ - kRenewableAfterEnd + absl::Seconds(1), false);
  EXPECT_EQ(Enrol("attic").status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(EnrolmentsTest, ANameThatCannotBeRenewedMakesRoom) {
  Add("e-island-7", now_ - kRenewableAfterEnd, false);
  const absl::StatusOr<Grant> granted = Enrol("attic");
  ASSERT_TRUE(granted.ok()) << granted.status();
  for (const storage::v1::Record& record : granted->records) {
    enrolments_.Apply(record);
  }
  EXPECT_TRUE(Knows("e-attic"));
  EXPECT_FALSE(Knows("e-island-7"));
}

TEST_F(EnrolmentsTest, ARevokedNameNeverMakesRoom) {
  Add("e-island-7", now_ - 2 * kRenewableAfterEnd, true);
  EXPECT_FALSE(Enrol("attic").ok());
}

TEST_F(EnrolmentsTest, AnOldNameThatComesBackNeedsNoRoom) {
  Add("e-island-7", now_ - kRenewableAfterEnd, false);
  const absl::StatusOr<Grant> granted = Enrol("e-island-7");
  ASSERT_TRUE(granted.ok()) << granted.status();
  EXPECT_EQ(granted->records.size(), 2);
}

TEST_F(EnrolmentsTest, AFullRunLeavesRoomToOtherRuns) {
  run_.run_uid = "uid-autumn";
  AddToken(kTokenId, 1, 0);
  EXPECT_EQ(Take(Enrol("attic")), "");
}

TEST_F(EnrolmentsTest, ATokenOfBeforeTheBoundHasNoMoreUses) {
  AddToken(kTokenId, 100'000, kUsesMax);
  Add("e-island-7", now_ - kRenewableAfterEnd, false);
  EXPECT_EQ(Take(Enrol("attic")), "TOKEN_USED");
}

TEST_F(EnrolmentsTest, NamesOfATokenThatIsRevokedWithThemMakeRoom) {
  Add("e-island-7", now_ + absl::Hours(24), false, "leaked000000");
  AddToken("leaked000000", kUsesMax, 1);
  run_.is_present = [](const std::string& name) {
    return name == "e-island-7";
  };
  EXPECT_EQ(Take(Enrol("attic")), "TOO_MANY_IDENTITIES");
  EXPECT_EQ(Take(enrolments_.Revoke("leaked000000", false, now_)), "");
  EXPECT_EQ(Take(Enrol("attic")), "TOO_MANY_IDENTITIES");
  EXPECT_EQ(Take(enrolments_.Revoke("leaked000000", true, now_)), "");
  EXPECT_TRUE(enrolments_.IsRevoked("uid", "e-island-7"));
  EXPECT_EQ(Take(Enrol("attic")), "");
  EXPECT_FALSE(Knows("e-island-7"));
}

TEST_F(EnrolmentsTest, NamesOfARevokedTokenThatAreNoMembersMakeRoom) {
  Add("e-island-7", now_ + absl::Hours(24), false, "leaked000000");
  AddToken("leaked000000", kUsesMax, 1);
  EXPECT_EQ(Take(Enrol("e-island-7")), "NAME_TAKEN");
  EXPECT_EQ(Take(enrolments_.Revoke("leaked000000", false, now_)), "");
  // Its holder has it until another machine wants the name or the room.
  EXPECT_FALSE(enrolments_.IsRevoked("uid", "e-island-7"));
  EXPECT_EQ(Take(Enrol("attic")), "");
  EXPECT_FALSE(Knows("e-island-7"));
}

TEST_F(EnrolmentsTest, AForgottenTokenForgetsTheNamesRevokedWithIt) {
  AddToken("leaked000000", kUsesMax, 2);
  Add("e-island-7", now_ + absl::Hours(24), false, "leaked000000");
  Add("e-island-8", now_ + absl::Hours(24), true, "leaked000000");
  EXPECT_EQ(Take(enrolments_.Revoke("leaked000000", true, now_)), "");
  storage::v1::Record record;
  record.mutable_token_forgotten()->set_token_id("leaked000000");
  enrolments_.Apply(record);
  EXPECT_FALSE(Knows("e-island-7"));
  EXPECT_TRUE(enrolments_.IsRevoked("uid", "e-island-8"));
  EXPECT_TRUE(Knows("e-island-9"));
}

TEST_F(EnrolmentsTest, TheUsesOfATokenHaveRoomFromTheStart) {
  run_.run_uid = "uid-autumn";
  const int64_t count = kIdentitiesARunMax / kUsesMax;
  for (int64_t i = 0; i < count; ++i) {
    EXPECT_EQ(Create(absl::StrCat("tokennumber", i), kUsesMax), "");
  }
  EXPECT_EQ(Create("tokennumberx", 1), "TOO_MANY_IDENTITIES");
  EXPECT_EQ(Take(enrolments_.Revoke("tokennumber0", false, now_)), "");
  EXPECT_EQ(Create("tokennumberx", 1), "");
}

TEST_F(EnrolmentsTest, ATokenHasAtMostHalfOfTheIslandsOfItsRun) {
  run_.run_uid = "uid-autumn";
  EXPECT_EQ(Create("tokennumber0", kUsesMax + 1), "INVALID_FIELDS");
  run_.islands_max = 100;
  EXPECT_EQ(Create("tokennumber0", 51), "INVALID_FIELDS");
  EXPECT_EQ(Create("tokennumber0", 50), "");
}

}  // namespace
}  // namespace atl::coordinator
